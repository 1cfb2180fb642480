"""The ingest job, running in a thread of the test's Spark session until the block ends, however it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.ingest import RunningJob, make_lake, make_source
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from tests.support.patience import PATIENCE_S


@contextmanager
def live_job(spark: SparkSession, *flags: str) -> Iterator[None]:
    """Run inside the block. Raises ``AssertionError`` when the job doesn't end then."""
    settings = parse(IngestSettings, list(flags), "test")
    stop, source = threading.Event(), make_source(settings)
    job = threading.Thread(target=RunningJob(spark, make_lake(settings), source, settings, stop).run)
    job.start()
    try:
        yield
    finally:
        stop.set()
        job.join(PATIENCE_S)
    assert not job.is_alive()
