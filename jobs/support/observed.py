"""Observes the running job: reports its micro-batches to table `pipeline_metrics`, to Prometheus and to its health."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import make_wsgi_app
from py4j.protocol import Py4JError

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobHealth, JobMetrics, MetricsServer
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import BatchFacts, PipelineMetrics
from kafka_telemetry_lake.pipelines.observe.progress import ProgressLines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("telemetry-lake")

STALE_AFTER_S = 300.0  # a batch may take long; Spark reports an idle stream every ten seconds


@dataclass(frozen=True)
class Observers:
    """A ``progress.StreamObserver`` that feeds the table, the Prometheus metrics and the health."""

    table: PipelineMetrics
    metrics: JobMetrics
    health: JobHealth

    def batch(self, progress: dict[str, Any]) -> None:
        self.health.reported(progress["name"])
        row = self.table.add(progress)
        if row is not None:
            self.metrics.add(row)

    def judged(self, progress: Mapping[str, Any], facts: BatchFacts) -> None:
        """Take a batch of the operator, which runs inside stream `pushes`."""
        self.table.record(progress["name"], progress["batchId"], facts)
        row = self.table.add(progress)
        if row is not None:
            self.metrics.add(row)

    def alive(self, stream: str) -> None:
        self.health.reported(stream)

    def ended(self, stream: str, cause: str | None) -> None:
        self.health.ended(stream)
        if cause is not None:
            self.health.failed(stream, " ".join(cause.split())[:300])

    def companion(self, name: str, problem: str | None) -> None:
        """Take over that a companion has failed, or works again."""
        self.health.companion(name, problem)
        if problem is not None:
            self.metrics.companion_failed(name)


@contextlib.contextmanager
def observed(
    spark: SparkSession, table: PipelineMetrics, host: str, port: int | None, health_file: Path | None
) -> Iterator[Observers]:
    """Listen to the session's streams; serve metrics and health if `port` is set.

    Raises:
        UsageError: `port` can't be bound.
    """
    observers = Observers(table, JobMetrics(), JobHealth(STALE_AFTER_S, health_file))
    listener = ProgressLines(observers)
    with contextlib.ExitStack() as stack:
        if port is not None:
            try:
                server = stack.enter_context(
                    MetricsServer(host, port, make_wsgi_app(observers.metrics.registry), observers.health)
                )
            except OSError as error:
                raise UsageError(f"metrics_port: can't listen on {host}:{port}: {error.strerror}") from error
            log.info("ingest: metrics and health at http://%s:%d/metrics and /health", host, server.port)
        spark.streams.addListener(listener)
        try:
            yield observers
        finally:
            with contextlib.suppress(Py4JError):
                spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
                spark.streams.removeListener(listener)
            table.flush()
