"""The streams of the job: landing records to `pushes`, statuses to `receiver_health`, `pushes` to the other tables."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipelines.delta_log import DataFile, TableLog
from pipelines.landing import Privacy, to_pushes
from pipelines.once import IDENTITY, SAME, OffsetGuard
from pipelines.operator_task import TASK_RESULT, ShardTask
from pipelines.pipeline_metrics import BatchFacts, PipelineMetrics
from pipelines.push_files import table_paths
from pipelines.quality_batch import broken_rules, told
from pipelines.receiver_status import to_receiver_health
from pipelines.snapshots import Snapshots
from pipelines.sources import Source
from pipelines.state_manifest import StateError, StateFolder
from pipelines.tables import OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES, RECEIVER_HEALTH, TABLES, Table
from udfs.shard import Limits

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = timedelta(days=1)

# Seconds between the starts of two batches; None works off what is there and ends.
Trigger = float | None


@dataclass(frozen=True)
class Lake:
    """Where a job's tables and checkpoints are."""

    path: str
    checkpoints: str
    cluster_id: str | None = None
    privacy: Privacy | None = None

    def create_tables(self) -> None:
        for table in TABLES:
            table.create(self.path)

    def has_pushes(self) -> bool:
        """Whether any landing record was ever stored here."""
        return DeltaTable(PUSHES.uri(self.path)).count() > 0

    def checkpoint(self, stream: str) -> str:
        return f"{self.checkpoints.rstrip('/')}/{stream}"


def start_pushes(spark: SparkSession, lake: Lake, source: Source, trigger: Trigger) -> StreamingQuery:
    """Landing records -> `pushes`, natively; each offset once, also when another checkpoint reads it again."""
    rows = to_pushes(source.pushes(spark), source.name, lake.cluster_id, lake.privacy)
    return start_appending(rows, PUSHES, spark, lake, source, trigger)


def start_statuses(spark: SparkSession, lake: Lake, source: Source, trigger: Trigger) -> StreamingQuery:
    """Receiver statuses -> `receiver_health`; malformed ones are told in the column `problem`."""
    rows = to_receiver_health(source.statuses(spark), source.name)
    return start_appending(rows, RECEIVER_HEALTH, spark, lake, source, trigger)


def start_points(
    spark: SparkSession, lake: Lake, state: StateFolder, limits: Limits, trigger: Trigger, max_bytes_per_trigger: str,
    metrics: PipelineMetrics | None = None,
) -> StreamingQuery:  # fmt: skip
    """`pushes` -> the operator's tables: one task for each shard, which reads the batch's files itself.

    A batch's order of events: tasks leave files and states; the manifest names the states; one commit per table makes
    the rows visible; Spark marks the batch done. Killed anywhere between, the batch runs again from the manifest before
    it, gives the same rows, and the tables that have its ``txnVersion`` skip it.
    """
    guard = OffsetGuard.load(spark, PUSH_OUTCOMES.uri(lake.path), lake.checkpoint("points"))
    if state.last() is None:
        _check_rebuild(spark, lake, guard)
    pushes = (
        spark.readStream.format("delta")
        .option("ignoreDeletes", "true")
        .option("skipChangeCommits", "true")
        .option("maxBytesPerTrigger", max_bytes_per_trigger)
        .load(PUSHES.uri(lake.path))
        .select(F.input_file_name().alias("file"))  # all that goes through the JVM
    )
    held = guard.held()
    logs = [TableLog(table, lake.path) for table in OPERATOR_TABLES]
    snapshots = Snapshots(lake.checkpoints)

    def run(batch: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        manifest = state.before(batch_id)
        named = batch.coalesce(1).agg(F.collect_set("file")).collect()  # one task, no shuffle
        paths = table_paths(sorted(named[0][0]))
        task = ShardTask(lake.path, batch_id, tuple(paths), state.shards, state.uri, manifest.states, limits, held)
        shards = spark.range(0, state.shards, 1, state.shards)
        results = shards.mapInArrow(task, TASK_RESULT).collect()
        state.write(manifest.after(batch_id, {row["shard"]: row["state"] for row in results}))
        files = [DataFile.from_json(text) for row in results for text in row["files"]]
        app_id = app_id_of(batch, "points")
        for table_log in logs:
            table_log.commit([file for file in files if file.table == table_log.table.name], app_id, batch_id)
        now = datetime.now(UTC)
        if snapshots.due(now, SNAPSHOT_EVERY):
            versions = {table_log.table.name: table_log.version for table_log in logs}
            snapshots.take(now, state.before(batch_id + 1), state.uri, versions)
        counts: Counter[str] = Counter()
        for row in results:
            counts.update(row["counts"])
        broken = broken_rules(counts)
        for line in told(broken):
            log.error("points: batch %d breaks a rule of %s", batch_id, line)
        if metrics is not None:
            metrics.tell("points", batch_id, _facts(counts, files, state, broken))
        _report(batch_id, counts, time.monotonic() - began)

    return start_batches(pushes, "points", lake, trigger, run)


def start_batches(
    rows: DataFrame, stream: str, lake: Lake, trigger: Trigger, run: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start a stream that gives each micro-batch and its number to `run`; its checkpoint has the stream's name."""
    return _writer(rows, stream, lake, trigger).foreachBatch(run).start()


def _writer(rows: DataFrame, stream: str, lake: Lake, trigger: Trigger) -> DataStreamWriter:
    writer = rows.writeStream.queryName(stream).option("checkpointLocation", lake.checkpoint(stream))
    return writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=f"{trigger} seconds")


def start_appending(
    rows: DataFrame, table: Table, spark: SparkSession, lake: Lake, source: Source, trigger: Trigger
) -> StreamingQuery:
    """Append by Delta's own sink; where an offset may come twice, batch by batch against what the table holds.

    Which of the two is settled when a checkpoint begins, so a batch that runs again finds its own ``txn``.
    """
    guard = OffsetGuard.load(spark, table.uri(lake.path), lake.checkpoint(table.name))
    if not source.may_repeat and not guard.before_checkpoint:
        # Without foreachBatch no row is copied on its way, and no task generates code for that.
        return _writer(rows, table.name, lake, trigger).format("delta").start(table.uri(lake.path))

    def run(batch: DataFrame, batch_id: int) -> None:
        (
            guard.unstored(batch, source.may_repeat)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", app_id_of(batch, table.name))
            .option("txnVersion", batch_id)
            .save(table.uri(lake.path))
        )

    return start_batches(rows, table.name, lake, trigger, run)


def _check_rebuild(spark: SparkSession, lake: Lake, guard: OffsetGuard) -> None:
    """A new checkpoint over a lake with points starts from empty state: it must see every push again to be right."""
    if not guard.before_checkpoint:
        return
    judged = guard.stored(spark, guard.before_checkpoint).alias("held")
    there = spark.read.format("delta").load(PUSHES.uri(lake.path)).select(*IDENTITY).alias("new")
    gone = judged.join(there, F.expr(SAME), "left_anti").count()
    if gone:
        raise StateError(
            f"the checkpoint of the points stream is new, but this lake holds points of {gone} pushes that table "
            "pushes no longer has: their counters can't be carried on. Restore the checkpoint folder from its backup, "
            "or ingest into a new lake folder"
        )
    log.info(
        "points: new checkpoint on a lake with points: state is rebuilt from table pushes, no row is written twice"
    )


def app_id_of(batch: DataFrame, stream: str) -> str:
    """The checkpoint's own id: another checkpoint counts its batches from 0, and must not be taken for this one."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return f"kafka-telemetry-lake:{stream}:{query_id}"


def _facts(counts: Counter[str], files: list[DataFile], state: StateFolder, broken: Mapping[str, int]) -> BatchFacts:
    landed = [json.loads(file.stats)["maxValues"]["landed_at"] for file in files if file.table == PUSH_OUTCOMES.name]
    statuses = {name.removeprefix("status:"): n for name, n in counts.items() if name.startswith("status:")}
    latest = datetime.fromisoformat(max(landed).replace("Z", "+00:00")) if landed else None
    return BatchFacts(counts["metric_points"], counts["quarantine"], statuses, latest, state.size(), broken)


def _report(batch_id: int, counts: Counter[str], seconds: float) -> None:
    pushes, points = counts["push_outcomes"], counts["metric_points"]
    statuses = ", ".join(
        f"{number:,} {name.removeprefix('status:')}"
        for name, number in counts.most_common()
        if name.startswith("status:")
    )
    log.info(
        "points: batch %d: %s pushes, %s points (%s), %s quarantined, %.1f s, %s points/s",
        batch_id, f"{pushes:,}", f"{points:,}", statuses or "none", f"{counts['quarantine']:,}", seconds,
        f"{points / max(seconds, 0.001):,.0f}",
    )  # fmt: skip
