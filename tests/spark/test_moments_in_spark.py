"""Spark's users get the moments too: a view with the tables' versions, and temporary views of one moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.spark_catalog import view_tables
from tests.support.operator_alone import Job, without_spark
from tests.support.quick_session import quick_session


@pytest.mark.slow
def test_moments_in_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    job = Job(tmp_path)
    for _ in range(2):
        job.batch()
    rows = run_query(job.lake, "SELECT count(*) AS n FROM metric_points").read_all()["n"].to_pylist()
    job.cut_off_batch(monkeypatch)
    session = quick_session(spark)
    view_tables(session, job.lake)
    assert [session.table("metric_points").count()] == rows
    assert DeltaTable(f"{job.lake}/metric_points").count() > rows[0]
    expected = run_query(job.lake, "FROM moments ORDER BY moment").read_all().to_pylist()
    assert [row["moment"] for row in expected] == [1, 2]
    assert session.sql("SELECT * FROM moments ORDER BY moment").toArrow().to_pylist() == expected
    at = f"delta.`{job.lake}/metric_points` VERSION AS OF {expected[1]['metric_points']}"
    assert [session.sql(f"SELECT * FROM {at}").count()] == rows
    history = session.sql(f"DESCRIBE HISTORY delta.`{job.lake}/push_outcomes`").where("userMetadata IS NOT NULL")
    assert [row["version"] for row in history.collect()] == [row["push_outcomes"] for row in reversed(expected)]
