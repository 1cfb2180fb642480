"""Commands that README and docs print, run in one Spark session over the captured pushes: a lake's first hour."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.query.views import views
from tests.support.documented_commands import ROOT, Command, commands
from tests.support.lake_tables import table
from tests.support.landing_records import CAPTURED, captured, write

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands take the tests' session, and leave it and the signals as they were."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    handlers = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGINT)}
    yield
    for sign, handler in handlers.items():
        signal.signal(sign, handler)
    spark.catalog.setCurrentDatabase("default")
    spark.sql("DROP DATABASE IF EXISTS kafka_clients CASCADE")


def printed(page: str, beginning: str) -> Command:
    return next(each for each in commands() if each.page == page and " ".join(each.words).startswith(beginning))


def run(command: Command, lake: Path, source: Path = CAPTURED) -> None:
    words = command.words[1:]
    words[words.index("--lake") + 1] = str(lake)
    if "--source" in words:
        words[words.index("--source") + 1] = f"files:{source}"
    assert cli.main(words) == 0, command.text


def test_ingest_replay_and_views(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(printed("README.md", "telemetry-lake ingest --source files:"), lake)
    assert table(lake, "metric_points").num_rows == 157_260
    run(printed("sql.md", "telemetry-lake views --lake"), lake)
    assert spark.table("kafka_clients.clients").count() == 139
    assert {each.name for each in spark.catalog.listTables("kafka_clients")} >= views().keys()

    write(tmp_path / "few", "landed.parquet", captured().slice(0, 200))
    run(printed("subscriptions.md", "telemetry-lake ingest --source files:"), tmp_path / "other", tmp_path / "few")
    assert table(tmp_path / "other", "pushes")["cluster_id"].to_pylist() == ["c1"] * 200
    points = table(tmp_path / "other", "metric_points").num_rows
    assert points > 1000
    replays = [each for each in commands() if each.words[:2] == ["telemetry-lake", "replay"]]
    assert len(replays) == 3
    for replay in replays:
        run(replay, tmp_path / "other")
        assert table(tmp_path / "other", "metric_points").num_rows == points
