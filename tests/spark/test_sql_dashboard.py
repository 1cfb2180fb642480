"""The dashboard's questions in Spark and in DuckDB: the same rows; and views that outlive a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.questions import FOLDER, Grain, names, question
from kafka_telemetry_lake.pipelines.lake.moments import READ
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_views, register_tables, view_tables
from kafka_telemetry_lake.pipelines.query.views import needed, views
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_LAG_SAMPLES
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    PUSH_OUTCOMES,
    PUSHES,
    QUARANTINE,
    QUOTA_USAGE,
    RECEIVER_HEALTH,
)
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.captured_lake import captured_lake
from tests.support.quick_session import quick_session

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
FETCH = "org.apache.kafka.consumer.fetch.manager."
SENT, LAG = "org.apache.kafka.producer.record.send.total", f"{FETCH}records.lag.max"
IDLE = "org.apache.kafka.consumer.poll.idle.ratio.avg"
PRODUCER = "TYWe5VpYQeqX8DY0p6zLDQ"
ASKED: dict[str, Any] = {
    "start": START, "stop": START + timedelta(hours=1), "first_window": START, "step_ms": 60_000, "top": 10_000,
    "metrics": [SENT, LAG, IDLE], "instance": PRODUCER, "metric": SENT,
    "filters": 1, "client": "java-none-producer_stop", "hour": START, "topic": "orders", "group": "g", "instances": 40,
    "entities": 10, "ids": [PRODUCER], "software": ["", "apache-kafka-java", "librdkafka"], "clusters": ["", "c"],
}  # fmt: skip
SUMMED = "client_windows"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured pushes, and what such pushes alone don't bring about: what only brokers and damaged pushes do."""
    lake = captured_lake(tmp_path_factory.mktemp("questions") / "lake")
    key = {"cluster_id": "c", "topic": "t", "partition": 9, "client_id": "damaged"}
    times: list[dict[str, Any]] = [
        {"offset": n, "landed_at": START + timedelta(minutes=n), "landed_date": START.date()} for n in range(9)
    ]
    _append(lake, QUARANTINE, [
        key | at | {"scope": "push", "reason": f"REASON_{n % 2}", "detail": f"detail {n}"} for n, at in enumerate(times)
    ])  # fmt: skip
    _append(lake, PUSHES, [
        key | at | {"client_instance_id": PRODUCER, "received_at": at["landed_at"] - timedelta(milliseconds=7**n)}
        for n, at in enumerate(times)
    ])  # fmt: skip
    _append(lake, RECEIVER_HEALTH, [
        at | {"cluster_id": "c", "broker_id": n % 2, "started_at": START, "reported_at": at["landed_at"],
              "received": 9 * n, "landed": 8 * n, "dropped_total": n - n // 2, "queue_depth": n // 2}
        for n, at in enumerate(times)
    ])  # fmt: skip
    _append(lake, QUOTA_USAGE, [
        at | {"cluster_id": "c", "client_id": ("", "c1", "c2")[n % 3], "user": ("ANONYMOUS", "", "")[n % 3],
              "broker_id": n % 2, "window_start": at["landed_at"], "window_seconds": 10, "source": "broker",
              "quota_type": ("produce", "fetch")[n % 2], "used_percent": 13.0 * n, "throttled": n % 3 == 0}
        for n, at in enumerate(times)
    ])  # fmt: skip
    clients = ("librdkafka-consumer_none-delta", "nobody", None)
    _append(lake, FINDING_CHANGES, [
        at | {"finding_id": f"{n}", "finding": "failed_records", "severity": "error", "scope": "any", "subject": "s",
              "client_id": client, "change": "opened", "opened_at": at["landed_at"], "recorded_at": START}
        for n, (at, client) in enumerate(zip(times, clients, strict=False))
    ])  # fmt: skip
    _append_a_late_consumer(lake)
    _append_what_the_job_and_sync_know(lake)
    return lake


def _append_what_the_job_and_sync_know(lake: Path) -> None:
    """Changes to be marked, the lag of a group as polled, and an owner."""
    key = {"cluster_id": "c", "topic": "orders", "partition": 0}
    events = [("mass_restart", None), ("data_path_dead", PRODUCER), ("software_changed", PRODUCER)]
    _append(lake, CLIENT_EVENTS, [
        key | {"offset": 100 + n, "landed_at": START + timedelta(minutes=n), "landed_date": START.date(),
               "event": event, "at": START + timedelta(minutes=n), "client_instance_id": instance,
               "client_id": instance and "orders"}
        for n, (event, instance) in enumerate(events)
    ])  # fmt: skip
    _append(lake, GROUP_LAG_SAMPLES, [
        key | {"group_id": "g", "sampled_at": START + timedelta(seconds=20 * n), "committed_offset": 7 * n,
               "end_offset": 9 * n, "landed_date": START.date()}
        for n in range(9)
    ])  # fmt: skip
    _append(lake, CLIENT_CHANGES, [
        key | {"client_instance_id": PRODUCER, "client_id": "orders", "step": 1, "state": "active", "pushes": 1,
               "landed_at": START, "landed_date": START.date(), "offset": 1}
    ])  # fmt: skip
    _append(lake, CLIENT_ALIASES, [{"cluster_id": "c", "client_id": "orders", "application": "shop", "owner": "a",
                                    "valid_from": START}])  # fmt: skip


def _append_a_late_consumer(lake: Path) -> None:
    """Two partitions whose lag grows, at a rate at which it takes hours, and a last push that brokers may refuse."""
    key = {"cluster_id": "c", "topic": "t", "partition": 8, "client_id": "late", "client_instance_id": "late"}
    pushes: list[dict[str, Any]] = [
        key | {"offset": n, "landed_at": START + timedelta(minutes=5 * n), "landed_date": START.date()}
        for n in range(12)
    ]
    points: list[dict[str, Any]] = []
    for n, push in enumerate(pushes):
        at = {"time": push["landed_at"], "delta_start": push["landed_at"] - timedelta(minutes=5)}
        counter = {"metric": f"{FETCH}records.consumed.total", "kind": "sum", "delta_status": "ok", "delta": 77.0}
        points.append(push | at | counter | {"attributes": [("topic", "orders")]})
        for partition in (1, 2):
            gauge = {"kind": "gauge", "delta_status": "value", "value": partition * (5000.0 + 1000 * n)}
            attributes = [("topic", "orders"), ("partition", str(partition))]
            points.append(push | at | gauge | {"metric": f"{FETCH}records.lag", "attributes": attributes})
    _append(lake, METRIC_POINTS, points)
    _append(lake, PUSH_OUTCOMES, [push | {"outcome": "points", "decompressed_bytes": 1_100_000} for push in pushes])
    _append(lake, CLIENT_EVENTS, [pushes[-1] | {"event": "went_silent", "at": START + timedelta(minutes=70)}])


def _append(lake: Path, table: Table, rows: list[dict[str, Any]]) -> None:
    table.create(str(lake))
    stored_rows = [{name: value for name, value in row.items() if name in table.stored.names} for row in rows]
    # Readers see the pushes that have outcomes.
    judged = Transaction(READ, DeltaTable(PUSHES.uri(str(lake))).version())
    write_deltalake(
        table.uri(str(lake)), pa.Table.from_pylist(stored_rows, table.stored), mode="append",
        commit_properties=CommitProperties(app_transactions=[judged] if table is PUSH_OUTCOMES else None),
    )  # fmt: skip


@pytest.mark.slow
def test_spark_and_duckdb_answer_every_question_alike(spark: SparkSession, lake: Path) -> None:
    session = quick_session(spark)
    view_tables(session, str(lake))
    for view in needed(frozenset[str]().union(*(question(name).reads for name in names())))[0]:
        session.sql(f"CREATE TEMPORARY VIEW `{view.name}` AS {view.select}")
    duck = LakeReader(str(lake))
    duck.versions()
    _ask(session, "instances").cache().createOrReplaceTempView("chosen")
    session.catalog.cacheTable("instance_findings")
    chosen = duck.ask("instances", ASKED)
    # What reads rollups reads the same columns of each grain: one question compares them all.
    by_grain: dict[Grain, list[str]] = {"points": [SUMMED], "hours": [SUMMED], "minutes": names()}
    for grain, asked in by_grain.items():
        _ask(session, f"_rollups_{grain}").cache().createOrReplaceTempView("rollups")
        for name in asked:
            expected = _rows(duck.ask(name, ASKED, chosen, grain))
            assert _rows(_ask(session, name).toArrow()) == expected, (name, grain)
            assert expected, (name, grain)
    session.catalog.clearCache()


@pytest.mark.slow
@pytest.mark.soak
def test_views_outlive_the_session(spark: SparkSession, lake: Path) -> None:
    session = quick_session(spark)
    register_tables(session, str(lake), "views_test")
    assert create_views(session, str(lake), "views_test") == list(views())
    other = quick_session(spark)
    found = {row["finding"] for row in other.sql("SELECT DISTINCT finding FROM views_test.findings").collect()}
    assert {"failed_records", "stale_metadata", "one_record_per_request", "uncompressed_records"} <= found
    assert {"growing_lag", "time_lag", "telemetry_cut_off"} <= found
    assert other.table("views_test.quotas").count() == 0  # not in this lake yet
    assert other.table("views_test.moments").count() == 1  # the batch of the captured pushes
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
    except (TypeError, ValueError):  # a text, or a date
        return str(value)
