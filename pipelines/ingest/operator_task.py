"""The stateful operator: a task reads the pushes of some shards and writes Parquet files and the shards' next states.

A task is a pure function of its pushes and of the state files it is given, so a batch that is repeated after a crash
gives the same rows. Readers see nothing that it writes until the driver commits the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.ingest.poison_pushes import (
    Isolation,
    PushesFailedError,
    blaming,
    in_child,
    limit_by_size,
    name_of,
    processor_limit,
    task_limit,
)
from kafka_telemetry_lake.pipelines.ingest.push_files import PushFiles
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, StoredOffsets
from kafka_telemetry_lake.pipelines.lake.table_files import GatheredTableFiles
from kafka_telemetry_lake.pipelines.quality.batch import BatchChecks
from kafka_telemetry_lake.pipelines.runtime.python_worker import after_task
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    OPERATOR_TABLES,
    ROWS_OF_PUSHES,
)
from kafka_telemetry_lake.udfs.conversion.rollups import HOUR_US, MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows, States, process_parts
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.kernels.compiled import COMPILES
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.otlp import decode
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

Result = TypeVar("Result")
# Limit on the rollup groups in a task's memory. A client that invents metric names adds a group for each.
MOST_GROUPS = 500_000
FUNCTIONS = 125  # that `compile_kernels` compiles
# What a task returns to the driver, a row for each shard: data files as JSON, the shard's new state files, counts, log
# lines. The last row has the files and counts of all shards of the task.
TASK_RESULT = "shard int, state array<string>, files array<string>, counts map<string, bigint>, set_aside array<string>"
TASK_RESULT_TYPE = pa.struct(
    [
        ("shard", pa.int32()),
        ("state", pa.list_(pa.string())),
        ("files", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("set_aside", pa.list_(pa.string())),
    ]
)
_RESULT = pa.schema(list(TASK_RESULT_TYPE))


@dataclass(frozen=True)
class ShardTask(WorkerTask):
    """The task that processes a batch, as plain values that Spark can ship. Each row of its input is a shard number.

    Attributes:
        paths: the batch's files, relative to the folder of table `pushes`.
        held: which shards have pushes in them, where it is known: a shard opens no others.
        states: state files of each shard after the previous batch; a shard without any starts with empty state.
        state_folder: folder of new state files. Their names contain batch and attempt; no file is overwritten.
        stored_before: pushes whose rows were stored before this checkpoint. They update the state, but their rows are
            not written again.
        guarded: run pushes in a trial before they are processed, and set aside those that fail (`poison_pushes`). An
            attempt that follows a failed one is always guarded.
    """

    lake: str
    batch_id: int
    paths: tuple[str, ...]
    shards: int
    state_folder: str
    states: dict[int, tuple[str, ...]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    stored_before: StoredOffsets | None = None
    guarded: bool = False
    held: dict[str, HeldShards] = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield attempted(partial(self._attempt, batch["id"].to_pylist()), guarded=self.guarded)
            after_task()

    def _attempt(self, shards: Sequence[int], guarded: bool) -> pa.RecordBatch:
        writers = {table.name: GatheredTableFiles(table, self.lake) for table in OPERATOR_TABLES}
        results = TaskResults(writers)
        pushes = PushFiles(self.lake, self.paths, self.shards, self.held)
        if len(shards) > 1:
            pushes.read_once(shards)
        rows: list[dict[str, Any]] = []
        for shard in shards:
            state_files = ShardFiles(self.state_folder, shard)
            chain = state_files.read(self.states.get(shard, ()))
            results.counts["state_bytes_read"] += state_files.bytes_read
            results.counts["in_files"] += pushes.rows(shard)
            conversion = PushConversion(chain.state, results, self.limits, self.shards)
            conversion.run(pushes.slices(shard), self.stored_before, guarded=guarded)
            changes = conversion.state.changes(conversion.changed)
            names = state_files.write(chain, changes, self.batch_id).names
            lines = conversion.isolation.lines
            rows.append({"shard": shard, "state": list(names), "files": [], "counts": [], "set_aside": lines})
        if rows:
            # What waited is written now; a guarded attempt has tried to write the rows of each push before.
            with blaming(lambda: f"pushes of shards {', '.join(map(str, shards))}"):
                processor_limit(0.0 if guarded else task_limit(self.limits))
                results.close()
                files = [file.to_json() for writer in writers.values() for file in writer.close()]
            rows[-1] |= {"files": files, "counts": list(results.counts.items())}
        return pa.RecordBatch.from_pylist(rows, schema=_RESULT)


def attempted(attempt: Callable[[bool], Result], *, guarded: bool = False) -> Result:
    """Let a task attempt its work: guarded if asked for, or if Spark has tried it before, or if it fails otherwise.

    Args:
        attempt: does the work from its beginning; its argument says whether it is to be guarded.
    """
    _compile()
    guarded = guarded or was_tried_before()
    try:
        return attempt(guarded)
    except PushesFailedError:
        if guarded:
            raise
    finally:
        processor_limit(0)
    return attempt(True)


class PushConversion(Generic[States]):
    """Converts the pushes of one shard, slice by slice, and sets aside those that fail.

    Attributes:
        state: of the shard, after the pushes so far.
        isolation: which pushes were set aside.
    """

    def __init__(self, state: States, results: TaskResults, limits: Limits, shards: int) -> None:
        self.state, self._results, self._limits, self._shards = state, results, limits, shards
        self._changed: list[Int64s] = [np.zeros(0, np.int64)]
        self.isolation = Isolation(lambda pushes: in_child(lambda: self._rehearse(pushes), limits))

    @property
    def changed(self) -> Int64s:
        """The clients whose state has changed; some more than once."""
        return np.concatenate(self._changed)

    def run(self, slices: Iterable[pa.Table], stored_before: StoredOffsets | None = None, *, guarded: bool) -> None:
        """Convert pushes, in the order of partition and offset, and hand their rows to the results.

        Args:
            slices: schema `PUSHES_IN`.
            stored_before: as `ShardTask` has it.
            guarded: as `ShardTask` has it.
        """
        limit_s = 0.0 if guarded else task_limit(self._limits)
        for pushes in slices:
            self._results.checks.read(pushes)
            for part in self.isolation.sound_parts(pushes) if guarded else [pushes]:
                stored = None if stored_before is None else stored_before.within(part)
                with blaming(partial(name_of, part)):
                    processor_limit(limit_s)
                    for rows, changes, after in process_parts(part, self.state, self._limits.of_shard(self._shards)):
                        self.state = after
                        self._changed.append(changes.client_columns().client)
                        self._results.add(rows, stored)
                        processor_limit(limit_s)
            processor_limit(0)
        self._results.counts["set_aside"] += self.isolation.pushes

    def _rehearse(self, pushes: pa.Table) -> None:
        """Process pushes as an attempt would, but write files in memory. Runs in a child process."""
        limit_by_size(pushes, self._limits)
        writers = {table.name: GatheredTableFiles(table, "", in_memory=True) for table in OPERATOR_TABLES}
        rehearsed = TaskResults(writers, self._results.minutes)
        for rows, changes, _ in process_parts(pushes, self.state, self._limits.of_shard(self._shards)):
            rehearsed.add(rows, None)
            changes.to_bytes()
        rehearsed.close()
        for writer in writers.values():
            writer.close()


class TableWriter(Protocol):
    """Takes rows of one table."""

    def write(self, rows: pa.Table) -> None:
        """Add rows with the table's columns, without the partition; text may be dictionary-encoded."""


class TaskResults:
    """A task's results so far: rows on their way to the writers of `OPERATOR_TABLES`, rollups and counts."""

    def __init__(self, writers: Mapping[str, TableWriter], minutes: RollUp | None = None) -> None:
        self._writers = writers
        self.counts: Counter[str] = Counter()
        self.checks = BatchChecks()
        self.minutes = RollUp(MINUTE_US) if minutes is None else minutes

    def add(self, rows: ShardRows, stored: pa.Table | None) -> None:
        """Add the rows of a part, except those of the pushes in `stored` (columns `IDENTITY`)."""
        self.counts["judged"] += rows.push_outcomes.num_rows
        for table in ROWS_OF_PUSHES:
            written = getattr(rows, table.name)
            if stored is not None:
                written = without(written, stored)
            self._writers[table.name].write(written)
            self.checks.write(table, written)
            self.counts[table.name] += written.num_rows
            if table is METRIC_POINTS:
                self.counts.update(_statuses(written))
                self.minutes.add(written)
        if self.minutes.size > MOST_GROUPS or self.minutes.is_large:  # readers add up several rows of one key
            self._write_rollups()

    def close(self) -> None:
        """Write what is left, and count what the checks have found."""
        self._write_rollups()
        self.counts.update(self.checks.counts())

    def _write_rollups(self) -> None:
        self._writers[METRIC_ROLLUPS_1M.name].write(self.minutes.table())
        self._writers[METRIC_ROLLUPS_1H.name].write(self.minutes.coarser(HOUR_US).table())
        self.minutes = RollUp(MINUTE_US)


def was_tried_before() -> bool:
    """Whether this is a repeated attempt of a Spark task: a push may have killed the first."""
    from pyspark import TaskContext  # noqa: PLC0415  # only Spark's workers need it; tasks also run without Spark

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


@cache
def _compile() -> None:
    """Compile the kernels, in children, before any time limit applies."""
    compile_kernels()
    load_kernels()


def compile_kernels(progress: Callable[[int], None] | None = None) -> None:
    """Compile what neither the package nor the cache of this user has, in a child on each of two cores.

    Without numba, or if a child fails, less is compiled: `numba_cache.is_filled` says whether all is.

    Args:
        progress: called now and then with the number of functions that have been compiled, of about `FUNCTIONS`.
    """
    if COMPILES:
        numba_cache.fill(decode.load, _convert, progress=progress)


def load_kernels() -> None:
    """Load every kernel of a task; one worker of a machine at a time compiles those that the cache lacks."""
    decode.load()
    _convert()


def _convert() -> None:
    """Load the kernels of a task but those that decode."""
    with numba_cache.exclusive("conversion"):
        shards_of(pa.array(["x"]), 1)
        for rows, _, _ in process_parts(PUSHES_IN.empty_table(), ShardState.empty()):
            RollUp(MINUTE_US).add(rows.metric_points)


def without(rows: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows whose pushes are not in `stored` (columns `IDENTITY`)."""
    if stored.num_rows == 0 or rows.num_rows == 0:
        return rows

    def keys(table: pa.Table) -> pa.Table:  # Arrow's join doesn't match NULLs and doesn't accept dictionaries
        plain = table.select(IDENTITY).cast(pa.schema([PUSHES_IN.field(name) for name in IDENTITY]))
        return plain.set_column(1, "cluster_id", pc.fill_null(plain["cluster_id"], ""))

    numbered = keys(rows).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    unstored = numbered.join(keys(stored), list(IDENTITY), join_type="left anti")["row"]
    return rows.take(pc.take(unstored, pc.sort_indices(unstored)))


def _statuses(points: pa.Table) -> dict[str, int]:
    if points.num_rows == 0:
        return {}
    counted = pc.value_counts(points["delta_status"].unify_dictionaries())
    return {f"status:{row['values']}": row["counts"] for row in counted.to_pylist()}
