"""What other representations of a histogram's lists would cost: bytes and CPU of a point in files of `metric_points`.

    python -m benchmarks.histogram_lists

The shape `histograms` of `benchmarks.shapes` goes through the job's two tasks, as in `benchmarks.bytes`. The lists of
the last batch's points, in the order in which they landed, are written again in each representation, with the encodings
of the table, and nothing else. CPU is the median of `ROUNDS`. Nothing is stored: it is the table of a decision.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.bytes import PUSHES_A_BATCH, land
from benchmarks.shapes import SHAPES
from kafka_telemetry_lake.pipelines.lake.table_files import ROWS_PER_FILE_GROUP
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.udfs.rows import BIGINTS, DOUBLES

ROUNDS = 5
BOUNDS = "explicit_bounds"
TOTALS = ("bucket_counts", "positive_counts")
INCREMENTS = tuple(f"{name}_delta" for name in TOTALS)
LISTS = (BOUNDS, *TOTALS, *INCREMENTS)


def main() -> None:
    (shape,) = (each for each in SHAPES if each.name == "histograms")
    with tempfile.TemporaryDirectory() as folder:
        land(folder, shape.fleets(PUSHES_A_BATCH * 5)[0])
        lists = last_lists(METRIC_POINTS.uri(folder))
    print(f"{lists.num_rows} points, {values_in(lists) / lists.num_rows:.0f} values in the lists of each")
    for name, rows in representations(lists):
        taken = [written(rows) for _ in range(ROUNDS)]
        cpu_s = statistics.median(each[0] for each in taken)
        print(f"{name:60} {1e6 * cpu_s / len(rows):6.2f} us {taken[0][1] / len(rows):6.2f} bytes", flush=True)


def last_lists(uri: str) -> pa.Table:
    """The lists of the points of the last commit, a file after the other."""
    actions = pa.table(DeltaTable(uri).get_add_actions()).to_pylist()
    last = max(each["modification_time"] for each in actions)
    paths = [Path(uri, each["path"]) for each in actions if each["modification_time"] == last]
    return pa.concat_tables([pq.read_table(path, columns=list(LISTS), partitioning=None) for path in paths])


def values_in(lists: pa.Table) -> int:
    return sum(int(pc.sum(pc.list_value_length(lists[name])).as_py() or 0) for name in lists.column_names)


def representations(lists: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Each with its name; the first one is that of the table."""
    yield "as stored: bounds, and totals and increments of both kinds", lists
    yield "the bounds are a number of a dimension", numbered_bounds(lists)
    yield "totals only where there is no increment", sparse_totals(lists)
    yield "no increments", lists.drop_columns(list(INCREMENTS))
    yield "totals and increments of a point in one list", joined(lists)
    yield "explicit and exponential counts in one column", one_kind(lists)
    yield "the three together", one_kind(sparse_totals(numbered_bounds(lists)))
    yield "each list as its bytes, which SQL doesn't read", as_bytes(lists)


def numbered_bounds(lists: pa.Table) -> pa.Table:
    """The bounds' place in a table of all that there are."""
    bounds = lists[BOUNDS].combine_chunks()
    _, number = np.unique([repr(each) for each in bounds.to_pylist()], return_inverse=True)
    numbers = pa.array(number, pa.int32(), mask=np.asarray(bounds.is_null()))
    return lists.set_column(lists.schema.get_field_index(BOUNDS), BOUNDS, numbers.dictionary_encode())


def sparse_totals(lists: pa.Table) -> pa.Table:
    for total, increment in zip(TOTALS, INCREMENTS, strict=True):
        own = lists[total].combine_chunks()
        kept = pc.if_else(lists[increment].combine_chunks().is_valid(), pa.scalar(None, own.type), own)
        lists = lists.set_column(lists.schema.get_field_index(total), total, kept)
    return lists


def joined(lists: pa.Table) -> pa.Table:
    """A point's totals, then its increments."""
    for total, increment in zip(TOTALS, INCREMENTS, strict=True):
        one, two = lists[total].combine_chunks(), lists[increment].combine_chunks()
        lengths = np.column_stack([np.asarray(pc.fill_null(pc.list_value_length(each), 0)) for each in (one, two)])
        offsets = np.zeros(len(lists) + 1, np.int32)
        np.cumsum(lengths.sum(axis=1), out=offsets[1:])
        values = np.empty(offsets[-1], np.int64)
        owner = np.repeat(np.tile([0, 1], len(lists)), lengths.ravel())  # which of both lists each value is of
        values[owner == 0], values[owner == 1] = np.asarray(one.flatten()), np.asarray(two.flatten())
        both = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=one.is_null())
        lists = lists.drop_columns([increment]).set_column(lists.schema.get_field_index(total), total, both)
    return lists


def one_kind(lists: pa.Table) -> pa.Table:
    """A point has either kind, so one column holds both."""
    for explicit, exponential in (TOTALS, INCREMENTS):
        own, other = lists[explicit].combine_chunks(), lists[exponential].combine_chunks()
        merged = pc.if_else(own.is_valid(), own, other)
        place = lists.schema.get_field_index(explicit)
        lists = lists.set_column(place, explicit, merged).drop_columns([exponential])
    return lists


def as_bytes(lists: pa.Table) -> pa.Table:
    """Eight bytes a value, behind each other."""
    for name in LISTS:
        own = lists[name].combine_chunks()
        offsets = np.zeros(len(own) + 1, np.int32)
        np.cumsum(8 * np.asarray(pc.fill_null(pc.list_value_length(own), 0)), out=offsets[1:])
        values = pa.py_buffer(np.ascontiguousarray(np.asarray(own.flatten())).view(np.uint8))
        valid = pc.fill_null(own.is_valid(), False)
        packed = pa.Array.from_buffers(pa.binary(), len(own), [valid.buffers()[1], pa.py_buffer(offsets), values])
        lists = lists.set_column(lists.schema.get_field_index(name), name, packed)
    return lists


def written(rows: pa.Table) -> tuple[float, int]:
    """CPU-seconds and bytes of a file of these rows, with the encodings of table `metric_points`."""
    sink, began = io.BytesIO(), time.process_time()
    dictionaries = [f"{field.name}.list.element" for field in rows.schema if field.type == DOUBLES]
    dictionaries += [field.name for field in rows.schema if pa.types.is_dictionary(field.type)]
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression="zstd",
        compression_level=METRIC_POINTS.zstd_level,
        use_dictionary=dictionaries,
        column_encoding={
            f"{field.name}.list.element": "DELTA_BINARY_PACKED" for field in rows.schema if field.type == BIGINTS
        },
        store_schema=False,
        write_statistics=False,
    ) as writer:
        writer.write_table(rows, row_group_size=ROWS_PER_FILE_GROUP)
    return time.process_time() - began, len(sink.getbuffer())


if __name__ == "__main__":
    main()
