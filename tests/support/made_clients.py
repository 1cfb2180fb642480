"""Client ids that did something in an hour, and what the findings say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.sql_views import answer

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)
PRODUCER, CONSUMER, STREAM = "org.apache.kafka.producer.", "org.apache.kafka.consumer.", "org.apache.kafka.stream."
FETCH, GROUP = f"{CONSUMER}fetch.manager.", f"{CONSUMER}coordinator."
SENT = f"{PRODUCER}record.send.total"

# Of counters: increase and covered seconds, which a push in each quarter of the hour has an even part of. Of gauges:
# value, and how many pushes have it, as a negative number.
Metrics = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Client:
    """What each instance of a client id did in the hour."""

    metrics: Metrics = field(default_factory=dict)
    software: tuple[str | None, str | None] = ("apache-kafka-java", "4.4.0")
    outcomes: tuple[dict[str, Any], ...] = ()
    instances: int = 1
    quarantine: tuple[dict[str, Any], ...] = ()
    push_interval_ms: int = 60_000
    labels: tuple[tuple[str, str], ...] = (("group_id", "g"), ("group_member_id", "m"))

    def rows(self, client_id: str) -> dict[str, list[dict[str, Any]]]:
        landed = {"cluster_id": "c", "client_id": client_id, "landed_at": HOUR, "landed_date": HOUR.date()}
        given = self.outcomes or [{"client_instance_id": f"i{n}", "outcome": "points"} for n in range(self.instances)]
        ids = list(dict.fromkeys(row["client_instance_id"] for row in given))
        name, version = self.software
        push = {
            "push_interval_ms": self.push_interval_ms,
            "client_software_name": name,
            "client_software_version": version,
        }
        points = [
            {"client_instance_id": one, "metric": metric, "delta_status": "ok", "time": HOUR} | point
            for one in ids
            for metric, measured in self.metrics.items()
            for point in _points(*measured)
        ]
        return {
            "metric_points": [landed | point for point in points],
            "push_outcomes": [landed | {"labels": list(self.labels)} | row for row in given],
            "pushes": [landed | push | {"client_instance_id": one} for one in ids],
            "quarantine": [landed | {"client_instance_id": ids[0]} | row for row in self.quarantine],
        }


def _points(value: float, covered_s: float) -> list[dict[str, Any]]:
    if covered_s < 0:
        return [_point(value, covered_s)] * int(-covered_s)
    quarters = max(1, int(covered_s / 900))
    even = _point(value / quarters, covered_s / quarters)
    return [even | {"landed_at": HOUR + timedelta(minutes=15 * quarter)} for quarter in range(quarters)]


def _point(value: float, covered_s: float) -> dict[str, Any]:
    if covered_s >= 0:
        return {"kind": "sum", "delta": value, "delta_start": HOUR - timedelta(seconds=covered_s)}
    return {"kind": "gauge", "value": value}


def tables_of(clients: Mapping[str, Client]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all clients, by client id."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for client_id, client in clients.items():
        for table, rows in client.rows(client_id).items():
            tables.setdefault(table, []).extend(rows)
    return tables


Found = dict[str, tuple[str, str, str]]


def found_by_client(clients: dict[str, Client], closing: bool = False) -> dict[str, Found]:
    """Severity, evidence and advice by finding, by client id; one query, as planning it is what takes time."""
    found: dict[str, Found] = {client_id: {} for client_id in clients}
    for row in answer("findings", tables_of(clients), closing=closing):
        assert row["window_start"] == HOUR
        evidence = without_hour(row["evidence"])
        found[row["client_id"]][row["finding"]] = (row["severity"], evidence, row["advice"])
    return found


def without_hour(evidence: str) -> str:
    """The evidence without its end, which names the hour."""
    assert evidence.endswith(", in the hour from 2026-11-21 12:00 UTC")
    return evidence.partition(", in the hour from ")[0]


def found(client: Client) -> Found:
    return found_by_client({"orders": client})["orders"]


def gauge(value: float, pushes: int = 1) -> tuple[float, float]:
    return value, -pushes


QUIET: Metrics = {
    SENT: (36_000, 3600),
    f"{PRODUCER}record.retry.total": (0, 3600),
    f"{PRODUCER}record.error.total": (0, 3600),
    f"{PRODUCER}records.per.request.avg": gauge(20),
    f"{PRODUCER}batch.size.avg": gauge(2000),
    f"{PRODUCER}batch.size.max": gauge(16_000),
    f"{PRODUCER}record.size.avg": gauge(100),
    f"{PRODUCER}compression.rate.avg": gauge(0.4),
    f"{PRODUCER}topic.byte.total": (3_600_000, 3600),
    f"{PRODUCER}buffer.exhausted.total": (0, 3600),
    f"{PRODUCER}bufferpool.wait.ratio": gauge(0),
    f"{PRODUCER}connection.creation.total": (9, 3600),
    f"{PRODUCER}failed.authentication.total": (0, 3600),
    f"{PRODUCER}metadata.age": gauge(299),
    f"{PRODUCER}produce.throttle.time.max": gauge(0),
    f"{CONSUMER}coordinator.rebalance.total": (2, 3600),
    f"{CONSUMER}time.between.poll.max": gauge(149_999),
    f"{CONSUMER}poll.idle.ratio.avg": gauge(0.4),
    f"{CONSUMER}fetch.manager.records.lag.max": gauge(50_000),
    f"{PRODUCER}requests.in.flight": gauge(1),
    f"{PRODUCER}request.latency.avg": gauge(10),
    f"{PRODUCER}request.latency.max": gauge(23_999),
    f"{PRODUCER}buffer.available.bytes": gauge(3_355_444),
    f"{PRODUCER}buffer.total.bytes": gauge(33_554_432),
    f"{PRODUCER}batch.split.total": (0, 3600),
    f"{PRODUCER}record.size.max": gauge(838_860),
    f"{PRODUCER}record.queue.time.avg": gauge(1000),
    f"{PRODUCER}record.queue.time.max": gauge(60_000),
    f"{PRODUCER}metadata.wait.time.ns.total": (36e9, 3600),
    f"{PRODUCER}txn.abort.time.ns.total": (1e8, 3600),
    f"{PRODUCER}txn.commit.time.ns.total": (9e8, 3600),
    f"{PRODUCER}connection.close.total": (5, 3600),
    f"{PRODUCER}connection.count": gauge(2),
    f"{PRODUCER}failed.reauthentication.total": (0, 3600),
    f"{GROUP}rebalance.latency.max": gauge(44_999),
    f"{GROUP}failed.rebalance.total": (2, 3600),
    f"{GROUP}last.heartbeat.seconds.ago": gauge(14, 3),
    f"{GROUP}heartbeat.response.time.max": gauge(14_999),
    f"{GROUP}commit.latency.avg": gauge(999),
    f"{GROUP}commit.total": (3600, 3600),
    f"{GROUP}assigned.partitions": gauge(1, 3),
    f"{FETCH}fetch.total": (180_000, 3600),
    f"{FETCH}fetch.latency.avg": gauge(999),
    f"{CONSUMER}incoming.byte.total": (180e6, 3600),
    f"{STREAM}failed.stream.threads": (0, 3600),
    f"{STREAM}task.dropped.records.total": (0, 3600),
}


IDLE, LAG = f"{CONSUMER}poll.idle.ratio.avg", f"{FETCH}records.lag.max"


def waits(share: float) -> Metrics:
    """The ratio that Java pushes of a consumer that waits this share of the time in polls of even length."""
    return {IDLE: gauge(share / (1 + share))}


SYNCHRONOUS: Metrics = {
    SENT: (34_200, 3600), f"{PRODUCER}records.per.request.avg": gauge(1.9),
    f"{PRODUCER}request.latency.avg": gauge(160),
}  # fmt: skip


MINUTE: Metrics = {f"{PRODUCER}metadata.wait.time.ns.total": (0, 60)}
NO_TRANSACTIONS: Metrics = {
    f"{PRODUCER}txn.abort.time.ns.total": (0, 3600), f"{PRODUCER}txn.commit.time.ns.total": (0, 3600),
}  # fmt: skip
TINY: Metrics = {f"{PRODUCER}topic.byte.total": (360_036_000, 3600)}


def at(client_id: str, instance: str, **more: Any) -> dict[str, Any]:
    """A row of any table about an instance, landed in the hour."""
    landed = {"cluster_id": "c", "client_id": client_id, "client_instance_id": instance, "landed_at": HOUR}
    return landed | {"landed_date": HOUR.date()} | more


def gauged(client_id: str, instance: str, metric: str, value: float, **attributes: str) -> dict[str, Any]:
    row = at(client_id, instance, metric=metric, kind="gauge", delta_status="value", time=HOUR, value=value)
    return row | {"attributes": list(attributes.items())}


def found_rows(tables: dict[str, list[dict[str, Any]]], finding: str) -> list[tuple[Any, ...]]:
    """Client id, scope, subject, affected and all instances, worst instance, severity and evidence."""
    columns = ("client_id", "scope", "subject", "instances_affected", "instances", "worst_instance", "severity")
    rows = [row for row in answer("findings", tables) if row["finding"] == finding]
    return [(*(row[name] for name in columns), without_hour(row["evidence"])) for row in rows]
