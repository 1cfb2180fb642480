"""Every view of `sql/` in Spark and in DuckDB: both take it, and both give the same columns."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.findings.model import Override, _fits
from kafka_telemetry_lake.pipelines.libraries.views import library_columns
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_views, view_tables
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from tests.support.quick_session import quick_session
from tests.unit.sql.test_client_libraries import SENT


@pytest.mark.slow
def test_spark_and_duckdb_take_every_view(spark: SparkSession, tmp_path: Path) -> None:
    """Each over empty tables of the columns that it reads: Spark would analyse what is below it again and again."""
    session = quick_session(spark)
    view_tables(session, str(tmp_path))
    with duckdb.connect() as connection:
        for name, schema in CATALOG.items():
            connection.register(name, schema.empty_table())
        for view in views().values():
            assert view.question, view.name
            assert view.reads <= CATALOG.keys() | views().keys(), view.name
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
            answer = session.sql(view.select)
            result = connection.sql(f'SELECT * FROM "{view.name}"')
            assert result.columns == answer.columns, view.name
            rows = [] if view.reads else [tuple(row) for row in answer.collect()]
            assert result.fetchall() == rows, view.name
            session.createDataFrame([], answer.schema).createOrReplaceTempView(view.name)
    overridden = views(
        (Override("batch-*", "costly_commits", (("latency", 5000),)), Override("x_", "throttled", off=True))
    )
    for name in ("instance_findings", "findings"):
        assert session.sql(overridden[name].select).columns == session.table(name).columns


@pytest.mark.slow
@pytest.mark.soak
def test_spark_plans_every_view(spark: SparkSession, tmp_path: Path) -> None:
    """Over empty tables a job would show no more. A view that another one reads is planned as a part of that one."""
    session = quick_session(spark)
    within = frozenset[str]().union(*(view.reads for view in views().values()))
    for name in create_views(session, str(tmp_path)):
        if name not in within:
            assert session.table(name)._jdf.queryExecution().executedPlan() is not None, name


def test_patterns_of_client_ids_fit_as_in_duckdb(spark: SparkSession) -> None:
    client_ids = ["batch-1", "batch_1", "batch-", "a%", "a!", "ab", "x'\\y", "x'\\", "new\nline", "é", ""]
    patterns = ["batch-*", "batch?1", "batch_1", "*_*", "a%", "a%*", "a!", "a?", "?!", "x'\\*", "*\\", "n*\n*", "?"]
    rows = spark.createDataFrame([(name,) for name in client_ids], "client_id STRING").selectExpr(
        "client_id", *(f"{_fits(pattern)} AS p{number}" for number, pattern in enumerate(patterns))
    )
    for row in rows.collect():
        fitting = [pattern for number, pattern in enumerate(patterns) if row[f"p{number}"]]
        assert fitting == [pattern for pattern in patterns if fnmatchcase(row["client_id"], pattern)], row


def test_libraries_are_recognised_as_in_duckdb(spark: SparkSession) -> None:
    sent = spark.createDataFrame(list(SENT), "name STRING, version STRING")
    columns = library_columns("name", "version")
    named = sent.selectExpr("name", "version", *(f"{columns[it][0]} AS {it}" for it in ("library", "library_version")))
    rows = named.selectExpr("*", f"{columns['library_number'][0]} AS number").collect()
    assert {(row[0], row[1]): (row["library"], row["library_version"]) for row in rows} == {
        software: known[:2] for software, known in SENT.items()
    }
    numbers = {row["version"]: row["number"] for row in rows if row["library"] == "java"}
    assert (numbers["4.3.1"], numbers["7.7.1-ccs"], numbers["unknown"]) == (4003001, 3007999, None)
