"""Reads a shard's pushes from the files of table `pushes`, in slices that fit in memory.

Tasks read the Parquet files themselves, so a payload passes through the JVM only once, on its way into the table. A
task opens the files and row groups that the commit says may have pushes of its shard (`lake.held_shards`). In others it
reads the ids first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
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
MEMORY_BYTES = 4 * SLICE_BYTES  # of the pushes that a task with several shards keeps in memory
SORTED_BYTES = 4 << 20  # sorted by shard at a time, which has fixed costs; parts are joined by another copy before it
CURSOR_BYTES = 4 << 20  # read at a time from a row group that is merged with others
SORTABLE_SLICES = 2  # a row group of at most so many slices may be in another order than that of offsets
CLIENT = "client_instance_id"
KEYS = pa.schema([PUSHES_IN.field(name) for name in (CLIENT, "partition", "offset")])


def table_paths(uris: Sequence[str], table: Table = PUSHES) -> list[str]:
    """Convert file URIs, as Spark names them, to paths relative to the table's folder, as in Delta's log."""
    return [unquote(uri).rpartition(f"/{table.name}/")[2] for uri in uris]


class PushFiles:
    """The files of one batch, as a task reads them for its shards: it opens each file once.

    Args:
        lake: folder or URI of the lake.
        paths: relative to the folder of table `pushes`.
        shards: number of shards.
        held: which shards have pushes in a file, by path; files that it lacks may have those of all.
        schema: the columns to read; a column that a file lacks is NULL.
    """

    def __init__(
        self,
        lake: str,
        paths: Sequence[str],
        shards: int = 1,
        held: Mapping[str, HeldShards] | None = None,
        schema: pa.Schema = PUSHES_IN,
    ) -> None:
        self._filesystem, self._root = filesystem_of(PUSHES.uri(lake))
        self._paths, self._shards, self._schema = paths, shards, schema
        self._held = {path: note.for_number(shards) for path, note in ({} if held is None else held).items()}
        self._files: dict[str, _File] = {}
        self._found: dict[int, list[tuple[int, list[_Group]]]] = {}
        self._in_memory: dict[int, list[pa.Table]] = {}

    def rows(self, shard: int = 0) -> int:
        """Pushes of all shards in the row groups that a shard counts; every row group is counted by one shard."""
        rows = 0
        for place, groups in self._groups(shard):
            note = self._held.get(self._paths[place])
            counted = None if note is None else note.counted_by(shard)
            rows += sum(group.rows for group in groups if (shard == 0 if counted is None else group.number in counted))
        return rows

    def read_once(self, shards: Sequence[int]) -> None:
        """Read the pushes of several shards into memory, unless they are many: reading a row group has fixed costs."""
        places = (each for shard in shards for each in self._groups(shard))
        groups = {(place, group.number): group for place, own in places for group in own}.values()
        if not groups or sum(group.row_bytes * group.rows for group in groups) > MEMORY_BYTES:
            return
        parts, size = {shard: list[pa.Table]() for shard in shards}, 0
        chosen = [(group, np.isin(group.shard, shards)) for group in groups]
        for part in joined(_in_order(chosen, self._schema), SLICE_ROWS, SORTED_BYTES):
            size += part.nbytes
            if size > MEMORY_BYTES:  # texts that repeat are smaller in the files
                return
            for shard, rows in self._by_shard(part.combine_chunks()):
                parts[shard].append(rows)
        self._in_memory = parts

    def slices(self, shard: int = 0, *, sorted_by_partition: bool = False) -> Iterator[pa.Table]:
        """Yield a shard's pushes. A partition's offsets increase from slice to slice.

        Args:
            sorted_by_partition: also yield all pushes of a partition before those of the next.
        """
        if shard in self._in_memory:
            yield from joined(self._in_memory[shard], SLICE_ROWS)
            return
        groups = [group for _, own in self._groups(shard) for group in own]
        chosen = [(group, group.shard == shard) for group in groups]
        yield from joined(_in_order(chosen, self._schema, sorted_by_partition), SLICE_ROWS)

    def _by_shard(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each shard, in their order. They are copied once, however many shards there are.

        Args:
            rows: columns of one chunk each.
        """
        shard = shards_of(rows[CLIENT].combine_chunks(), self._shards)
        if (shard == shard[0]).all():
            yield int(shard[0]), rows
            return
        order = np.argsort(shard, kind="stable")
        sorted_rows, sorted_shard = rows.take(pa.array(order)), shard[order]
        bounds = [0, *(np.flatnonzero(np.diff(sorted_shard)) + 1).tolist(), len(order)]
        for first, last in pairwise(bounds):
            yield int(sorted_shard[first]), sorted_rows.slice(first, last - first)

    def _groups(self, shard: int) -> list[tuple[int, list[_Group]]]:
        """The row groups that may have pushes of a shard, by the place of their file among the paths."""
        if shard not in self._found:
            self._found[shard] = list(self._find(shard))
        return self._found[shard]

    def _find(self, shard: int) -> Iterator[tuple[int, list[_Group]]]:
        for place, path in enumerate(self._paths):
            note = self._held.get(path)
            wanted = None if note is None else note.of(shard)
            if wanted is None or wanted:
                if path not in self._files:
                    self._files[path] = _File(self._filesystem.open_input_file(f"{self._root}/{path}"), self._shards)
                yield place, list(self._files[path].groups(wanted))


def _in_order(
    chosen: Sequence[tuple[_Group, Bools]], schema: pa.Schema, sorted_by_partition: bool = False
) -> Iterator[pa.Table]:
    """The rows of row groups that are chosen, in the order of `PushFiles.slices`, in parts of any size."""
    chosen = sorted(chosen, key=lambda each: each[0].first)
    if _is_in_order(chosen, sorted_by_partition):
        for group, mine in chosen:
            yield from group.slices(mine, schema)
    else:  # the files come from another writer
        yield from _merged(chosen, schema)


def joined(parts: Iterable[pa.Table], most: int, most_bytes: int | None = None) -> Iterator[pa.Table]:
    """Join parts up to `most` rows or `most_bytes` bytes (None: `SLICE_BYTES`); a larger part is one by itself."""
    most_bytes = SLICE_BYTES if most_bytes is None else most_bytes
    waiting: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        if waiting and (rows + part.num_rows > most or size + part.nbytes > most_bytes):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


class _File:
    """A file of pushes, whose row groups are known once they were asked for."""

    def __init__(self, stream: pa.NativeFile, shards: int) -> None:
        self._file, self._shards = pq.ParquetFile(stream, buffer_size=READ_BYTES), shards
        self._groups: dict[int, _Group] = {}

    def groups(self, wanted: Sequence[int] | None) -> Iterator[_Group]:
        """The row groups of these numbers, or all; without those that have no rows."""
        for number in range(self._file.metadata.num_row_groups) if wanted is None else wanted:
            if number not in self._groups:
                self._groups[number] = _Group(self._file, number, self._shards)
            if self._groups[number].rows:
                yield self._groups[number]


class _Group:
    """A row group, with the shards, partitions and offsets of its pushes."""

    def __init__(self, file: pq.ParquetFile, number: int, shards: int) -> None:
        keys = _with_columns(file.read_row_group(number, KEYS.names), KEYS)
        self.number, self.rows = number, int(keys.num_rows)
        self.shard = shards_of(keys[CLIENT].combine_chunks(), shards)
        self.partition, self.offset = (keys[name].to_numpy().astype(np.int64) for name in ("partition", "offset"))
        self._file = file

    @cached_property
    def order(self) -> Int64s:
        """The rows by partition and offset."""
        return np.lexsort((self.offset, self.partition))

    @property
    def first(self) -> tuple[int, int]:
        """The least partition, and its least offset."""
        return (int(self.partition[self.order[0]]), int(self.offset[self.order[0]])) if self.rows else (0, 0)

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the rows are in this order."""
        return bool((np.diff(self.order) > 0).all())

    @property
    def is_small(self) -> bool:
        """Whether its rows can be sorted in memory."""
        return self.row_bytes * self.rows <= SORTABLE_SLICES * SLICE_BYTES

    def slices(self, mine: Bools, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows that are `mine`, by partition and offset."""
        if not mine.any():
            return
        if self.is_sorted:
            yield from self._chosen(mine, schema)
        else:
            yield from sorted_slices(pa.concat_tables(self._chosen(mine, schema)))

    def _chosen(self, mine: Bools, schema: pa.Schema) -> Iterator[pa.Table]:
        done = 0
        for batch in self.batches(schema, SLICE_BYTES):
            chosen = mine[done : done + batch.num_rows]
            done += batch.num_rows
            if chosen.any():
                yield batch if chosen.all() else batch.filter(pa.array(chosen))

    def batches(self, schema: pa.Schema, size: int) -> Iterator[pa.Table]:
        """All rows, in batches of about `size` bytes, estimated from the mean row size."""
        rows = max(1, min(SLICE_ROWS, int(size / max(1, self.row_bytes))))
        own = set(self._file.schema_arrow.names)
        names = [name for name in schema.names if name in own]
        for batch in self._file.iter_batches(rows, [self.number], names):
            yield _with_columns(pa.Table.from_batches([batch]), schema)

    @cached_property
    def row_bytes(self) -> float:
        """Mean size of a row in bytes, most of it payload."""
        group = self._file.metadata.row_group(self.number)
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
        last = min(first + SLICE_ROWS, max(first + 1, int(np.searchsorted(size, done + SLICE_BYTES, "right"))))
        yield wide.take(order[first:last]).cast(pushes.schema).combine_chunks()
        first = last


def _is_in_order(chosen: Sequence[tuple[_Group, Bools]], sorted_by_partition: bool) -> bool:
    """Whether the offsets of each partition increase from row group to row group, each of which is in order or small.

    Args:
        sorted_by_partition: the partitions must increase, too.
    """
    if not all(group.is_sorted or group.is_small for group, _ in chosen):
        return False
    none = [np.zeros(0, np.int64)]
    rows = [group.order[mine[group.order]] for group, mine in chosen]
    partition = np.concatenate(none + [group.partition[own] for (group, _), own in zip(chosen, rows, strict=True)])
    offset = np.concatenate(none + [group.offset[own] for (group, _), own in zip(chosen, rows, strict=True)])
    if sorted_by_partition and (np.diff(partition) < 0).any():
        return False
    order = np.argsort(partition, kind="stable")
    same = np.diff(partition[order]) == 0
    return bool((np.diff(offset[order])[same] >= 0).all())
