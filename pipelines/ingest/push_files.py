"""Reads a shard's pushes from the files of table `pushes`, in slices that fit in memory.

Tasks read the Parquet files themselves, so a payload passes through the JVM only once, on its way into the table. A
task opens the files and row groups that the commit says may have pushes of its shard (`lake.held_shards`). In others it
reads the ids first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

# Landed payload bytes that are processed at a time. Larger slices are slower: their columns don't fit the CPU caches.
SLICE_BYTES = 32 << 20
SLICE_ROWS = 8192
READ_BYTES = 1 << 20  # read buffer per column: without one, Arrow reads all payloads of a row group at once
CURSOR_BYTES = 4 << 20  # read at a time from a row group that is merged with others
CLIENT = "client_instance_id"
KEYS = pa.schema([PUSHES_IN.field(name) for name in (CLIENT, "partition", "offset")])


def table_paths(uris: Sequence[str], table: Table = PUSHES) -> list[str]:
    """Convert file URIs, as Spark names them, to paths relative to the table's folder, as in Delta's log."""
    return [unquote(uri).rpartition(f"/{table.name}/")[2] for uri in uris]


class PushFiles:
    """The files of one batch, as a shard reads them.

    Args:
        lake: folder or URI of the lake.
        paths: relative to the folder of table `pushes`.
        shard: number of the shard.
        shards: number of shards.
        held: which shards have pushes in a file, by path; files that it lacks may have those of all.
        schema: the columns to read; a column that a file lacks is NULL.

    Attributes:
        rows: pushes of all shards in the row groups that this shard counts; every row group is counted by one shard.
    """

    def __init__(
        self, lake: str, paths: Sequence[str], shard: int = 0, shards: int = 1,
        held: Mapping[str, HeldShards] | None = None, schema: pa.Schema = PUSHES_IN,
    ) -> None:  # fmt: skip
        filesystem, root = filesystem_of(PUSHES.uri(lake))
        groups, self.rows = list[_Group](), 0
        for path in paths:
            note = None if held is None else held.get(path)
            wanted = None if note is None else note.of(shard, shards)
            if wanted != []:
                own = list(_groups(filesystem.open_input_file(f"{root}/{path}"), wanted))
                groups += own
                counted = None if note is None else note.counted_by(shard, shards)
                is_counted = [shard == 0 if counted is None else group.number in counted for group in own]
                self.rows += sum(len(group.ids) for group, yes in zip(own, is_counted, strict=True) if yes)
        self._groups = sorted(groups, key=lambda group: (group.partition[0], group.offset[0]))
        self._shard, self._shards, self._schema = shard, shards, schema

    def slices(self, *, sorted_by_partition: bool = False) -> Iterator[pa.Table]:
        """Yield the shard's pushes. A partition's offsets increase from slice to slice.

        Args:
            sorted_by_partition: also yield all pushes of a partition before those of the next.
        """
        chosen = [(group, shards_of(group.ids, self._shards) == self._shard) for group in self._groups]
        if _in_order(chosen, sorted_by_partition):
            parts = (part for group, mine in chosen for part in group.slices(mine, self._schema))
            yield from joined(parts, SLICE_ROWS)
        else:  # the files were compacted or come from another writer
            yield from _merged(chosen, self._schema)


def joined(parts: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Join parts up to `most` rows or `SLICE_BYTES` bytes; a larger part is one by itself."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        if waiting and (rows + part.num_rows > most or size + part.nbytes > SLICE_BYTES):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


@dataclass(frozen=True)
class _Group:
    """A row group, with the ids, partitions and offsets of its pushes."""

    file: pq.ParquetFile
    number: int
    ids: pa.Array
    partition: Int64s
    offset: Int64s

    def slices(self, mine: Bools, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows that are `mine`."""
        if not mine.any():
            return
        done = 0
        for batch in self.batches(schema, SLICE_BYTES):
            chosen = mine[done : done + batch.num_rows]
            done += batch.num_rows
            if chosen.any():
                yield batch if chosen.all() else batch.filter(pa.array(chosen))

    def batches(self, schema: pa.Schema, size: int) -> Iterator[pa.Table]:
        """All rows, in batches of about `size` bytes, estimated from the mean row size."""
        rows = max(1, min(SLICE_ROWS, int(size / max(1, self.row_bytes))))
        names = [name for name in schema.names if name in self.file.schema_arrow.names]
        for batch in self.file.iter_batches(rows, [self.number], names):
            yield _with_columns(pa.Table.from_batches([batch]), schema)

    @property
    def row_bytes(self) -> float:
        """Mean size of a row in bytes, most of it payload."""
        group = self.file.metadata.row_group(self.number)
        size = sum(int(group.column(i).total_uncompressed_size) for i in range(group.num_columns))
        return size / int(group.num_rows)


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _merged(chosen: Sequence[tuple[_Group, Bools]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows by partition and offset. Only keys are sorted in memory; a slice's rows are read when needed."""
    row = [np.flatnonzero(mine) for _, mine in chosen]
    group = np.repeat(np.arange(len(chosen)), [len(rows) for rows in row])
    partition = np.concatenate([each.partition[rows] for (each, _), rows in zip(chosen, row, strict=True)])
    offset = np.concatenate([each.offset[rows] for (each, _), rows in zip(chosen, row, strict=True)])
    order = np.lexsort((offset, partition))
    group, place = group[order], np.concatenate(row)[order]
    size = np.cumsum(np.array([each.row_bytes for each, _ in chosen])[group])
    cursors: dict[int, _Cursor] = {}
    first = 0
    while first < len(order):
        done = size[first - 1] if first else 0.0
        last = min(first + SLICE_ROWS, max(first + 1, int(np.searchsorted(size, done + SLICE_BYTES, "right"))))
        parts: list[pa.Table] = []
        for number in np.unique(group[first:last]).tolist():
            cursor = cursors.setdefault(number, _Cursor(chosen[number][0], schema))
            parts += cursor.rows(np.sort(place[first:last][group[first:last] == number]))
            if sum(each.nbytes for each in cursors.values()) > SLICE_BYTES:
                cursors = {}  # to free memory; a row group that is needed again is read from its beginning
        yield from sorted_slices(pa.concat_tables(parts))
        first = last


class _Cursor:
    """Reads rows of a row group sequentially. For rows before the last ones it starts from the beginning again."""

    def __init__(self, group: _Group, schema: pa.Schema) -> None:
        self._group, self._schema = group, schema
        self._batches: Iterator[pa.Table] = iter(())
        self._first = self._last = 0  # rows of the batch at hand
        self._batch: pa.Table | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self._batch is None else int(self._batch.nbytes)

    def rows(self, wanted: Int64s) -> Iterator[pa.Table]:
        """The rows with these numbers, which must be increasing."""
        if self._batch is None or wanted[0] < self._first:
            self._batches = self._group.batches(self._schema, CURSOR_BYTES)
            self._first = self._last = 0
        while True:
            here = wanted[(wanted >= self._first) & (wanted < self._last)] - self._first
            if self._batch is not None and len(here):
                yield self._batch.take(pa.array(here))
            if wanted[-1] < self._last:
                return
            self._batch = next(self._batches)
            self._first, self._last = self._last, self._last + self._batch.num_rows


def sorted_slices(pushes: pa.Table) -> Iterator[pa.Table]:
    """Sort rows by partition and offset and slice them by actual size: some may be much larger than the mean."""
    order = pc.sort_indices(pushes, [("partition", "ascending"), ("offset", "ascending")])
    size = np.cumsum(pc.fill_null(pc.binary_length(pushes["payload"]), 0).take(order).to_numpy().astype(np.int64))
    place = pushes.schema.get_field_index("payload")
    wide = pushes.set_column(place, "payload", pushes["payload"].cast(pa.large_binary()))  # take joins chunks
    first = 0
    while first < len(order):
        done = size[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(size, done + SLICE_BYTES, "right")))
        yield wide.take(order[first:last]).cast(pushes.schema).combine_chunks()
        first = last


def _groups(stream: pa.NativeFile, wanted: Sequence[int] | None) -> Iterator[_Group]:
    file = pq.ParquetFile(stream, buffer_size=READ_BYTES)
    for number in range(file.metadata.num_row_groups) if wanted is None else wanted:
        keys = _with_columns(file.read_row_group(number, KEYS.names), KEYS)
        if keys.num_rows:
            partition, offset = (keys[name].to_numpy().astype(np.int64) for name in ("partition", "offset"))
            yield _Group(file, number, keys[CLIENT].combine_chunks(), partition, offset)


def _in_order(chosen: Sequence[tuple[_Group, Bools]], sorted_by_partition: bool) -> bool:
    """Whether the offsets of each partition increase, and the partitions too if `sorted_by_partition`."""
    none = [np.zeros(0, np.int64)]
    partition = np.concatenate(none + [group.partition[mine] for group, mine in chosen])
    offset = np.concatenate(none + [group.offset[mine] for group, mine in chosen])
    if sorted_by_partition and (np.diff(partition) < 0).any():
        return False
    order = np.argsort(partition, kind="stable")
    same = np.diff(partition[order]) == 0
    return bool((np.diff(offset[order])[same] >= 0).all())
