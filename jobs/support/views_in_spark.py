"""Creates the views of ``sql/`` in a database of Spark's catalog."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.support.named_lake import session_of
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.findings.overrides import Overrides
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_named_views, create_views, register_tables
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES


def create(lake: str, database: str, driver_memory: str, overrides: Overrides = ()) -> None:
    """Create tables and views of a lake, and print the views' names."""
    if not is_lake(lake):
        raise UsageError(no_lake(lake))
    try:
        spark = spark_session("telemetry-lake views", driver_memory=driver_memory, lake=lake)
        register_tables(spark, lake, database)
        for name in create_views(spark, lake, database, overrides):
            print(f"{database}.{name}")
    except (Py4JError, PySparkException) as error:
        raise JobFailedError(f"views: {cause(str(error))}") from error


def create_by_name(names: Names, driver_memory: str, overrides: Overrides = ()) -> None:
    """Create the views of a lake in its schema, and print their names."""
    with session_of(names, "views", "local[*]", driver_memory) as spark:
        try:
            if not spark.catalog.tableExists(names.of(PUSHES.name)):
                raise UsageError(f"no lake in {names}: it has no table {PUSHES.name}")
            for name in create_named_views(spark, names, overrides):
                print(f"{names}.{name}")
        except (Py4JError, PySparkException) as error:
            raise JobFailedError(f"views: {cause(str(error))}") from error
