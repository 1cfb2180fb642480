"""The views of Kafka Streams, Connect, share groups and transactions, against what captured clients counted."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.jobs import cli
from tests.clients.kinds import LANDED, TRUTH, check, lake_of
from tests.support.sql_views import told

pytestmark = pytest.mark.lake

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PAGE = Path(__file__).parents[3] / "docs" / "client-kinds.md"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake_of(tmp_path_factory.mktemp("kinds") / "lake", pq.read_table(LANDED), ("one", "two"))


def test_views_per_kind_say_what_the_clients_of_a_cluster_counted(lake: Path) -> None:
    check(lake, json.loads(TRUTH.read_text(encoding="utf-8")), "two")  # the page has those of the other one


def test_the_page_has_the_answers_of_the_captured_fleet(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = re.findall(r"```sql\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(printed) == 6
    for question, text in printed:
        of_one = re.sub(r"(FROM \w+)", r"\1 SEMI JOIN (SELECT 'one' AS cluster_id) USING (cluster_id)", question)
        assert cli.main(["query", "--lake", str(lake), of_one]) == 0
        assert capsys.readouterr().out == text, question


def client(client_id: str, address: str = "10.0.0.1", state: str = "active", **labels: str) -> Row:
    return {
        "cluster_id": "c", "client_instance_id": f"{client_id}@{address}{labels}", "client_id": client_id,
        "state": state, "step": 1, "client_software_version": "4.3.1", "client_address": address, "first_seen": START,
        "last_seen": START, "labels": list(labels.items()),
    }  # fmt: skip


def worker(group: str, address: str = "10.0.0.1", state: str = "active", own: str = "") -> list[Row]:
    """The consumers and producers of a worker's internal topics."""
    names = [f"{group}-{own}{topic}" for topic in ("configs", "offsets", "statuses")]
    return [client(name, address, state, **labels) for name in names for labels in ({}, {"group_id": group})]


def point(of: Row, metric: str, delta: float, **attributes: str) -> Row:
    return {
        "cluster_id": "c", "client_instance_id": of["client_instance_id"], "metric": f"org.apache.kafka.{metric}",
        "attributes": list(attributes.items()), "time": START + timedelta(seconds=5), "landed_at": START,
        "delta": delta, "delta_status": "ok",
    }  # fmt: skip


def test_connect_workers_are_told_by_their_internal_topics() -> None:
    clients = [
        *worker("etl"),
        *worker("etl", "10.0.0.2", own="b-"),
        *worker("old", "10.0.0.3", state="terminated"),
        *worker("near", "10.0.0.4")[:4],  # no statuses: something else
        client("connector-producer-a-1-0"),
        client("connector-producer-a-1-1"),
        client("connector-consumer-b-0"),
        client("connector-dlq-producer-b-0"),
        client("connector-consumer-b-1", state="terminated"),
        client("connector-producer-a-2"),
    ]
    columns = "worker_group, client_address, workers, connectors, tasks"
    rows = told("connect_workers", {"client_changes": clients}, columns)
    assert rows == [("etl", "10.0.0.1", 1, 3, 4), ("etl", "10.0.0.2", 1, 0, 0), ("old", "10.0.0.3", 0, 0, 0)]


def test_a_task_has_no_worker_group_where_two_are_at_its_address() -> None:
    lone, shared = client("connector-consumer-a-1-3"), client("connector-consumer-b-0", "10.0.0.2")
    unknown = client("connector-dlq-producer-b-0", "10.0.0.3")
    other = client("connector-lost-b-0")
    clients = [lone, shared, unknown, other, *worker("x"), *worker("x", "10.0.0.2"), *worker("y", "10.0.0.2")]
    read = "consumer.fetch.manager.records.consumed.total"
    points = [
        point(lone, read, 5), point(lone, read, 5, topic="t"), point(shared, read, 7), point(other, read, 1),
        point(unknown, "producer.record.send.total", 2),
    ]  # fmt: skip
    tables = {"client_changes": clients, "metric_points": points}
    assert told("connect_tasks", tables, "connector, task, role, worker_group, records") == [
        ("a-1", 3, "sink", "x", 5),
        ("b", 0, "dead_letters", None, 2),
        ("b", 0, "sink", None, 7),
    ]
    assert told("connect_workers", {"client_changes": clients}, "tasks") == [(1,), (None,), (None,)]


def test_a_thread_that_died_shows_and_its_process_counts_it() -> None:
    admin, thread = client("app-1-admin"), client("app-1-StreamThread-1-consumer", group_id="app")
    ids = {"process_id": "p", "thread_id": "app-1-StreamThread-1"}
    points = [
        point(admin, "stream.client.state", 0, application_id="app", process_id="p") | {"value": 5.0},
        point(admin, "stream.failed.stream.threads", 1),
        point(admin, "stream.alive.stream.threads", 0) | {"value": 3.0},
        point(admin, "stream.recording.level", 0) | {"value": 1.0},
        point(thread, "stream.thread.thread.state", 0, **ids) | {"value": 6.0},
    ]
    tables = {"client_changes": [admin, thread], "metric_points": points}
    columns = "state, alive_threads, failed_threads, debug_metrics"
    assert told("streams_processes", tables, columns) == [("PENDING_ERROR", 3, 1, True)]
    assert told("streams_threads", tables, "application_id, state, tasks") == [("app", "DEAD", 0)]


def test_aborts_that_pushes_can_not_tell_apart_count_once_and_others_have_no_row() -> None:
    bank, plain = client("bank", transactional_id="t"), client("plain")
    times = ["producer.txn.commit.time.ns.total", "producer.txn.abort.time.ns.total"]
    pushed = ((bank, times[0], 6e6), (bank, times[1], 2e6), (bank, times[1], 0), (plain, times[1], 9e6))
    tables = {"client_changes": [bank, plain], "metric_points": [point(*each) for each in pushed]}
    columns = "transactional_id, commit_ms, abort_ms, commits_at_least, aborts_at_least, abort_ratio"
    assert told("transactions", tables, columns) == [("t", 6, 2, 1, 1, 0.25)]
