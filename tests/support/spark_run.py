"""Runs of the ingest job in a Spark session that there is."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.ingest import RunningJob, make_lake, make_source
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.ingest_by_name import run as ingest_named
from kafka_telemetry_lake.pipelines.tables.names import Names


def ingest_once(spark: SparkSession, folder: Path | None, lake: Path, *flags: str) -> None:
    """Over a folder of captured pushes, or with flags that name a Kafka source."""
    source_flags = ["--source", "kafka"] if folder is None else ["--source", f"files:{folder}"]
    argv = [*source_flags, "--lake", str(lake), "--once", "--source-name", "test", *flags]
    asked = parse(IngestSettings, argv, "test")
    source = make_source(asked)
    source.check()
    RunningJob(spark, make_lake(asked), source, asked, threading.Event()).run()


def ingest_by_name(spark: SparkSession, folder: Path, names: Names, checkpoints: Path, *flags: str) -> None:
    """The same into a catalog that the session has."""
    argv = ["--source", f"files:{folder}", "--catalog", names.catalog, "--schema", names.schema, "--checkpoints",
            str(checkpoints), "--once", "--source-name", "test", *flags]  # fmt: skip
    asked = parse(IngestSettings, argv, "test")
    asked.check_together()
    ingest_named(spark, names, make_source(asked), asked, threading.Event())
