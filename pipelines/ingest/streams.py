"""The streams of the job: landing records to `pushes` and the operator's tables, statuses to `receiver_health`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafka_telemetry_lake.pipelines.ingest.checkpoint import begun_batch
from kafka_telemetry_lake.pipelines.ingest.landing import to_pushes
from kafka_telemetry_lake.pipelines.ingest.operator import SMALL_BYTES, Operator
from kafka_telemetry_lake.pipelines.ingest.receiver_status import to_receiver_health
from kafka_telemetry_lake.pipelines.ingest.sources import Source
from kafka_telemetry_lake.pipelines.ingest.store_task import store
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, RECEIVER_HEALTH, TABLES
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri

# Seconds between the starts of two batches; None processes the available records and ends.
Trigger = float | None


@dataclass(frozen=True)
class Lake:
    """Where a job's tables and checkpoints are, and how it stores records there."""

    path: str
    checkpoints: str
    cluster_id: str | None = None
    privacy: Privacy | None = None

    def create_tables(self) -> None:
        for table in TABLES:
            table.create(self.path)

    def has_pushes(self) -> bool:
        """Whether the lake has any landing records."""
        return DeltaTable(PUSHES.uri(self.path)).count() > 0

    def checkpoint(self, stream: str) -> str:
        return table_uri(self.checkpoints, stream)


def start_pushes(
    spark: SparkSession, lake: Lake, source: Source, trigger: Trigger, operator: Operator
) -> StreamingQuery:
    """Landing records -> `pushes` -> the operator's tables; each offset once, also under another checkpoint.

    A batch first commits its pushes. One that was cut off after that runs again without reading them: the operator
    follows the table.
    """
    guard = OffsetGuard.load(spark, PUSHES.uri(lake.path), lake.checkpoint(PUSHES.name))
    table_log = TableLog(PUSHES, lake.path)
    begun = begun_batch(lake.checkpoint(PUSHES.name))  # only this one may be stored already
    rows = to_pushes(source.pushes(spark), source.name, lake.cluster_id, lake.privacy)

    processes: int | None = None  # of the next batch, by the size of the last one

    def run(batch: DataFrame, batch_id: int) -> None:
        nonlocal processes
        app_id = app_id_of(batch, PUSHES.name)
        if batch_id != begun or not _is_stored(table_log, app_id, batch_id):
            files = store(guard.unstored(batch, source.may_repeat), lake.path, processes)
            processes = 1 if sum(file.size for file in files) < SMALL_BYTES else None
            table_log.commit(files, app_id, batch_id)
        operator.catch_up(table_log.version)

    return start_batches(rows, PUSHES.name, lake, trigger and source.poll_s(trigger), run)


def _is_stored(table_log: TableLog, app_id: str, batch_id: int) -> bool:
    """Whether a batch is in the table, perhaps by Delta's own sink, as an earlier release stored it."""
    app_ids = (app_id, app_id.rpartition(":")[2])
    versions = [table_log.transaction_version(each) for each in app_ids]
    return any(version is not None and version >= batch_id for version in versions)


def start_statuses(spark: SparkSession, lake: Lake, source: Source, trigger: Trigger) -> StreamingQuery:
    """Receiver statuses -> `receiver_health`. The text of a malformed one is in column `problem`."""
    rows = to_receiver_health(source.statuses(spark), source.name)
    return start_appending(rows, RECEIVER_HEALTH, spark, lake, source, trigger)


def start_batches(
    rows: DataFrame, stream: str, lake: Lake, trigger: Trigger, run: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start a stream that calls `run` with each micro-batch and its number. Its checkpoint has the stream's name."""
    return _writer(rows, stream, lake, trigger).foreachBatch(run).start()


def _writer(rows: DataFrame, stream: str, lake: Lake, trigger: Trigger) -> DataStreamWriter:
    writer = rows.writeStream.queryName(stream).option("checkpointLocation", lake.checkpoint(stream))
    return writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=f"{trigger} seconds")


def start_appending(
    rows: DataFrame, table: Table, spark: SparkSession, lake: Lake, source: Source, trigger: Trigger
) -> StreamingQuery:
    """Append rows with Delta's sink or, if offsets may repeat, batch by batch without the rows already stored.

    The choice doesn't change during a checkpoint's life, so a repeated batch finds its own ``txn`` in the log.
    """
    guard = OffsetGuard.load(spark, table.uri(lake.path), lake.checkpoint(table.name))
    if not source.may_repeat and not guard.before_checkpoint:
        # Without foreachBatch Spark doesn't copy each row, nor generate code to copy it.
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


def app_id_of(batch: DataFrame, stream: str) -> str:
    """Application id of a stream's commits. It has the query's id because every checkpoint numbers batches from 0."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return f"kafka-telemetry-lake:{stream}:{query_id}"
