"""The stream of the job: landing records to the tables that store them, and pushes on to the operator's tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, begun_batch, landing_name
from kafka_telemetry_lake.pipelines.ingest.landing_rows import OTHERS, landing_rows
from kafka_telemetry_lake.pipelines.ingest.lost_records import KafkaCluster, LostRecords
from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog, entries
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.replaced_topics import guard_folder, take_over
from kafka_telemetry_lake.pipelines.ingest.sources import KafkaSource, Source, Topics
from kafka_telemetry_lake.pipelines.ingest.store_task import STORED, Stored, store, workers_for
from kafka_telemetry_lake.pipelines.ingest.unreadable_records import is_overflow, read_records
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard, unstored
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.worker_task import OtherReleaseError
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, RECEIVER_HEALTH, TABLES
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri
from kafka_telemetry_lake.udfs.errors import CannotRunError

# Seconds between the starts of two batches; None processes the available records and ends.
Trigger = float | None


@dataclass(frozen=True)
class Lake:
    """Where a job's tables and checkpoints are, and how it stores records there."""

    path: str
    checkpoints: str
    cluster_id: str | None = None
    privacy: Privacy | None = None
    fence: Fence | None = None  # the claim under which it is written

    def create_tables(self) -> dict[str, DeltaTable]:
        """Create the tables that the lake lacks; returns all of them by name, open.

        Raises:
            OtherFormatError: a table has another format; none is created.
        """
        tables = (*TABLES, LOST_RECORDS)
        opened = {table.name: table.open(self.path) for table in tables}
        return {table.name: opened[table.name] or table.create(self.path) for table in tables}

    def has_pushes(self) -> bool:
        """Whether the lake has any landing records."""
        return DeltaTable(PUSHES.uri(self.path)).count() > 0

    def checkpoint(self, stream: str) -> str:
        return table_uri(self.checkpoints, stream)

    @property
    def landing(self) -> str:
        """The checkpoint of the query that reads the landing topics."""
        return self.checkpoint(landing_name(self.checkpoints))


def start_landing(
    spark: SparkSession, lake: Lake, source: Source, trigger: Trigger, operator: Operator
) -> StreamingQuery:
    """Landing records -> `pushes`, `receiver_health`, `quota_samples` -> the operator's tables.

    Each offset is stored once, also under another checkpoint. A batch first commits its records, `pushes` last. One
    that was cut off after that runs again without reading them: the operator follows the table.
    """
    start = take_over(lake.path, lake.checkpoints)
    guards = [
        OffsetGuard.load(
            spark, table.uri(lake.path), guard_folder(lake.checkpoints, table), topics_of(table, source.topics)
        )
        for table in STORED
    ]
    begun = begun_batch(lake.landing)
    offsets = OffsetLog(lake.landing)
    lost = _lost_records(spark, lake, source, guards, offsets)
    rows = landing_rows(spark, source, lake.cluster_id, lake.privacy, start)
    batches = LandingBatches(lake.path, lake.fence, operator, begun, None if lost is None else lost.note)

    def run(batch: DataFrame, batch_id: int) -> None:
        if offsets.topics_of_batch(batch_id) == {source.topics.telemetry}:
            batch = batch.drop(*OTHERS)  # Spark looks at their fields after each row that it hands to a task

        def written(workers: int, judge: ShardTask | None) -> Stored:
            judges = "" if judge is None else ", judge its pushes if they are few"
            with named(spark, f"pushes: batch {batch_id}: store{judges}"), _read_once(batch, source.may_repeat):
                try:
                    return store(unstored(batch, guards, source.may_repeat), lake.path, workers, judge, operator.shards)
                except (Py4JJavaError, PySparkException) as error:
                    if not isinstance(source, KafkaSource) or not is_overflow(error):
                        raise
            with read_records(batch.sparkSession, source, *offsets.of_batch(batch_id), lake.landing) as read:
                rows = landing_rows(batch.sparkSession, read, lake.cluster_id, lake.privacy, {})
                return store(unstored(rows, guards, may_repeat=False), lake.path, workers, None, operator.shards)

        batches.run(app_id_of(batch, LANDING), batch_id, written)

    return start_batches(
        rows, PUSHES.name, lake, trigger and source.poll_s(trigger), run, landing_name(lake.checkpoints)
    )


def _lost_records(
    spark: SparkSession, lake: Lake, source: Source, guards: Sequence[OffsetGuard], offsets: OffsetLog
) -> LostRecords | None:
    if not isinstance(source, KafkaSource):
        return None
    before = [each for guard in guards for each in guard.own(guard.before_checkpoint)]
    return LostRecords(
        lake.path, offsets, source.name, KafkaCluster(spark, source), before, lake.cluster_id, lake.fence
    )


@contextmanager
def _read_once(batch: DataFrame, may_repeat: bool) -> Iterator[None]:
    """Retain a batch that `unstored` looks at before it is stored: its files would be read, and counted, twice."""
    if may_repeat:
        batch.persist()
    yield
    if may_repeat:  # after a failure the query ends, and the batch with its session's memory
        batch.unpersist()


def topics_of(table: Table, topics: Topics) -> Callable[[str], bool]:
    """Whether records of a topic are stored in a table. Rejected pushes are in `pushes`, as well as in `quarantine`."""
    if table == PUSHES:
        return lambda topic: topic not in (topics.status, topics.quotas)
    return lambda topic: topic == (topics.status if table == RECEIVER_HEALTH else topics.quotas)


def start_batches(
    rows: DataFrame, stream: str, lake: Lake, trigger: Trigger, run: Callable[[DataFrame, int], None],
    checkpoint: str | None = None,
) -> StreamingQuery:  # fmt: skip
    """Start a stream that calls `run` with each micro-batch and its number, once Spark's note of it is on the disk.

    Args:
        checkpoint: name of its checkpoint; None: that of the stream.
    """
    filesystem, root = filesystem_of(lake.checkpoint(checkpoint or stream))

    def noted(batch: DataFrame, batch_id: int) -> None:
        sync(filesystem, entries(root, batch_id))
        try:
            run(batch, batch_id)
        except Exception as error:
            if isinstance(error, FencedError | CannotRunError | OSError) or OtherReleaseError.__name__ in str(error):
                # Their messages say it all; py4j would log where this was raised.
                logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
            raise

    writer = rows.writeStream.queryName(stream).option("checkpointLocation", lake.checkpoint(checkpoint or stream))
    writer = (
        writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=f"{trigger} seconds")
    )
    return writer.foreachBatch(noted).start()


def app_id_of(batch: DataFrame, stream: str) -> str:
    """Application id of a stream's commits. It has the query's id because every checkpoint numbers batches from 0."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return f"kafka-telemetry-lake:{stream}:{query_id}"


# Writes a batch's records to files: by a number of workers (None: as many as there are cores), with the task that
# judges them if they are few.
Store = Callable[[int, ShardTask | None], Stored]
# Notes what is missing between the records of an application's batch, by the files that they are in.
NoteLost = Callable[[str, int, Sequence[DataFile]], object]


class LandingBatches:
    """The batches of one run of the query.

    Args:
        lake: folder or URI of the lake.
        fence: the claim under which commits are made.
        begun: the batch that an earlier run has begun and not ended; only this one may be stored already.
    """

    def __init__(
        self, lake: str, fence: Fence | None, operator: Operator, begun: int | None, note_lost: NoteLost | None = None
    ) -> None:
        self._lake, self._fence, self._operator, self._begun = lake, fence, operator, begun
        self._note_lost = note_lost
        self._logs: dict[str, TableLog] = {}
        # Of the next batch, by the size of the last one. A small fleet never needs a second worker.
        self._workers = 1

    def run(self, app_id: str, batch_id: int, store: Store) -> None:
        """Commit a batch's records, `pushes` last, and let the operator judge all pushes that are not judged yet.

        A batch that was cut off after its commit of `pushes` isn't stored again: the operator follows the table.

        Args:
            app_id: the application of the commits.
        """
        judged, failed = None, False
        if batch_id != self._begun or self._log(PUSHES).transaction_version(app_id) != batch_id:
            # One that was begun may have ended the previous run: its pushes are stored first, and tried one by one.
            is_first = batch_id != self._begun
            judge = self._operator.next_task() if self._workers == 1 and is_first else None
            stored = store(self._workers, judge)
            self._workers = workers_for(sum(file.size for file in stored.files))
            judged, failed = stored.judged, stored.failed or not is_first
            if self._note_lost is not None:
                self._note_lost(app_id, batch_id, stored.files)
            for table in STORED:
                if own := [file for file in stored.files if file.table == table.name]:
                    self._log(table).commit(own, app_id, batch_id)
        self._operator.catch_up(self._log(PUSHES).version, guarded=failed, judged=judged)

    def _log(self, table: Table) -> TableLog:
        if table.name not in self._logs:
            if self._fence is not None:  # a job that takes over can't note its epoch in a table that is to come
                self._fence.check()
            table.create(self._lake)  # that of quota samples only when there are any
            self._logs[table.name] = TableLog(table, self._lake, self._fence)
        return self._logs[table.name]
