"""One Spark session for all tests that need one, and runs of the ingest job inside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.ingest import IngestSettings, make_lake, make_source, run
from jobs.settings import parse
from pipelines.session import spark_session

Ingest = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("tests", master="local[2]", driver_memory="1g")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ingest(spark: SparkSession) -> Ingest:
    """Run the job once over a folder into a lake, inside the shared session."""

    def ingest_once(folder: Path, lake: Path, *flags: str) -> None:
        argv = ["--source", f"files:{folder}", "--lake", str(lake), "--once", "--source-name", "files:test", *flags]
        settings = parse(IngestSettings, argv, "test")
        source = make_source(settings)
        source.check()
        run(spark, make_lake(settings), source, settings, threading.Event())

    return ingest_once


def table(lake: Path, name: str) -> pa.Table:
    """A Delta table's rows, read without Spark."""
    return DeltaTable(str(lake / name)).to_pyarrow_table()
