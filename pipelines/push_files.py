"""What a task reads: its shard's pushes from the files of table `pushes`, in slices that fit in memory.

Tasks read the Parquet files themselves, so a payload goes through the JVM once, on its way into the table. The price is
that every shard looks at every file of a batch: at the ids only, where the landing topic's partitions fit the shards
(`udfs.sharding`), else at all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipelines.delta_log import lake_uri
from pipelines.tables import PUSHES, Table
from udfs.rows import PUSHES_IN
from udfs.sharding import shards_of

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Landed payload bytes that are worked on at a time. Larger slices are slower: their columns fall out of the caches.
SLICE_BYTES = 64 << 20
SLICE_ROWS = 8192
CLIENT = "client_instance_id"


def table_paths(uris: Sequence[str], table: Table = PUSHES) -> list[str]:
    """Paths below the table's folder, as Delta's log has them, of the URIs that Spark calls the files by."""
    return [unquote(uri).rpartition(f"/{table.name}/")[2] for uri in uris]


class PushFiles:
    """The files of one batch.

    Args:
        lake: folder or URI of the lake.
        paths: below the folder of table `pushes`.
    """

    def __init__(self, lake: str, paths: Sequence[str]) -> None:
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(PUSHES.uri(lake)))
        groups = [group for path in paths for group in _groups(filesystem.open_input_file(f"{root}/{path}"))]
        self._groups = sorted(groups, key=lambda group: (group.partition[0], group.offset[0]))

    @property
    def rows(self) -> int:
        """The pushes of all shards."""
        return sum(len(group.ids) for group in self._groups)

    def slices(self, shard: int, shards: int) -> Iterator[pa.Table]:
        """The shard's pushes, columns `PUSHES_IN`; a partition's offsets rise from slice to slice."""
        chosen = [(group, shards_of(group.ids, shards) == shard) for group in self._groups]
        if _in_order(chosen):
            for group, mine in chosen:
                yield from group.slices(mine)
            return
        # Files of another writer, or compacted ones: put in order in memory.
        pushes = pa.concat_tables([part for group, mine in chosen for part in group.slices(mine)])
        pushes = pushes.sort_by([("partition", "ascending"), ("offset", "ascending")])
        size = max(1, min(SLICE_ROWS, SLICE_BYTES * pushes.num_rows // max(1, pushes.nbytes)))
        for first in range(0, pushes.num_rows, size):
            yield pushes.slice(first, size).combine_chunks()


@dataclass(frozen=True)
class _Group:
    """A row group, with what tells whose pushes it holds."""

    file: pq.ParquetFile
    number: int
    ids: pa.Array
    partition: Int64s
    offset: Int64s

    def slices(self, mine: Bools) -> Iterator[pa.Table]:
        """The rows that are `mine`, columns `PUSHES_IN`."""
        if not mine.any():
            return
        done = 0
        for batch in self.file.iter_batches(self._slice_rows(), [self.number], PUSHES_IN.names):
            chosen = mine[done : done + batch.num_rows]
            done += batch.num_rows
            if chosen.any():
                rows = batch if chosen.all() else batch.filter(pa.array(chosen))
                yield pa.Table.from_batches([rows]).select(PUSHES_IN.names).cast(PUSHES_IN)

    def _slice_rows(self) -> int:
        """Rows of which the payloads are about `SLICE_BYTES`, by their mean."""
        about = self.file.metadata.row_group(self.number)
        size = sum(int(about.column(i).total_uncompressed_size) for i in range(about.num_columns))
        return max(1, min(SLICE_ROWS, SLICE_BYTES * int(about.num_rows) // max(1, size)))


def _groups(stream: pa.NativeFile) -> Iterator[_Group]:
    file = pq.ParquetFile(stream)
    for number in range(file.metadata.num_row_groups):
        keys = file.read_row_group(number, [CLIENT, "partition", "offset"])
        if keys.num_rows:
            partition, offset = (keys[name].to_numpy().astype(np.int64) for name in ("partition", "offset"))
            yield _Group(file, number, keys[CLIENT].combine_chunks(), partition, offset)


def _in_order(chosen: Sequence[tuple[_Group, Bools]]) -> bool:
    """Whether each partition's offsets rise all along."""
    none = [np.zeros(0, np.int64)]
    partition = np.concatenate(none + [group.partition[mine] for group, mine in chosen])
    offset = np.concatenate(none + [group.offset[mine] for group, mine in chosen])
    order = np.argsort(partition, kind="stable")
    same = np.diff(partition[order]) == 0
    return bool((np.diff(offset[order])[same] >= 0).all())
