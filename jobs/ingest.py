"""``telemetry-lake ingest``: turns landed pushes into rows of the lake's Delta tables."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.companions import Followed, companions, events_address
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings, size_in_bytes
from kafka_telemetry_lake.jobs.support.console import fail
from kafka_telemetry_lake.jobs.support.ingest_by_name import run_by_name
from kafka_telemetry_lake.jobs.support.judging import caught_up_operator
from kafka_telemetry_lake.jobs.support.locks import TakenOverError, only_job
from kafka_telemetry_lake.jobs.support.observed import observed
from kafka_telemetry_lake.jobs.support.privacy import privacy_of
from kafka_telemetry_lake.jobs.support.running import JobFailedError, RunningQuery
from kafka_telemetry_lake.jobs.support.signals import end_at_once, stop_at_signals
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.events import feed
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.forget.erasure import unfinished
from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_checkpoints
from kafka_telemetry_lake.pipelines.ingest.compiling import compiled_in_background
from kafka_telemetry_lake.pipelines.ingest.offset_log import drop_torn_entries
from kafka_telemetry_lake.pipelines.ingest.replaced_topics import check_topic_ids
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource, KafkaSource, Source, Topics, has_new_partition
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, Trigger, start_landing
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from kafka_telemetry_lake.pipelines.lake.clock import clock_problem
from kafka_telemetry_lake.pipelines.lake.paths import checkpoints_root
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.lifecycle.spark_tasks import SparkTasks
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import PipelineMetrics
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.quotas import broker_usage
from kafka_telemetry_lake.pipelines.quotas.client_reports import ReportFollower, knows_quotas
from kafka_telemetry_lake.pipelines.replay.replay import finish_swap
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.runtime.session import SparkStartError, kill_java, spark_session
from kafka_telemetry_lake.pipelines.upkeep.small_files import Upkeep

NO_PUSHES_ADVICE = (
    "ingest: no push has landed yet. If clients are running, check that the receiver is installed on the brokers "
    "(docs/receiver.md), and that a client-metrics subscription with a non-empty `metrics` list matches the clients. "
    "A client without a matching subscription asks again only after five minutes."
)
CUT_OFF = "ingest: stopped at once; the next start repeats the batch that was running, if any"
log = logging.getLogger("telemetry-lake")


def run_job(settings: IngestSettings) -> int:
    """Run until all available input is processed (``once``) or a signal stops the job."""
    stop = stop_at_signals(CUT_OFF, kill_java)
    try:
        _run_in_session(settings, stop)
    except SparkStartError:
        if not stop.is_set():
            raise
        log.info("ingest: stopped")
    except (Py4JError, PySparkException, DeltaError, OSError) as error:
        if not stop.is_set():  # else the end of the session has interrupted something
            # Before any stream started, for example on a full disk.
            raise JobFailedError(f"ingest failed: {cause(str(error))}") from error
        log.info("ingest: stopped")
    return 0


def _run_in_session(settings: IngestSettings, stop: threading.Event) -> None:
    """Take the lake's lease and start Spark, then run the job."""
    if settings.names is not None:
        run_by_name(settings, settings.names, make_source(settings), stop, _end_at_once)
        return
    _check_files(settings)
    lake = make_lake(settings)
    source = make_source(settings)
    busy = f"another job is writing this lake ({lake.path} is locked): run one job at a time"
    with ExitStack() as stack:
        if settings.master.startswith("local"):  # else the workers are on other machines
            stack.enter_context(compiled_in_background(partial(log.info, "ingest: %s")))
        source.check()
        fence = stack.enter_context(
            only_job(lake.path, "ingest", busy, take_over=settings.take_over, lost=_end_at_once)
        )
        lake = replace(lake, checkpoints=own_checkpoints(lake.path, settings.checkpoints, fence), fence=fence)
        spark = spark_session(
            "telemetry-lake ingest",
            settings.master,
            settings.driver_memory,
            lake.path,
            lake.checkpoints,
            is_job=True,
            is_brief=settings.once and source.is_small(),
        )
        RunningJob(spark, lake, source, settings, stop).run()
        if not stop.is_set() and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
            spark.stop()


def _end_at_once(error: TakenOverError) -> None:
    """End the process, whatever it is doing: nothing that it does counts any more."""

    def say() -> None:
        fail(error)
        sys.stderr.flush()

    end_at_once(say, kill_java, error.exit_code)


def _check_files(settings: IngestSettings) -> None:
    """A mistake in a file is an error before Spark starts."""
    read_overrides(settings.rules)
    if settings.notify is not None:
        from kafka_telemetry_lake.pipelines.notify.file import read_notify_file  # noqa: PLC0415  # the extra `notify`

        read_notify_file(settings.notify)


@dataclass(frozen=True)
class RunningJob:
    """The job of one lake, in a session.

    Attributes:
        lake: as it is written under the job's lease.
        source: of its landing records.
        stop: ends the job when it is set.
    """

    spark: SparkSession
    lake: JobLake
    source: Source
    settings: IngestSettings
    stop: threading.Event

    def run(self) -> None:
        """Run the streams until all available input is processed (``once``), one fails, or `stop` is set."""
        settings, lake, stop, topics = self.settings, self.lake, self.stop, self.source.topics
        metrics = PipelineMetrics(lake.path, settings.cluster_id)
        with observed(
            self.spark, metrics, settings.metrics_host, settings.metrics_port, settings.health_file
        ) as observers:
            self.source.check_topics(self.spark)
            if settings.events_topic is not None:
                feed.begin(self.spark, lake.path, *events_address(settings))
            started, cores = time.monotonic(), self.spark.sparkContext.defaultParallelism
            tasks = (cores, SparkTasks(self.spark))
            opened = self._checked_tables()  # each is opened once for all that follows
            lifecycle = Lifecycle(lake.path, lake.fence, opened, tasks)
            reports = ReportFollower(lake.path, lake.fence, opened) if knows_quotas(lake.path) else None
            operator = caught_up_operator(
                self.spark, lake, settings.limits(), size_in_bytes(settings.max_bytes_per_batch), stop,
                settings.shards, observers.judged, opened,
            )  # fmt: skip
            if stop.is_set():
                log.info("ingest: stopped")
                return
            log.info("ingest: %s -> %s (%d shards)", settings.source, lake.path, operator.shards)
            if (gain := idle_cores(settings, operator.shards, cores)) is not None:
                log.info("ingest: %s", gain)
            trigger: Trigger = None if settings.once else settings.trigger_seconds
            landing = RunningQuery(
                lambda: start_landing(self.spark, lake, self.source, trigger, operator),
                partial(has_new_partition, (topics.telemetry, topics.status, topics.quotas)),
            )
            upkeep = Upkeep(lake.path, lambda: operator.position, lake.fence)
            followed = Followed(landing, lifecycle, reports, upkeep, tasks)
            rows = companions(settings, self.spark, lake, followed, observers.metrics.registry, observers.companion)
            with supervised(lake.path, rows, stop, observers.companion):
                landing.work_off(stop)
                if settings.once and not stop.is_set():
                    self._catch_up(followed)
            if settings.once and not stop.is_set() and not lake.has_pushes():
                log.warning(NO_PUSHES_ADVICE)
            log.info("ingest: %s after %.0f s", "stopped" if stop.is_set() else "done", time.monotonic() - started)

    def _checked_tables(self) -> dict[str, DeltaTable]:
        """Check the lake, complete what an earlier run has begun, and return its tables, open."""
        lake = self.lake
        opened = lake.create_tables()
        drop_torn_entries(lake.checkpoints)
        check_checkpoints(lake.path, lake.checkpoints, opened)
        check_topic_ids(lake.checkpoints, self.source.topic_ids(self.spark), new_topic=self.settings.new_topic)
        if (problem := clock_problem(lake.path, datetime.now(UTC))) is not None:
            log.warning("ingest: %s", problem)
        for command in unfinished(lake.path).values():
            log.warning(
                "ingest: an erasure was begun and is not finished; stop the job and run `%s`", printable(command)
            )
        if finish_swap(lake.path, lake.checkpoints, lake.fence):
            log.info("ingest: completed the swap of an interrupted replay")
        return opened

    def _catch_up(self, followed: Followed) -> None:
        """Bring the tables up to date that follow others; those come last."""
        followed.lifecycle.catch_up()
        broker_usage.sample_windows(self.lake.path, self.lake.fence).catch_up()
        if followed.reports is not None:
            followed.reports.catch_up()
        followed.upkeep.look(self.stop)


def idle_cores(settings: IngestSettings, shards: int, cores: int) -> str | None:
    """What other cores than those of the lake's first run would gain; None: nothing, or the number was asked for."""
    if shards >= cores or settings.shards is not None:
        return None
    checkpoints = "" if settings.checkpoints is None else f" --checkpoints {shlex.quote(settings.checkpoints)}"
    command = f"telemetry-lake reshard --lake {shlex.quote(settings.folder)}{checkpoints} --shards {cores}"
    return f"{shards} shards on {cores} cores: `{command}` would use them"


def make_lake(settings: IngestSettings) -> JobLake:
    """The lake that the settings name: tables, checkpoints and privacy."""
    checkpoints = checkpoints_root(settings.folder, settings.checkpoints)
    return JobLake(settings.folder, checkpoints, settings.cluster_id, privacy_of(settings))


def make_source(settings: IngestSettings) -> Source:
    """The source that the settings name. Reads nothing yet."""
    topics = Topics(settings.topic, settings.status_topic, settings.quotas_topic)
    if settings.source == "kafka":
        assert settings.bootstrap_servers is not None  # ensured by `check_together`
        return KafkaSource(
            settings.bootstrap_servers,
            settings.source_name or "kafka",
            topics,
            settings.kafka_options,
            settings.starting_offsets,
            settings.max_records_per_batch,
            settings.fail_on_data_loss,
            None if settings.once else settings.trigger_seconds,
        )
    path = settings.source.removeprefix("files:")
    return FilesSource(path, settings.source_name or f"files:{Path(path).resolve().name}", topics)


if __name__ == "__main__":
    sys.exit(run_command("ingest"))
