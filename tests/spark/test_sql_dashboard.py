"""The dashboard's questions in Spark and in DuckDB: the same rows; and views that outlive a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dashboards.lake import Lake
from dashboards.questions import FOLDER, Grain, names, question
from pipelines.spark_catalog import register_tables
from pipelines.views import create_views, views
from tests.dashboard.captured_lake import captured_lake

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SENT, LAG = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.consumer.fetch.manager.records.lag.max"
IDLE = "org.apache.kafka.consumer.poll.idle.ratio.avg"
PRODUCER = "TYWe5VpYQeqX8DY0p6zLDQ"
ASKED: dict[str, Any] = {
    "start": START, "stop": START + timedelta(hours=1), "first_window": START, "step_ms": 60_000, "top": 10_000,
    "metrics": [SENT, LAG, IDLE], "instance": PRODUCER, "metric": SENT,
}  # fmt: skip
GRAINS: tuple[Grain, ...] = ("points", "minutes", "hours")
EMPTY_HERE = {
    "quarantined",
    "receivers",
    "quota_use",
    "freshness",
}  # captured pushes are whole, and without brokers' records


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured_lake(tmp_path_factory.mktemp("questions") / "lake")


@pytest.mark.slow
def test_spark_and_duckdb_answer_every_question_alike(spark: SparkSession, lake: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    create_views(session, str(lake))
    duck = Lake(str(lake))
    duck.versions()
    _ask(session, "instances").createOrReplaceTempView("chosen")
    chosen = duck.ask("instances", ASKED)
    for name in names():
        for grain in GRAINS if question(name, "hours").duckdb != question(name, "points").duckdb else GRAINS[:1]:
            _ask(session, f"_rollups_{grain}").createOrReplaceTempView("rollups")
            expected = _rows(duck.ask(name, ASKED, chosen, grain))
            assert _rows(_ask(session, name).toArrow()) == expected, (name, grain)
            assert expected or name in EMPTY_HERE, name


def test_views_outlive_the_session(spark: SparkSession, lake: Path) -> None:
    session = spark.newSession()
    register_tables(session, str(lake), "views_test")
    assert create_views(session, str(lake), "views_test") == list(views())
    other = spark.newSession()
    found = {row["finding"] for row in other.sql("SELECT DISTINCT finding FROM views_test.findings").collect()}
    assert {"failed_records", "stale_metadata", "one_record_per_request", "uncompressed_records"} <= found
    assert other.table("views_test.quotas").count() == 0  # not in this lake yet
    register_tables(session, str(lake), "views_test")  # again, as after an update
    other.sql("DROP DATABASE views_test CASCADE")


def _ask(session: SparkSession, name: str) -> DataFrame:
    text = (FOLDER / f"{name}.sql").read_text("utf-8")
    markers = {marker: value for marker, value in ASKED.items() if f":{marker}" in text}
    return session.sql(text, args=markers)


def _rows(answer: pa.Table) -> list[str]:
    return sorted(str({name: _plain(value) for name, value in row.items()}) for row in answer.to_pylist())


def _plain(value: Any) -> Any:
    """Numbers to nine digits, whatever their type; instants in one zone; maps in one order."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return sorted(map(str, value))
    try:
        return f"{float(value):.9g}"
    except ValueError:
        return str(value)
