"""Registers a lake's tables and views in Spark: in a database of its catalog, or for one session."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_telemetry_lake.pipelines.lake.paths import absolute_uri
from kafka_telemetry_lake.pipelines.query.finding_overrides import Overrides
from kafka_telemetry_lake.pipelines.query.subscription_views import update_subscription_views
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.table import table_uri


def register_tables(spark: SparkSession, lake: str, database: str) -> None:
    """Make `database` the current one, and register every table of the catalog in it.

    A table that the lake doesn't have yet becomes an empty view, until this runs again. Nothing is written to the lake.
    """
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    spark.catalog.setCurrentDatabase(database)
    for name, schema in CATALOG.items():
        uri = table_uri(absolute_uri(lake), name)
        if DeltaTable.is_deltatable(uri):
            if spark.catalog.tableExists(name) and spark.catalog.getTable(name).tableType == "VIEW":
                spark.sql(f"DROP VIEW `{name}`")
            spark.sql(f"CREATE TABLE IF NOT EXISTS `{name}` USING DELTA LOCATION '{_quoted(uri)}'")
        elif not spark.catalog.tableExists(name):
            fields = from_arrow_schema(schema)
            nulls = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in fields)
            spark.sql(f"CREATE VIEW `{name}` AS SELECT {', '.join(nulls)} WHERE FALSE")


def create_views(spark: SparkSession, lake: str, database: str | None = None, overrides: Overrides = ()) -> list[str]:
    """Create all views in Spark, and one for each subscription. Returns the names without those of subscriptions.

    Args:
        database: database for persistent views; it must have the lake's tables. None: temporary views of the tables
            and views for this session; a table that the lake doesn't have is empty.
        overrides: other bounds of the findings for some client ids.
    """
    if database is None:
        for name, schema in CATALOG.items():
            uri = table_uri(lake, name)
            if DeltaTable.is_deltatable(uri):
                rows = spark.read.format("delta").load(uri)
            else:
                rows = spark.createDataFrame([], from_arrow_schema(schema))
            rows.createOrReplaceTempView(name)
    kind = "TEMPORARY VIEW" if database is None else "VIEW"
    for view in views(overrides).values():
        name = f"`{view.name}`" if database is None else f"`{database}`.`{view.name}`"
        spark.sql(f"CREATE OR REPLACE {kind} {name} AS {view.select}")
    update_subscription_views(spark, lake, set(views()), database)
    return list(views())


def _quoted(uri: str) -> str:
    return uri.replace("\\", "\\\\").replace("'", "\\'")
