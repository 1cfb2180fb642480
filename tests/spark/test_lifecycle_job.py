"""The lifecycle beside the job's streams."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.ingest import make_lake, make_source
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.judging import caught_up_operator
from kafka_telemetry_lake.pipelines.ingest.streams import start_landing
from kafka_telemetry_lake.pipelines.lifecycle import follower, live_source
from kafka_telemetry_lake.pipelines.lifecycle.live_source import is_caught_up
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import CAPTURED, GOOD_ID, captured, record, write
from tests.support.live_job import live_job
from tests.support.patience import wait_until

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def events(lake: Path) -> list[tuple[str, str]]:
    rows = table(lake, "client_events").to_pylist()
    return sorted((row["client_instance_id"], row["event"]) for row in rows)


def test_a_live_job_says_who_falls_silent_though_nothing_lands_any_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_source, "LEAST_PAUSE_S", 0.5)
    payload = bytes(captured()["value"][0].as_py())
    write(tmp_path / "landed", "1.parquet", [record(0, payload, push_interval_ms="1000") | {"timestamp": LONG_AGO}])
    flags = ["--source", f"files:{tmp_path / 'landed'}", "--lake", str(tmp_path / "lake"), "--trigger-seconds", "0.5"]
    silent = [(GOOD_ID, "first_seen"), (GOOD_ID, "went_silent")]
    with live_job(spark, *flags):
        wait_until(
            lambda: (
                (tmp_path / "lake" / "client_events" / "_delta_log").is_dir() and events(tmp_path / "lake") == silent
            )
        )


def test_a_query_is_caught_up_only_when_it_has_looked(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "landed", "1.parquet", [record(0, b"")])
    flags = ["--source", f"files:{tmp_path / 'landed'}", "--lake", str(tmp_path / "lake")]
    settings = parse(IngestSettings, flags, "test")
    lake = make_lake(settings)
    lake.create_tables()
    operator = caught_up_operator(spark, lake, settings.limits(), 1 << 20, threading.Event())
    query = start_landing(spark, lake, make_source(settings), 0.5, operator)
    while True:
        caught_up = is_caught_up(query.status)
        if query.lastProgress is not None:
            break
        assert not caught_up
        time.sleep(0.01)
    wait_until(lambda: is_caught_up(query.status))
    query.stop()


def test_one_run_ends_at_the_last_landing_of_each_partition(ingest: Ingest, tmp_path: Path) -> None:
    records = [record(0, b""), record(0, b"", "B" * 22) | {"partition": 1}]
    ingest(write(tmp_path / "landed", "1.parquet", records).parent, tmp_path / "lake")
    assert [event for _, event in events(tmp_path / "lake")] == ["first_seen", "first_seen"]


@pytest.mark.slow
def test_many_clients_are_judged_in_tasks_of_spark_with_the_same_rows(
    ingest: Ingest, job_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "machine"))
    ingest(CAPTURED, few)
    monkeypatch.setattr(follower, "MOST_IN_PROCESS", -1)
    ingest(CAPTURED, many)
    assert [name for name in job_names if name.startswith("lifecycle")] == ["lifecycle: step 1"]
    for name in ("client_changes", "client_events"):
        first, second = (sorted(table(lake, name).to_pylist(), key=str) for lake in (few, many))
        assert first == second
        assert first
