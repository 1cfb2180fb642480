"""A lake of ten hours in which findings come and go: of client ids with healthy peers, a group, a broker, a user."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSH_OUTCOMES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.captured_lake import HOSTILE

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURS = 10
WEB, LONELY, ILL = "orders-web", "lonely", "orders-ill"
COMMITS = "org.apache.kafka.consumer.coordinator.commit.latency.avg"
ASSIGNED = "org.apache.kafka.consumer.coordinator.assigned.partitions"
NODES = "org.apache.kafka.producer.node.request.latency.avg"
# Mean commit of the client id in each hour: it opens at 1000 ms, and closes below 800 ms.
WEB_MS = (900.0, 1000.0, 900.0, 850.0, 700.0, 1500.0, 1600.0, 900.0, 700.0, 1200.0)
HEALTHY_MS = {"orders-a": 100.0, "orders-b": 200.0, HOSTILE: 400.0}
UNEVEN, EVEN = f"g {HOSTILE}", "even"
SLOW_BROKER = "3"
GREEDY = "User:greedy"
VERSION_AT = NOON + 5 * HOUR
JAVA = "apache-kafka-java"

Row = dict[str, Any]


def measured_lake(lake: Path, evaluated: bool = True) -> Path:
    """Make the lake, and evaluate its findings."""
    for table in TABLES:
        table.create(str(lake))
    pushed = list(_clients())
    _append(lake, METRIC_POINTS, pushed)
    _append(lake, PUSH_OUTCOMES, pushed)
    _append(lake, PUSHES, [*pushed, *_principals()])
    shop = sorted({(row["client_id"], row["client_instance_id"]) for row in pushed if row["application"]})
    _append(lake, CLIENT_CHANGES, [
        {"cluster_id": "c", "client_instance_id": instance, "client_id": client, "step": 1, "landed_at": NOON}
        for client, instance in shop
    ])  # fmt: skip
    _append(lake, CLIENT_ALIASES, [
        {"client_id": client, "application": "shop", "owner": "team", "valid_from": NOON}
        for client in sorted({client for client, _ in shop})
    ])  # fmt: skip
    _append(lake, CLIENT_EVENTS, [
        {"cluster_id": "c", "client_id": client, "client_instance_id": f"{client}-0", "at": VERSION_AT,
         "landed_at": VERSION_AT, "event": "software_changed"} for client in (WEB, LONELY)
    ])  # fmt: skip
    if evaluated:
        Evaluator(str(lake)).evaluate(int(time.time() * 1_000_000))
    return lake


def _clients() -> Iterator[Row]:
    """A row for each gauge of each push, with the columns of all tables."""
    for hour in range(HOURS):
        own = {**HEALTHY_MS, WEB: WEB_MS[hour], ILL: 1100.0 if hour == 3 else 50.0}
        for client, commit_ms in own.items():
            yield from _gauge(hour, client, f"{client}-0", COMMITS, commit_ms, application="shop")
        yield from _gauge(hour, WEB, f"{WEB}-1", COMMITS, 10.0, application="shop")
        yield from _gauge(hour, LONELY, f"{LONELY}-0", COMMITS, 2000.0, software="kgo")
        for group, shares in ((UNEVEN, (9.0, 1.0)), (EVEN, (5.0, 5.0))):
            for number, share in enumerate(shares):
                labels = [("group_id", group), ("group_member_id", f"m{number}")]
                yield from _gauge(hour, f"{group}-app", f"{group}-{number}", ASSIGNED, share, labels=labels)
        for number in range(5):
            for node, latency in (("1", 10.0), ("2", 12.0 + number), (SLOW_BROKER, 200.0 + hour)):
                yield from _gauge(hour, "sender", f"sender-{number}", NODES, latency, [("node_id", node)])


def _gauge(
    hour: int, client: str, instance: str, metric: str, value: float, attributes: list[tuple[str, str]] | None = None,
    *, software: str = JAVA, application: str = "", labels: list[tuple[str, str]] | None = None,
) -> Iterator[Row]:  # fmt: skip
    for quarter in range(4):
        at = NOON + hour * HOUR + quarter * timedelta(minutes=15)
        yield {
            "cluster_id": "c", "client_id": client, "client_instance_id": instance, "metric": metric, "kind": "gauge",
            "value": value, "attributes": attributes or [], "delta_status": "value", "time": at, "landed_at": at,
            "outcome": "points", "labels": labels or [], "push_interval_ms": 900_000, "principal": "User:shop",
            "client_software_name": software, "client_software_version": "4.1.0", "application": application,
        }  # fmt: skip


def _principals() -> Iterator[Row]:
    """In one hour 20 users push, one of them most of all bytes."""
    for number in range(20):
        name = GREEDY if number == 0 else f"User:{number}"
        yield {
            "cluster_id": "c", "client_id": "many", "client_instance_id": f"many-{number}", "landed_at": NOON + HOUR,
            "principal": name, "payload_bytes": 100_000 if number == 0 else 10 * number, "push_interval_ms": 900_000,
            "client_software_name": "other", "client_software_version": "1",
        }  # fmt: skip


def _append(lake: Path, table: Table, rows: list[Row]) -> None:
    named = [{name: row[name] for name in table.schema.names if name in row} for row in rows]
    stored = table.with_partition(pa.Table.from_pylist(named, table.schema))
    write_deltalake(table.create(str(lake)), stored, mode="append")
