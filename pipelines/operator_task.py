"""The stateful operator: one task takes one shard's pushes and leaves Parquet files and the shard's next state.

A task is a pure function of its pushes and of the state file that it is told, so a batch that runs again after a crash
gives the same rows. Nothing it writes counts before the driver has committed the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.delta_log import TableFiles
from pipelines.once import IDENTITY, HeldOffsets
from pipelines.push_files import PushFiles
from pipelines.state_chain import ShardFiles
from pipelines.tables import METRIC_POINTS, METRIC_ROLLUPS_1H, METRIC_ROLLUPS_1M, OPERATOR_TABLES, ROWS_OF_PUSHES
from udfs.rollups import HOUR_US, MINUTE_US, RollUp
from udfs.rows import PUSHES_IN
from udfs.shard import Limits, process_changes
from udfs.state import ShardState

# What a task tells the driver: data files as JSON, and the shard's state files now.
TASK_RESULT = "shard int, state array<string>, files array<string>, counts map<string, bigint>"
_RESULT = pa.schema(
    [
        ("shard", pa.int32()),
        ("state", pa.list_(pa.string())),
        ("files", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


@dataclass(frozen=True)
class ShardTask:
    """What every task of a batch needs: plain values, shipped with the task. A row of its input is a shard's number.

    Attributes:
        paths: the batch's files, below the folder of table `pushes`.
        states: shard number to its state files after the batch before; a shard without any starts empty.
        state_folder: where new state files go; they are named by batch and attempt, never overwritten.
        held: pushes whose rows the tables have from before this checkpoint: their state counts, their rows don't.
    """

    lake: str
    batch_id: int
    paths: tuple[str, ...]
    shards: int
    state_folder: str
    states: dict[int, tuple[str, ...]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    held: HeldOffsets | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for shard in batch["id"].to_pylist():
                yield self._run(shard)

    def _run(self, shard: int) -> pa.RecordBatch:
        state_files = ShardFiles(self.state_folder, shard)
        chain = state_files.read(self.states.get(shard, ()))
        state, changed = chain.state, ShardState.empty()
        writers = {table.name: TableFiles(table, self.lake) for table in OPERATOR_TABLES}
        counts: Counter[str] = Counter()
        minutes = RollUp(MINUTE_US)
        for pushes in PushFiles(self.lake, self.paths).slices(shard, self.shards):
            rows, changes = process_changes(pushes, state, self.limits)
            state = state.merge(changes)
            changed = changed.changed_by(changes)
            held = None if self.held is None else self.held.within(pushes)
            for table in ROWS_OF_PUSHES:
                written = getattr(rows, table.name)
                if held is not None:
                    written = without(written, held)
                writers[table.name].write(written)
                counts[table.name] += written.num_rows
                if table is METRIC_POINTS:
                    counts.update(_statuses(written))
                    minutes.add(written)
        writers[METRIC_ROLLUPS_1M.name].write(minutes.table())
        writers[METRIC_ROLLUPS_1H.name].write(minutes.coarser(HOUR_US).table())
        row = {
            "shard": shard,
            "state": list(state_files.write(chain, changed, self.batch_id).names),
            "files": [file.to_json() for writer in writers.values() for file in writer.close()],
            "counts": list(counts.items()),
        }
        return pa.RecordBatch.from_pylist([row], schema=_RESULT)


def without(rows: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows of pushes that `stored` (columns `IDENTITY`) doesn't name: those it names were written long ago."""
    if stored.num_rows == 0 or rows.num_rows == 0:
        return rows

    def keys(table: pa.Table) -> pa.Table:  # a join matches no NULLs, and takes no dictionaries
        plain = table.select(IDENTITY).cast(pa.schema([PUSHES_IN.field(name) for name in IDENTITY]))
        return plain.set_column(1, "cluster_id", pc.fill_null(plain["cluster_id"], ""))

    numbered = keys(rows).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = numbered.join(keys(stored), list(IDENTITY), join_type="left anti")["row"]
    return rows.take(pc.take(kept, pc.sort_indices(kept)))


def _statuses(points: pa.Table) -> dict[str, int]:
    if points.num_rows == 0:
        return {}
    counted = pc.value_counts(points["delta_status"].unify_dictionaries())
    return {f"status:{row['values']}": row["counts"] for row in counted.to_pylist()}
