"""The stateful operator: one task takes one shard's pushes and leaves Parquet files and the shard's next state.

A task is a pure function of its pushes and of the state file that it is told, so a batch that runs again after a crash
gives the same rows. Nothing it writes counts before the driver has committed the batch.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.delta_log import TableFiles
from pipelines.once import IDENTITY, HeldOffsets
from pipelines.push_files import PushFiles
from pipelines.quality_batch import BatchChecks
from pipelines.state_chain import ShardFiles
from pipelines.tables import METRIC_POINTS, METRIC_ROLLUPS_1H, METRIC_ROLLUPS_1M, OPERATOR_TABLES, ROWS_OF_PUSHES
from udfs.rollups import HOUR_US, MINUTE_US, RollUp
from udfs.rows import PUSHES_IN
from udfs.shard import Limits, process_parts
from udfs.state import ShardState

# Groups of rollups that a task holds in memory: made-up metric names each have one.
MOST_GROUPS = 500_000
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
                _keep_modules()

    def _run(self, shard: int) -> pa.RecordBatch:
        state_files = ShardFiles(self.state_folder, shard)
        chain = state_files.read(self.states.get(shard, ()))
        state, changed = chain.state, ShardState.empty()
        writers = {table.name: TableFiles(table, self.lake) for table in OPERATOR_TABLES}
        counts: Counter[str] = Counter()
        minutes = RollUp(MINUTE_US)
        files, checks = PushFiles(self.lake, self.paths), BatchChecks()
        if shard == 0:  # all shards look at the same files
            counts["in_files"] = files.rows
        for pushes in files.slices(shard, self.shards):
            checks.read(pushes)
            held = None if self.held is None else self.held.within(pushes)
            for rows, changes, after in process_parts(pushes, state, self.limits):
                state, changed = after, changed.changed_by(changes)
                counts["judged"] += rows.push_outcomes.num_rows
                for table in ROWS_OF_PUSHES:
                    written = getattr(rows, table.name)
                    if held is not None:
                        written = without(written, held)
                    writers[table.name].write(written)
                    checks.write(table, written)
                    counts[table.name] += written.num_rows
                    if table is METRIC_POINTS:
                        counts.update(_statuses(written))
                        minutes.add(written)
                if minutes.size > MOST_GROUPS:  # rows of one key add up
                    _write_rollups(minutes, writers)
                    minutes = RollUp(MINUTE_US)
        _write_rollups(minutes, writers)
        counts.update(checks.counts())
        row = {
            "shard": shard,
            "state": list(state_files.write(chain, changed, self.batch_id).names),
            "files": [file.to_json() for writer in writers.values() for file in writer.close()],
            "counts": list(counts.items()),
        }
        return pa.RecordBatch.from_pylist([row], schema=_RESULT)


def _write_rollups(minutes: RollUp, writers: Mapping[str, TableFiles]) -> None:
    writers[METRIC_ROLLUPS_1M.name].write(minutes.table())
    writers[METRIC_ROLLUPS_1H.name].write(minutes.coarser(HOUR_US).table())


@cache
def _keep_modules() -> None:
    """Spark's worker collects garbage after each task: 0.09 CPU-s to look at modules that live as long as it does."""
    gc.collect()
    gc.freeze()


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
