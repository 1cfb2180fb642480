"""One Spark session for all tests that need one, and runs of the ingest job inside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.lane_costs"]
Ingest = Callable[..., None]

# Many images forbid bytecode: each worker would rewrite the asserts of all tests, and each command compile its modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# A test's JVM lives for a minute or two: HotSpot's second compiler would cost a fifth of its CPU, and pay too late.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
# A busy machine is slow, not wrong.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


SLOW_TEST_S = 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TEST_S))
        for folder in ("spark", "kafka"):
            if f"tests/{folder}/" in item.path.as_posix():
                item.add_marker(folder)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from kafka_telemetry_lake.pipelines.runtime.session import spark_session  # noqa: PLC0415  # most tests need no Spark

    memory = os.environ.get("TEST_DRIVER_MEMORY", "1g")
    session = spark_session("tests", master="local[2]", driver_memory=memory, is_brief=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ingest(spark: SparkSession) -> Ingest:
    """Run the job once, over a folder or with flags that name a Kafka source, inside the shared session."""
    from tests.support.spark_run import ingest_once  # noqa: PLC0415  # most tests need no Spark

    return partial(ingest_once, spark)
