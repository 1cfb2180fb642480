"""``telemetry-lake ingest`` into a catalog: tables are created and written by name, through Spark alone.

What isn't a table is below ``--checkpoints``: state, notes and the lock. What follows tables by their logs isn't run:
upkeep, quota usage, subscriptions (docs/engines.md). The lifecycle judges each batch instead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.locks import TakenOverError
from kafka_telemetry_lake.jobs.support.named_lake import alone, session_of
from kafka_telemetry_lake.jobs.support.observed import observed
from kafka_telemetry_lake.jobs.support.privacy import privacy_of
from kafka_telemetry_lake.jobs.support.running import RunningQuery
from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_age, check_lake_of, last_batch
from kafka_telemetry_lake.pipelines.ingest.offset_log import drop_torn_entries
from kafka_telemetry_lake.pipelines.ingest.replaced_topics import check_topic_ids
from kafka_telemetry_lake.pipelines.ingest.sources import Source, has_new_partition
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import PipelineMetrics
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.spark_engine.lifecycle import BatchLifecycle
from kafka_telemetry_lake.pipelines.spark_engine.output import WRITTEN
from kafka_telemetry_lake.pipelines.spark_engine.query import SPARK_ENGINE, app_id_of, shards_of, start_spark_engine
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS

log = logging.getLogger("telemetry-lake")
TABLES = (*WRITTEN, CLIENT_CHANGES, PIPELINE_METRICS)


def run_by_name(
    settings: IngestSettings,
    names: Names,
    source: Source,
    stop: threading.Event,
    lost: Callable[[TakenOverError], object],
) -> None:
    """Run until all available input is processed (``once``), or `stop` is set.

    Args:
        lost: called as soon as another process has taken over.
    """
    source.check()
    with (
        alone(names, settings.checkpoints or "", "ingest", lost) as fence,
        session_of(names, "ingest", settings.master, settings.driver_memory, settings.checkpoints) as spark,
    ):
        run(spark, names, source, settings, stop, fence)


def run(
    spark: SparkSession,
    names: Names,
    source: Source,
    settings: IngestSettings,
    stop: threading.Event,
    fence: Fence | None = None,
) -> None:
    """Run the query in a session."""
    source.check_topics(spark)
    started, tables = time.monotonic(), TablesByName(spark, names)
    lake = JobLake(
        str(names), (settings.checkpoints or "").rstrip("/"), settings.cluster_id, privacy_of(settings), fence
    )
    tables.create(TABLES)
    drop_torn_entries(lake.checkpoints)
    _check_checkpoints(lake, tables)
    check_topic_ids(lake.checkpoints, source.topic_ids(spark), new_topic=False)
    shards = shards_of(lake, tables, settings.shards, spark.sparkContext.defaultParallelism)
    log.info("ingest: %s -> %s (%d shards)", settings.source, names, shards)
    lifecycle = BatchLifecycle(tables, lake.checkpoints)
    trigger, limits = None if settings.once else settings.trigger_seconds, settings.limits()
    metrics = MetricsByName(tables, settings.cluster_id)
    with observed(spark, metrics, settings.metrics_host, settings.metrics_port, settings.health_file) as observers:
        query = RunningQuery(
            lambda: start_spark_engine(
                spark, lake, tables, source, trigger, limits, shards, observers.judged, lifecycle
            ),
            partial(has_new_partition, (source.topics.telemetry, source.topics.status, source.topics.quotas)),
        )
        query.work_off(stop)
    log.info("ingest: %s after %.0f s", "stopped" if stop.is_set() else "done", time.monotonic() - started)


class MetricsByName(PipelineMetrics):
    """Writes table `pipeline_metrics` by name."""

    def __init__(self, tables: TablesByName, cluster_id: str | None) -> None:
        super().__init__(tables.lake, cluster_id)
        self._tables = tables

    def append(self, rows: pa.Table) -> None:
        """Append rows to `pipeline_metrics` through Spark. Raises ``OSError`` if it fails."""
        try:
            self._tables.insert(PIPELINE_METRICS, rows.select(PIPELINE_METRICS.schema.names))
        except (Py4JError, PySparkException) as error:
            raise OSError(cause(str(error))) from error


def _check_checkpoints(lake: JobLake, tables: TablesByName) -> None:
    """Check that the checkpoint is this lake's, and not older than its tables (`checkpoint.check_checkpoints`)."""
    check_lake_of(lake.checkpoints, lake.path, tables.table_id())
    checkpoint = lake.checkpoint(SPARK_ENGINE)
    last = last_batch(*filesystem_of(checkpoint))
    if last >= 0:
        check_age(lake.checkpoints, SPARK_ENGINE, last, tables.last_batch(app_id_of(checkpoint)))
