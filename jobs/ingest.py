"""``telemetry-lake ingest``: landed pushes become rows in Delta.

Exit codes: 0 done or stopped cleanly, 1 failed while running, 2 can't run as asked.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from filelock import Timeout
from py4j.protocol import Py4JJavaError
from pydantic import AfterValidator, Field, PositiveInt, SecretStr

from jobs.json_lines import JsonLines
from jobs.locks import only_job
from jobs.running import StreamFailedError, cause, work_off
from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jobs.replay import ReplaySettings
    from pipelines.lifecycle_stream import LifecycleStream
    from pipelines.pipeline_metrics import PipelineMetrics
    from pipelines.sources import Source
    from pipelines.streams import Lake, Trigger
    from udfs.shard import Limits

# Least seconds between two batches: brokers are sampled that often, and a push tells of minutes.
QUOTA_SAMPLES_S, QUOTA_REPORTS_S = 10.0, 60.0
NO_PUSHES_ADVICE = (
    "ingest: no push has landed yet. If clients are running: is the receiver on the brokers (docs/receiver.md), and "
    "does a client-metrics subscription with a non-empty `metrics` list match them? Clients without one ask again "
    "after five minutes."
)
log = logging.getLogger("telemetry-lake")


def _source(value: str) -> str:
    if value == "kafka" or (value.startswith("files:") and len(value) > len("files:")):
        return value
    raise ValueError("allowed: files:<folder> or kafka")


def _starting(value: str) -> str:
    if value in ("earliest", "latest") or value.isdigit():
        return value
    raise ValueError("allowed: earliest, latest, or a time in epoch milliseconds")


class IngestSettings(JobSettings):
    """Store landed pushes raw, decode them, convert counters to deltas, and write the lake's Delta tables."""

    source: Annotated[str, AfterValidator(_source)]
    """files:<folder> of Parquet files with the columns of Spark's Kafka source, or kafka"""
    lake: str
    """folder or URI of the lake; made when it isn't there"""
    once: bool = False
    """work off what is there and end, instead of following the source"""
    trigger_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """pause between the starts of two micro-batches, without --once"""
    checkpoints: str | None = None
    """folder or URI of the checkpoints [<lake>/_checkpoints]"""
    source_name: str | None = None
    """name of the source in the tables, part of a push's identity [kafka, or files:<folder's name>]"""
    cluster_id: str | None = None
    """Kafka cluster id of records that don't name theirs"""
    shards: PositiveInt | None = None
    """parts that the state is kept in, fixed by a lake's first run [cores of the session]"""
    master: str = "local[*,3]"  # three tries: a killed Python worker fails a task, not the job
    """Spark master; without effect under spark-submit and Databricks"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """memory of the local Spark driver"""
    max_bytes_per_batch: Annotated[str, Field(pattern=r"^\d+[kmg]$")] = "128m"
    """landed bytes that one batch of points takes at most"""
    max_payload_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """bound of one decompressed payload; a larger one is quarantined as TELEMETRY_TOO_LARGE"""
    max_points_per_push: PositiveInt = 100_000
    """data points taken of one push; the rest is quarantined as TOO_MANY_POINTS"""
    max_text_bytes: Annotated[int, Field(ge=256, le=1 << 20)] = 16 << 10
    """bytes of a point's name, or of its attributes, or of a push's labels; longer ones are quarantined"""
    max_series_per_client: PositiveInt = 100_000
    """cumulative series, and buckets of histograms, remembered of one client; the rest is quarantined as TOO_MANY_SERIES"""  # noqa: E501  # the library makes the help of it
    bootstrap_servers: str | None = None
    """kafka: brokers of the landing topic"""
    topic: str = "client-telemetry"
    """topic of landed pushes"""
    status_topic: str = "client-telemetry-status"
    """topic of receiver statuses"""
    quotas_topic: str = "client-quotas"
    """topic of quota samples"""
    starting_offsets: Annotated[str, AfterValidator(_starting)] = "earliest"
    """kafka: where a new checkpoint starts: earliest, latest or epoch milliseconds"""
    max_records_per_batch: PositiveInt = 50_000
    """kafka: records that one batch reads at most"""
    fail_on_data_loss: bool = True
    """kafka: stop when records were deleted from the topic before they were read"""
    kafka_options: Annotated[dict[str, str], Field(default_factory=dict)]
    """kafka: options of Spark's source and, with the prefix kafka., of its consumer (SASL, SSL); never logged"""
    sync_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """kafka: look that often what is configured on the cluster, as `telemetry-lake sync` does [never]"""
    events_topic: str | None = None
    """kafka: topic that each new row of client_events is sent to, at least once, in order; it must be there [none]"""
    personal_data: Literal["keep", "hash", "drop"] = "keep"
    """what is stored of principals and client addresses"""
    personal_data_key: SecretStr | None = None
    """key of the hashes, best by TELEMETRY_LAKE_PERSONAL_DATA_KEY; the same key gives the same hashes; never logged"""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """serve /metrics (Prometheus) and /health here; 0 takes a free port [off]"""
    metrics_host: str = "127.0.0.1"
    """address that they are served at; there is no login: open it to those only who may see it"""
    health_file: Path | None = None
    """file that says in JSON how the streams are, rewritten at every sign of life [off]"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """what the progress lines show"""
    log_format: Literal["text", "json"] = "text"
    """progress lines for a person, or one JSON object a line"""


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(IngestSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake ingest")
        log_to_stdout(settings.log_level, settings.log_format)
        return _run(settings)
    except UsageError as error:
        return fail(str(error), 2)


def log_to_stdout(level: str, form: str = "text") -> None:
    """Progress lines, for a person or (`json`) for a machine, and nothing of the libraries' chatter."""
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stdout)
    if form == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())
    logging.getLogger("py4j").setLevel(logging.ERROR)


def _run(settings: IngestSettings) -> int:
    # Spark and Arrow take seconds to import: a wrong flag is told before that.
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from jobs.sync_beside import syncing  # noqa: PLC0415
    from pipelines.event_feed import feeding  # noqa: PLC0415
    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.kafka_admin import KafkaUnavailableError  # noqa: PLC0415
    from pipelines.session import JavaMissingError, spark_session  # noqa: PLC0415
    from pipelines.sources import SourceError  # noqa: PLC0415
    from pipelines.state_manifest import StateError  # noqa: PLC0415

    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())
    lake = make_lake(settings)
    try:
        source = make_source(settings)
        source.check()
        with only_job(lake.path):
            spark = spark_session("telemetry-lake ingest", settings.master, settings.driver_memory, settings.lake)
            feed = feeding(spark, lake.path, settings.events_topic, settings.bootstrap_servers, settings.kafka_options)
            with feed, syncing(spark, settings):
                run(spark, lake, source, settings, stop)
            if not stop.is_set() and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
                spark.stop()
    except Timeout:
        return fail(f"another job is writing this lake ({lake.path} is locked): one at a time", 2)
    except (SourceError, StateError, KafkaUnavailableError, JavaMissingError, JarsUnavailableError) as error:
        return fail(str(error), 2)
    except StreamFailedError as error:
        return fail(str(error), 1)
    except (Py4JJavaError, DeltaError, OSError) as error:  # before a stream has begun, such as on a full disk
        return fail(f"ingest failed: {cause(str(error))}", 1)
    return 0


def run(spark: SparkSession, lake: Lake, source: Source, settings: IngestSettings, stop: threading.Event) -> None:
    """Run the streams until the source is worked off (``once``), one fails, or `stop` is set."""
    from jobs.observed import observed  # noqa: PLC0415
    from pipelines.pipeline_metrics import PipelineMetrics  # noqa: PLC0415

    metrics = PipelineMetrics(lake.path, settings.cluster_id)
    with observed(spark, metrics, settings.metrics_host, settings.metrics_port, settings.health_file):
        _run_streams(spark, lake, source, settings, stop, metrics)


def _run_streams(
    spark: SparkSession, lake: Lake, source: Source, settings: IngestSettings, stop: threading.Event,
    metrics: PipelineMetrics,
) -> None:  # fmt: skip
    from pipelines.checkpoint import check_checkpoints  # noqa: PLC0415
    from pipelines.lifecycle import Lifecycle  # noqa: PLC0415
    from pipelines.lifecycle_stream import start_lifecycle  # noqa: PLC0415
    from pipelines.quota_clients import knows_quotas, start_quota_reports  # noqa: PLC0415
    from pipelines.quota_usage import start_quota_samples  # noqa: PLC0415
    from pipelines.replay import finish_swap  # noqa: PLC0415
    from pipelines.state_manifest import StateFolder  # noqa: PLC0415
    from pipelines.streams import start_points, start_pushes, start_statuses  # noqa: PLC0415

    reads_statuses, reads_quotas = source.reads_statuses(spark), source.reads_quotas(spark)
    lake.create_tables()
    check_checkpoints(lake.path, lake.checkpoints)
    if finish_swap(lake.path, lake.checkpoints):
        log.info("ingest: a replay was cut off while its rows were swapped in; that is done now")
    lifecycle = Lifecycle(lake.path)
    state = StateFolder(lake.checkpoint("points-state"), settings.shards, spark.sparkContext.defaultParallelism)
    limits = limits_of(settings)
    trigger: Trigger = None if settings.once else settings.trigger_seconds
    begun = time.monotonic()
    log.info("ingest: %s -> %s (%d shards)", settings.source, lake.path, state.shards)
    pushes = start_pushes(spark, lake, source, trigger)
    running: list[StreamingQuery | LifecycleStream] = [pushes]
    if reads_statuses:
        running.append(start_statuses(spark, lake, source, trigger))
    if reads_quotas:
        running.append(start_quota_samples(spark, lake, source, trigger and max(trigger, QUOTA_SAMPLES_S)))
    if settings.once:  # points follow what was landed by then
        work_off(running, stop)
        running = []
    if not stop.is_set():
        running.append(start_points(spark, lake, state, limits, trigger, settings.max_bytes_per_batch, metrics))
    if settings.once:  # and what is made of points follows them
        work_off(running, stop)
        running = []
        if not stop.is_set():
            lifecycle.catch_up()
    elif not stop.is_set():
        running.append(start_lifecycle(lifecycle, pushes, settings.trigger_seconds))
    if knows_quotas(lake.path) and not stop.is_set():
        running.append(start_quota_reports(spark, lake, trigger and max(trigger, QUOTA_REPORTS_S)))
    work_off(running, stop)
    if settings.once and not stop.is_set() and not lake.has_pushes():
        log.warning(NO_PUSHES_ADVICE)
    log.info("ingest: %s after %.0f s", "stopped" if stop.is_set() else "done", time.monotonic() - begun)


def limits_of(settings: IngestSettings | ReplaySettings) -> Limits:
    """What of a push and of a client is taken."""
    from udfs.shard import Limits  # noqa: PLC0415

    return Limits(
        max_decompressed_bytes=settings.max_payload_bytes,
        max_points_per_push=settings.max_points_per_push,
        max_text_bytes=settings.max_text_bytes,
        max_series_per_client=settings.max_series_per_client,
    )


def make_lake(settings: IngestSettings) -> Lake:
    """Where the settings put tables and checkpoints."""
    from pipelines.landing import Privacy  # noqa: PLC0415
    from pipelines.streams import Lake  # noqa: PLC0415

    checkpoints = settings.checkpoints or f"{settings.lake.rstrip('/')}/_checkpoints"
    key = "" if settings.personal_data_key is None else settings.personal_data_key.get_secret_value()
    if settings.personal_data == "hash" and not key:
        raise UsageError("personal_data_key: needed for personal_data hash, give TELEMETRY_LAKE_PERSONAL_DATA_KEY")
    return Lake(settings.lake, checkpoints, settings.cluster_id, Privacy(settings.personal_data, key))


def make_source(settings: IngestSettings) -> Source:
    """The source that the settings name, not yet read. Raises ``UsageError``."""
    from pipelines.sources import FilesSource, KafkaSource, Topics  # noqa: PLC0415

    topics = Topics(settings.topic, settings.status_topic, settings.quotas_topic)
    if settings.source == "kafka":
        if settings.bootstrap_servers is None:
            raise UsageError("bootstrap_servers: needed for --source kafka, give --bootstrap-servers host:port")
        if settings.events_topic in (settings.topic, settings.status_topic, settings.quotas_topic):
            raise UsageError(f"events_topic: {settings.events_topic} is read by this job, allowed: a topic of its own")
        return KafkaSource(
            settings.bootstrap_servers, settings.source_name or "kafka", topics, settings.kafka_options,
            settings.starting_offsets, settings.max_records_per_batch, settings.fail_on_data_loss,
        )  # fmt: skip
    if settings.events_topic is not None:
        raise UsageError("events_topic: is a topic of --source kafka; beside files follow table client_events")
    if settings.sync_seconds is not None:
        raise UsageError("sync_seconds: asks the cluster of --source kafka; beside files run `telemetry-lake sync`")
    path = settings.source.removeprefix("files:")
    return FilesSource(path, settings.source_name or f"files:{Path(path).resolve().name}", topics)


if __name__ == "__main__":
    sys.exit(main())
