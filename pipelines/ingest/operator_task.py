"""The stateful operator: a task reads the pushes of some shards and writes Parquet files and the shards' next states.

A task is a pure function of its pushes and of the state files it is given, so a batch that is repeated after a crash
gives the same rows. Readers see nothing that it writes until the driver commits the batch. `run_tasks` runs it in Spark
so that a push that kills its Python worker doesn't stop the job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from kafka_telemetry_lake.pipelines.ingest.compiling import compile_kernels, load_kernels
from kafka_telemetry_lake.pipelines.ingest.placement import Placement
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
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_pushes import StoredOffsets, without
from kafka_telemetry_lake.pipelines.lake.table_files import GatheredTableFiles
from kafka_telemetry_lake.pipelines.quality.batch import BatchChecks
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.python_worker import after_task
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    OPERATOR_TABLES,
    PUSHES,
    ROWS_OF_PUSHES,
)
from kafka_telemetry_lake.udfs.conversion.rollups import HOUR_US, MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows, States, process_parts
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.limits import Limits

Result = TypeVar("Result")
# Limit on the rollup groups in a task's memory. A client that invents metric names adds a group for each.
MOST_GROUPS = 500_000
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
# Texts in Spark's errors when a task's process died, as opposed to raising an error.
DEATHS = ("Python worker exited unexpectedly", "ExecutorLostFailure")
# Columns of `pushes` that name a push; a file lacks one whose values are all NULL.
NAMED = pa.schema([PUSHES.schema.field(name) for name in ("client_instance_id", "topic", "partition", "offset")])
log = logging.getLogger(__name__)


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
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


@cache
def _compile() -> None:
    """Compile the kernels, in children, before any time limit applies."""
    compile_kernels()
    load_kernels()


def _statuses(points: pa.Table) -> dict[str, int]:
    if points.num_rows == 0:
        return {}
    counted = pc.value_counts(points["delta_status"].unify_dictionaries())
    return {f"status:{row['values']}": row["counts"] for row in counted.to_pylist()}


class ProcessedBatch(NamedTuple):
    """What a task has made of its pushes: rows of `TASK_RESULT`, one for each shard. It began at a monotonic time."""

    task: ShardTask
    rows: Sequence[Row]
    began: float


def run_tasks(
    spark: SparkSession, task: ShardTask, workers: int | None = None, placement: Placement | None = None
) -> list[Row]:
    """Run the task for each shard; returns rows of `TASK_RESULT`.

    Args:
        placement: where the shards were processed last; None: tasks run anywhere.
        workers: number of Python workers to use, at most; None: as many as the session has cores.

    Spark's own attempts after the first are guarded. If Spark makes only one attempt (``local[2]``), or all attempts
    died, the tasks run again, guarded from the start.

    Raises:
        PushesFailedError: a guarded task died too.
    """
    placement = placement or Placement(spark)
    cores = spark.sparkContext.defaultParallelism
    tasks = tasks_for(task.shards, cores, workers)
    are_apart = tasks == tasks_for(task.shards, cores)
    while True:
        how = ", each tried first" if task.guarded else ""
        try:
            with named(
                spark, f"points: batch {task.batch_id}: judge {len(task.paths)} files, {task.shards} shards{how}"
            ):
                results = placement.shards(task.shards, tasks).mapInArrow(task, TASK_RESULT)
                return placement.collect(results, are_apart=are_apart)
        except (Py4JJavaError, PySparkException) as error:
            if not is_death(error):
                raise
            if task.guarded:
                raise PushesFailedError(
                    f"{pushes_of(task)}: a task's process died although its pushes were tried first"
                ) from error
        log.warning("points: a task's process died, isolating the push that caused it: %s", pushes_of(task))
        task = replace(task, guarded=True)


def log_set_aside(batch: str, rows: Sequence[Row | dict[str, Any]]) -> None:
    """Log a line for each push that was set aside, up to `MOST_LINES` per task."""
    for row in rows:
        for line in row["set_aside"]:
            log.warning("%s: set aside in quarantine (PROCESSING_FAILED): %s", batch, line)


def pushes_of(task: ShardTask) -> str:
    """The name of a batch's first push, and how many more there are."""
    filesystem, root = filesystem_of(PUSHES.uri(task.lake))
    paths = [f"{root}/{path}" for path in task.paths]
    keys = pads.dataset(paths, schema=NAMED, filesystem=filesystem, format="parquet").to_table()
    return name_of(keys.sort_by([("partition", "ascending"), ("offset", "ascending")]))


def tasks_for(shards: int, cores: int, workers: int | None = None) -> int:
    """How many tasks judge the shards. Each writes files: there are no more of them than can run at once.

    A task has the shards of one remainder, and so have the landing partitions, which are files: by a divisor of the
    shards, a file is read by fewer tasks.

    Args:
        workers: what the batch is worth, by `store_task.workers_for`; None: a worker for each core.
    """
    most = min(shards, cores)
    if workers is None or workers >= most:
        return most
    divisor = max(number for number in range(1, workers + 1) if shards % number == 0)
    return divisor if 2 * divisor > workers else workers


def is_death(error: Exception) -> bool:
    """Whether a task failed because its process died."""
    return any(text in str(error) for text in DEATHS)
