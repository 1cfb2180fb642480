"""A lake's tables by name in Spark's catalog, so that views that outlive the session can stand on them."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pipelines.catalog import CATALOG
from pipelines.delta_log import absolute_uri


def register_tables(spark: SparkSession, lake: str, database: str) -> None:
    """Make `database` the current one, with every table of the catalog by its name.

    A table that the lake doesn't have yet is an empty view until this runs again; nothing is written into the lake.
    """
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    spark.catalog.setCurrentDatabase(database)
    for name, schema in CATALOG.items():
        uri = f"{absolute_uri(lake).rstrip('/')}/{name}"
        if DeltaTable.is_deltatable(uri):
            if spark.catalog.tableExists(name) and spark.catalog.getTable(name).tableType == "VIEW":
                spark.sql(f"DROP VIEW `{name}`")
            spark.sql(f"CREATE TABLE IF NOT EXISTS `{name}` USING DELTA LOCATION '{_quoted(uri)}'")
        elif not spark.catalog.tableExists(name):
            fields = from_arrow_schema(schema)
            nulls = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in fields)
            spark.sql(f"CREATE VIEW `{name}` AS SELECT {', '.join(nulls)} WHERE FALSE")


def _quoted(uri: str) -> str:
    return uri.replace("\\", "\\\\").replace("'", "\\'")
