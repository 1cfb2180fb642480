"""Creates the views of ``sql/`` in a database of Spark's catalog."""

from __future__ import annotations

from pyspark.errors import PySparkException

from kafka_telemetry_lake.jobs.running import JobFailedError
from kafka_telemetry_lake.jobs.settings import UsageError
from kafka_telemetry_lake.pipelines.query.finding_overrides import Overrides
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_views, register_tables
from kafka_telemetry_lake.pipelines.runtime.session import spark_session


def create(lake: str, database: str, driver_memory: str, overrides: Overrides = ()) -> None:
    """Create tables and views of a lake, and print the views' names."""
    if not is_lake(lake):
        raise UsageError(f"no lake at {lake}: create one with `telemetry-lake ingest --lake {lake}`")
    try:
        spark = spark_session("telemetry-lake views", driver_memory=driver_memory, lake=lake)
        register_tables(spark, lake, database)
        for name in create_views(spark, lake, database, overrides):
            print(f"{database}.{name}")
    except PySparkException as error:
        raise JobFailedError(" ".join(str(error).split())) from error
