"""One Spark session for all tests that need one, and runs of the ingest job inside it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from jobs.ingest import IngestSettings, make_lake, make_source, run
from jobs.settings import parse
from pipelines.session import spark_session

Ingest = Callable[..., None]

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# A busy machine is slow, not wrong.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("spark", "kafka"):
            if f"tests/{folder}/" in item.path.as_posix():
                item.add_marker(folder)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("tests", master="local[2]", driver_memory="1g")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ingest(spark: SparkSession) -> Ingest:
    """Run the job once, over a folder or with flags that name a Kafka source, inside the shared session."""

    def ingest_once(folder: Path | None, lake: Path, *flags: str) -> None:
        source_flags = ["--source", "kafka"] if folder is None else ["--source", f"files:{folder}"]
        argv = [*source_flags, "--lake", str(lake), "--once", "--source-name", "test", *flags]
        asked = parse(IngestSettings, argv, "test")
        source = make_source(asked)
        source.check()
        run(spark, make_lake(asked), source, asked, threading.Event())

    return ingest_once
