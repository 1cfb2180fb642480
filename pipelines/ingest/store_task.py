"""The first task of a micro-batch: landing records become files of `pushes` and of the other tables they belong to.

The files are written with Arrow, like those of the operator, and the driver only commits their names. The row groups of
a file of `pushes` follow the landing partitions, so a shard's task reads only those that contain its clients
(`push_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from kafka_telemetry_lake.pipelines.ingest.landing_rows import SAMPLE, STATUS
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH

OTHERS = (RECEIVER_HEALTH, QUOTA_SAMPLES, QUARANTINE)
STORED = (*OTHERS, PUSHES)  # in the order of their commits; the last one says that the pushes of a batch are stored
ROWS_PER_GROUP = 1 << 16  # of statuses or samples
STORED_FILE = "file string"  # a `DataFile` as JSON
_RESULT = pa.schema([("file", pa.string())])
# Texts that many pushes share: a dictionary makes them small.
REPEATED = (
    "source", "cluster_id", "topic", "client_id", "content_type", "compression_type", "principal", "listener",
    "security_protocol", "client_software_name", "client_software_version", "dropped",
)  # fmt: skip


@dataclass(frozen=True)
class StoreTask:
    """Writes its part of a micro-batch; the files count once the driver has committed them.

    Attributes:
        lake: folder or URI of the lake.
    """

    lake: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = {table.name: TableFiles(table, self.lake) for table in STORED}
        others: dict[str, list[pa.Table]] = {table.name: [] for table in OTHERS}

        def pushes() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = _other_rows(batch)
                for table, each in rows.items():
                    others[table].append(each)
                    if _is_full(others[table]):
                        files[table].write(pa.concat_tables(others[table]))
                        others[table].clear()
                yield _pushes(batch) if rows else batch.select(PUSHES.schema.names)

        for rows in _row_groups(pushes()):
            files[PUSHES.name].write(rows)
        for table, parts in others.items():
            if parts:
                files[table].write(pa.concat_tables(parts))
        texts = [file.to_json() for each in files.values() for file in each.close()]
        pa.default_memory_pool().release_unused()
        forget_archives()
        yield pa.RecordBatch.from_pydict({"file": texts}, _RESULT)


def store(rows: DataFrame, lake: str, processes: int | None = None) -> list[DataFile]:
    """Write landing records to files of the tables `STORED`, which no commit names yet.

    Args:
        rows: columns of ``landing_rows.COLUMNS``, in the order of the source.
        processes: number of Python workers to use at once; None: as many as the session has cores.
    """
    # A task has fixed costs: no more of them than can run at once.
    parallelism = processes or rows.sparkSession.sparkContext.defaultParallelism
    chosen = rows.coalesce(parallelism)
    return [DataFile.from_json(row["file"]) for row in chosen.mapInArrow(StoreTask(lake), STORED_FILE).collect()]


def _is_full(parts: Sequence[pa.Table]) -> bool:
    """Whether these rows are written as a row group; a rejected sample may have a payload of any size."""
    size: int = sum(part.nbytes for part in parts)
    return size >= SLICE_BYTES or sum(part.num_rows for part in parts) >= ROWS_PER_GROUP


def _pushes(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.and_(batch[STATUS].is_null(), batch[SAMPLE].is_null())).select(PUSHES.schema.names)


def _other_rows(batch: pa.RecordBatch) -> dict[str, pa.Table]:
    """The rows of other tables than `pushes`, by table; empty if a batch has only pushes."""
    rows = {}
    if batch[STATUS].null_count < len(batch):
        rows[RECEIVER_HEALTH.name] = _fields(batch[STATUS], RECEIVER_HEALTH.schema)
    if batch[SAMPLE].null_count < len(batch):
        samples = batch[SAMPLE].drop_null()
        is_valid = samples.field("reason").is_null()
        rows[QUOTA_SAMPLES.name] = _fields(samples.filter(is_valid), QUOTA_SAMPLES.schema)
        rows[QUARANTINE.name] = _fields(samples.filter(pc.invert(is_valid)), QUARANTINE.schema)
    return rows


def _fields(structs: pa.Array, schema: pa.Schema) -> pa.Table:
    """The structs that aren't NULL, as rows; a column without a field is NULL."""
    rows = pa.Table.from_struct_array(structs.drop_null())
    columns = [
        rows[name] if name in rows.column_names else pa.nulls(len(rows), kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.table(columns, schema.names).cast(schema)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of one landing partition each, of about `SLICE_BYTES` or fewer."""
    waiting: list[pa.RecordBatch] = []
    size, partition = 0, None
    for batch in batches:
        for part in _by_partition(batch):
            own = part["partition"][0]
            if waiting and (own != partition or size >= SLICE_BYTES):
                yield _table(waiting)
                waiting, size = [], 0
            waiting.append(part)
            size, partition = size + part.nbytes, own
    if waiting:
        yield _table(waiting)


def _by_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    changes = np.flatnonzero(np.diff(batch["partition"].to_numpy())) + 1
    bounds = [0, *changes.tolist(), batch.num_rows]
    for first, last in pairwise(bounds):
        if last > first:
            yield batch.slice(first, last - first)


def _table(parts: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(parts).cast(PUSHES.schema)
    for name in REPEATED:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place).with_type(_TEXT), rows[name].dictionary_encode())
    return rows


_TEXT = pa.dictionary(pa.int32(), pa.string())
