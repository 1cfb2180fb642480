"""The stream of the job: landing records to the tables that store them, and pushes on to the operator's tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

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
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED, Privacy
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.worker_task import OtherReleaseError
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.operator import BROKER_CONNECTIONS, PUSHES, RECEIVER_HEALTH, TABLES
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri
from kafka_telemetry_lake.udfs.errors import CannotRunError

# Seconds between the starts of two batches; None processes the available records and ends.
Trigger = float | None


@dataclass(frozen=True)
class JobLake:
    """Where a job's tables and checkpoints are, and how it stores records there."""

    path: str
    checkpoints: str
    cluster_id: str | None = None
    privacy: Privacy = UNCHANGED
    fence: Fence | None = None  # the lease under which it is written

    def create_tables(self) -> dict[str, DeltaTable]:
        """Create the tables that the lake lacks, and add columns of later releases; returns all by name, open.

        Raises:
            OtherFormatError: a table has another format; none is created or changed.
        """
        tables = (*TABLES, LOST_RECORDS)
        opened = {table.name: table.open(self.path) for table in tables}
        return {table.name: table.create(self.path, opened[table.name]) for table in tables}

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
    spark: SparkSession, lake: JobLake, source: Source, trigger: Trigger, operator: Operator
) -> StreamingQuery:
    """Landing records -> `pushes`, and the tables of brokers' records -> the operator's tables.

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
    records = LandingRecords(lake, source, guards, OffsetLog(lake.landing))
    lost = _lost_records(spark, lake, source, guards, records.offsets)
    batches = LandingBatches(lake.path, lake.fence, operator, begun_batch(lake.landing), lost)

    def run(batch: DataFrame, batch_id: int) -> None:
        app_id = app_id_of(batch, LANDING)
        plan = batches.begin(app_id, batch_id)
        stored = None if plan is None else records.store(batch, batch_id, plan)
        batches.finish(app_id, batch_id, stored)

    return start_batches(
        landing_rows(spark, source, lake.cluster_id, start),
        PUSHES.name,
        lake,
        trigger and source.poll_s(trigger),
        run,
        landing_name(lake.checkpoints),
    )


@dataclass(frozen=True)
class LandingRecords:
    """Writes the records of micro-batches to files.

    Attributes:
        guards: of the tables `STORED`: what they had before this checkpoint isn't stored again.
        offsets: of the query's batches.
    """

    lake: JobLake
    source: Source
    guards: Sequence[OffsetGuard]
    offsets: OffsetLog

    def store(self, batch: DataFrame, batch_id: int, plan: StorePlan) -> Stored:
        """Write a batch's records. If one of them has a timestamp that Spark can't read, this process reads them."""
        if self.offsets.topics_of_batch(batch_id) == {self.source.topics.telemetry}:
            batch = batch.drop(*OTHERS)  # Spark looks at their fields after each row that it hands to a task
        judges = "" if plan.judge is None else ", judge its pushes if they are few"
        may_repeat = self.source.may_repeat
        with named(batch.sparkSession, f"pushes: batch {batch_id}: store{judges}"), _read_once(batch, may_repeat):
            try:
                return store(unstored(batch, self.guards, may_repeat), self.lake.path, *plan, self.lake.privacy)
            except (Py4JJavaError, PySparkException) as error:
                if not isinstance(self.source, KafkaSource) or not is_overflow(error):
                    raise
        spark, lake = batch.sparkSession, self.lake
        with read_records(spark, self.source, *self.offsets.of_batch(batch_id), lake.landing) as read:
            rows = landing_rows(spark, read, lake.cluster_id, {})
            new = unstored(rows, self.guards, may_repeat=False)
            return store(new, lake.path, *plan._replace(judge=None), lake.privacy)


def _lost_records(
    spark: SparkSession, lake: JobLake, source: Source, guards: Sequence[OffsetGuard], offsets: OffsetLog
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
    if table == BROKER_CONNECTIONS:
        return lambda topic: False  # noqa: ARG005  # a status is stored if its row of `receiver_health` is
    return lambda topic: topic == (topics.status if table == RECEIVER_HEALTH else topics.quotas)


def start_batches(
    rows: DataFrame,
    stream: str,
    lake: JobLake,
    trigger: Trigger,
    run: Callable[[DataFrame, int], None],
    checkpoint: str | None = None,
) -> StreamingQuery:
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


class StorePlan(NamedTuple):
    """How a micro-batch is stored.

    Attributes:
        workers: number of Python workers.
        judge: judges the pushes in the task that stores them, if they are few; None: they are only stored.
        shards: of the operator.
    """

    workers: int
    judge: ShardTask | None
    shards: int


class LandingBatches:
    """The commits of one run of the query, batch by batch: `begin`, then the records are stored, then `finish`.

    It calls nothing of Spark: tests run it without a session.

    Args:
        lake: folder or URI of the lake.
        fence: the lease under which commits are made.
        begun: the batch that an earlier run has begun and not ended; only this one may be stored already.
        lost: notes what is missing between the records of a batch.
    """

    def __init__(
        self, lake: str, fence: Fence | None, operator: Operator, begun: int | None, lost: LostRecords | None = None
    ) -> None:
        self._lake, self._fence, self._operator, self._begun, self._lost = lake, fence, operator, begun, lost
        self._logs: dict[str, TableLog] = {}
        # Of the next batch, by the size of the last one. A small fleet never needs a second worker.
        self._workers = 1

    def begin(self, app_id: str, batch_id: int) -> StorePlan | None:
        """How to store a batch's records; None: they are stored, it was cut off after its commit of `pushes`.

        Args:
            app_id: the application of the commits.
        """
        judge = None
        if batch_id == self._begun:  # it may have ended the previous run: its pushes are stored before they are judged
            if self._log(PUSHES).transaction_version(app_id) == batch_id:
                return None
        elif self._workers == 1:
            judge = self._operator.next_task()
        return StorePlan(self._workers, judge, self._operator.shards)

    def finish(self, app_id: str, batch_id: int, stored: Stored | None) -> None:
        """Commit what was stored of a batch, and let the operator judge all pushes that are not judged yet.

        The commit of `pushes` is the last one: it says that the batch is stored. What is lost is noted before it, as a
        batch that is stored is never looked at again.

        Args:
            stored: None: `begin` has found the batch stored.
        """
        if stored is None:
            self._operator.catch_up(self._log(PUSHES).version)
            return
        self._workers = workers_for(sum(file.size for file in stored.files))
        if self._lost is not None:
            self._lost.note(app_id, batch_id, stored.files)
        for table in STORED:
            if own := [file for file in stored.files if file.table == table.name]:
                self._log(table).commit(own, app_id, batch_id)
        guarded = stored.failed or batch_id == self._begun
        self._operator.catch_up(self._log(PUSHES).version, guarded=guarded, judged=stored.judged)

    def _log(self, table: Table) -> TableLog:
        if table.name not in self._logs:
            if self._fence is not None:  # a job that takes over can't note its epoch in a table that is to come
                self._fence.check()
            table.create(self._lake)  # that of quota samples only when there are any
            self._logs[table.name] = TableLog(table, self._lake, self._fence)
        return self._logs[table.name]
