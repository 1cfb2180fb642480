"""Registers a lake's tables and views in Spark: in a database of its catalog, or for one session."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.lake.moments import MOMENTS, OF_MOMENTS, newest_moment
from kafka_telemetry_lake.pipelines.lake.paths import absolute_uri, hadoop_path, literal
from kafka_telemetry_lake.pipelines.query.subscription_views import update_subscription_views
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import CannotRunError

NO_LINES = "(SELECT '' AS value, named_struct('file_name', '') AS _metadata WHERE FALSE)"


def register_tables(spark: SparkSession, lake: str, database: str) -> None:
    """Make `database` the current one, and register every table of the catalog in it.

    A table that the lake doesn't have yet becomes an empty view, until this runs again. Nothing is written to the lake.
    """
    place = hadoop_path(lake).partition("://")[2]
    if ":" in place and literal(place) != place:
        raise CannotRunError(
            rf"lake {place} has a colon and one of [ ] {{ }} * ? \ in its path, and Spark can't read its log: rename it"
        )
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    spark.catalog.setCurrentDatabase(database)
    for name, schema in CATALOG.items():
        uri = table_uri(absolute_uri(lake), name)
        if DeltaTable.is_deltatable(uri):
            if spark.catalog.tableExists(name) and spark.catalog.getTable(name).tableType == "VIEW":
                spark.sql(f"DROP VIEW `{name}`")
            location = quoted(table_uri(hadoop_path(lake), name))
            spark.sql(f"CREATE TABLE IF NOT EXISTS `{name}` USING DELTA LOCATION {location}")
        elif not spark.catalog.tableExists(name):
            spark.sql(f"CREATE VIEW `{name}` AS {_empty(schema)}")
    spark.sql(f"CREATE OR REPLACE VIEW `{MOMENTS}` AS {_moments(lake)}")


def create_named_views(spark: SparkSession, names: Names, overrides: Overrides = ()) -> list[str]:
    """Create all views in the schema of a lake of tables by name, and make it the current one; returns their names.

    A table that the lake lacks, `moments` among them, becomes an empty view.
    """
    spark.catalog.setCurrentCatalog(names.catalog)
    spark.catalog.setCurrentDatabase(names.schema)
    for name, schema in CATALOG.items():
        if not spark.catalog.tableExists(names.of(name)):
            spark.sql(f"CREATE VIEW {names.of(name)} AS {_empty(schema)}")
    spark.sql(f"CREATE OR REPLACE VIEW {names.of(MOMENTS)} AS {_moments_in(NO_LINES)}")
    for view in views(overrides).values():
        spark.sql(f"CREATE OR REPLACE VIEW {names.of(view.name)} AS {view.select}")
    return list(views())


def create_views(spark: SparkSession, lake: str, database: str | None = None, overrides: Overrides = ()) -> list[str]:
    """Create all views in Spark, and one for each subscription. Returns the names without those of subscriptions.

    Args:
        database: database for persistent views; it must have the lake's tables. None: temporary views of the tables
            (`view_tables`), and views for this session.
        overrides: other bounds of the findings for some client ids.
    """
    if database is None:
        view_tables(spark, lake)
    kind = "TEMPORARY VIEW" if database is None else "VIEW"
    for view in views(overrides).values():
        name = f"`{view.name}`" if database is None else f"`{database}`.`{view.name}`"
        spark.sql(f"CREATE OR REPLACE {kind} {name} AS {view.select}")
    update_subscription_views(spark, lake, set(views()), database)
    return list(views())


def view_tables(spark: SparkSession, lake: str) -> None:
    """Create temporary views of the tables at the newest moment; a table that the lake doesn't have is empty."""
    moment = newest_moment(lake)
    for name, schema in CATALOG.items():
        uri = table_uri(lake, name)
        if DeltaTable.is_deltatable(uri):
            version = moment.at(name, DeltaTable(uri)).version()
            rows = spark.read.format("delta").option("versionAsOf", version).load(uri)
        else:
            rows = spark.createDataFrame([], from_arrow_schema(schema))
        rows.createOrReplaceTempView(name)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{MOMENTS}` AS {_moments(lake)}")


def _empty(schema: pa.Schema) -> str:
    """A SELECT of no rows with these columns."""
    fields = from_arrow_schema(schema)
    nulls = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in fields)
    return f"SELECT {', '.join(nulls)} WHERE FALSE"


def _moments(lake: str) -> str:
    """A SELECT of the moments that readers may ask for, with the version of each table (`moments_table`)."""
    log = table_uri(hadoop_path(lake), f"{PUSH_OUTCOMES.name}/_delta_log")
    if not DeltaTable.is_deltatable(table_uri(absolute_uri(lake), PUSH_OUTCOMES.name)):
        return _moments_in(NO_LINES)
    # No pattern fits a folder whose name has a colon. Other files of a log than commits have no such lines.
    files = log if ":" in log.partition("://")[2] else f"{literal(log)}/*.json"
    return _moments_in(f"text.`{files.replace('`', '``')}`")


def _moments_in(lines: str) -> str:
    """A SELECT of these moments from the lines of a log."""
    columns = ("version" if table is PUSH_OUTCOMES else f"note.versions['{table.name}']" for table in OF_MOMENTS)
    named = (f"{column} AS {table.name}" for column, table in zip(columns, OF_MOMENTS, strict=True))
    return f"""
      SELECT note.moment AS moment, committed_at, {", ".join(named)}
      FROM (
        SELECT
          from_json(get_json_object(value, '$.commitInfo.userMetadata'),
                    'moment BIGINT, versions MAP<STRING, BIGINT>') AS note,
          timestamp_millis(CAST(get_json_object(value, '$.commitInfo.timestamp') AS BIGINT)) AS committed_at,
          CAST(substr(_metadata.file_name, 1, 20) AS BIGINT) AS version
        FROM {lines}
        WHERE startswith(value, '{{"commitInfo"')
      ) AS entries
      WHERE note.moment IS NOT NULL"""
