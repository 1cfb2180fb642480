"""Spark answers the 23 questions about a lake as DuckDB does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.quick_session import quick_session
from tests.unit.readers.asked import TABLES, Row, answers, duckdb_reader, make_lake, sql


@pytest.mark.slow
def test_the_same_rows_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    session, lake = quick_session(spark), str(make_lake(tmp_path / "lake"))
    for name in TABLES:
        session.read.format("delta").load(f"{lake}/{name}").createOrReplaceTempView(name)

    def ask(question: str) -> list[Row]:
        text = sql(question).replace('"', "`")
        return [tuple(row.values()) for row in session.sql(text).toArrow().to_pylist()]

    assert answers(ask) == answers(duckdb_reader(lake))
