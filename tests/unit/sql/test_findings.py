"""Each rule of the findings: the behaviour that it is about, and the same just short of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka_telemetry_lake.pipelines.query.finding_rules import rules
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)
PRODUCER, CONSUMER, STREAM = "org.apache.kafka.producer.", "org.apache.kafka.consumer.", "org.apache.kafka.stream."
FETCH, GROUP = f"{CONSUMER}fetch.manager.", f"{CONSUMER}coordinator."
SENT = f"{PRODUCER}record.send.total"
DOCS = Path(__file__).parents[3] / "docs" / "findings.md"

# Of counters: increase and covered seconds, which a push in each quarter of the hour has an even part of. Of gauges:
# value, and how many pushes have it, as a negative number.
Metrics = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Client:
    """What each instance of a client id did in the hour."""

    metrics: Metrics = field(default_factory=dict)
    software: tuple[str | None, str | None] = (None, None)
    outcomes: tuple[dict[str, Any], ...] = ()
    instances: int = 1
    quarantine: tuple[dict[str, Any], ...] = ()
    push_interval_ms: int = 60_000

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
            "push_outcomes": [landed | row for row in given],
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


Found = dict[str, tuple[str, str, str]]


def found_by_client(clients: dict[str, Client], closing: bool = False) -> dict[str, Found]:
    """Severity, evidence and advice by finding, by client id; one query, as planning it is what takes time."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for client_id, client in clients.items():
        for table, rows in client.rows(client_id).items():
            tables.setdefault(table, []).extend(rows)
    found: dict[str, Found] = {client_id: {} for client_id in clients}
    for row in answer("findings", tables, closing=closing):
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
ONE_BEHAVIOUR: list[tuple[str, str, Metrics, str]] = [
    ("failed_records", "error", {f"{PRODUCER}record.error.total": (3, 60)}, "3 records could not be sent (36000 were)"),
    (
        "silent_retries",
        "warning",
        NO_TRANSACTIONS | {f"{PRODUCER}record.retry.total": (360, 3600)},
        "360 sends were retried for 36000 records",
    ),
    ("silent_retries", "info", NO_TRANSACTIONS | {f"{PRODUCER}record.retry.total": (359, 3600)}, "none failed"),
    (
        "one_record_per_request",
        "warning",
        {f"{PRODUCER}records.per.request.avg": gauge(1.04)},
        "1.0 records per request at 10.0 records/s",
    ),
    (
        "full_batches",
        "info",
        {f"{PRODUCER}batch.size.avg": gauge(13_000), SENT: (360_000, 3600)},
        "13000 bytes on average, 16000 at most",
    ),
    ("uncompressed_records", "info", {f"{PRODUCER}compression.rate.avg": gauge(1.0)}, "3.6 MB were sent at 100.0 %"),
    ("buffer_full", "error", {f"{PRODUCER}buffer.exhausted.total": (1, 60)}, "1 records were given up"),
    ("buffer_full", "warning", {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.02)}, "waited for buffer memory 2.0 %"),
    (
        "connection_churn",
        "warning",
        {f"{PRODUCER}connection.creation.total": (61, 3600)},
        "61 connections opened, 1.0 a minute",
    ),
    (
        "failed_authentication",
        "error",
        {f"{PRODUCER}failed.authentication.total": (2, 3600)},
        "2 authentications failed",
    ),
    ("unstable_group", "warning", {f"{CONSUMER}coordinator.rebalance.total": (3, 3600)}, "3 rebalances"),
    ("slow_processing", "warning", {f"{CONSUMER}time.between.poll.max": gauge(150_000)}, "150 s between two polls"),
    ("slow_processing", "error", {f"{CONSUMER}time.between.poll.max": gauge(300_000)}, "300 s between two polls"),
    (
        "processing_bound",
        "warning",
        waits(0.05),
        "5.0 % of the time for records, lag up to 50000",
    ),
    ("throttled", "warning", {f"{PRODUCER}produce.throttle.time.max": gauge(2546)}, "2546 ms at most"),
    ("throttled", "warning", {f"{CONSUMER}fetch.manager.fetch.throttle.time.max": gauge(1)}, "1 ms at most"),
    ("stale_metadata", "error", {f"{PRODUCER}metadata.age": gauge(408)}, "408 s old"),
    (
        "tiny_batches",
        "info",
        {f"{PRODUCER}topic.byte.total": (360_036_000, 3600)},
        "2000 bytes on average, at 100.0 kB/s",
    ),
    (
        "synchronous_sends",
        "warning",
        SYNCHRONOUS,
        "1.9 records per request, never more than 1 in flight, under way 80.0 %",
    ),
    (
        "buffer_filling",
        "info",
        {f"{PRODUCER}buffer.available.bytes": gauge(3_355_443)},
        "only 3355443 of 33554432 bytes",
    ),
    (
        "split_batches",
        "warning",
        {f"{PRODUCER}batch.split.total": (1, 3600)},
        "batches refused as too large and split: 1",
    ),
    ("large_records", "info", {f"{PRODUCER}record.size.max": gauge(838_861)}, "a record had 838861 bytes"),
    (
        "stuck_in_queue",
        "warning",
        MINUTE | {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (100, 60)},
        "waited 1001 ms on average",
    ),
    ("stuck_in_queue", "error", {f"{PRODUCER}record.queue.time.max": gauge(60_001)}, "60001 ms at most"),
    ("near_request_timeout", "warning", {f"{PRODUCER}request.latency.max": gauge(24_000)}, "a request took 24000 ms"),
    (
        "metadata_waits",
        "warning",
        {f"{PRODUCER}metadata.wait.time.ns.total": (37e9, 3600)},
        "37.0 s for metadata in 3600 s",
    ),
    (
        "aborted_transactions",
        "warning",
        {f"{PRODUCER}txn.abort.time.ns.total": (101e6, 3600)},
        "aborts took 101 ms, commits 900",
    ),
    (
        "idle_closes",
        "info",
        {f"{PRODUCER}connection.close.total": (6, 3600)},
        "6 connections were closed, of 2 at a time",
    ),
    (
        "failed_reauthentication",
        "error",
        {f"{PRODUCER}failed.reauthentication.total": (1, 3600)},
        "1 authentications of open",
    ),
    ("long_rebalance", "warning", {f"{GROUP}rebalance.latency.max": gauge(45_000)}, "a rebalance took 45000 ms"),
    ("failed_rebalances", "warning", {f"{GROUP}failed.rebalance.total": (3, 3600)}, "3 rebalances failed"),
    (
        "heartbeat_at_risk",
        "warning",
        {f"{GROUP}last.heartbeat.seconds.ago": gauge(15, 3)},
        "never less than 15 s since its last heartbeat",
    ),
    (
        "heartbeat_at_risk",
        "warning",
        {f"{GROUP}heartbeat.response.time.max": gauge(15_000)},
        "answers took up to 15000 ms",
    ),
    (
        "fetch_bound",
        "warning",
        waits(0.91) | {LAG: gauge(1000, 10)},
        "waits 91.0 % of the time for records, although it lags by at least 1000",
    ),
    ("tiny_fetches", "info", {f"{FETCH}fetch.total": (180_001, 3600)}, "50.0 fetches/s of 1000 bytes"),
    (
        "slow_fetches",
        "warning",
        {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(1000, 10)},
        "fetches take 1000 ms, although",
    ),
    ("costly_commits", "warning", {f"{GROUP}commit.latency.avg": gauge(1000)}, "commits take 1000 ms"),
    ("frequent_commits", "info", {f"{GROUP}commit.total": (3601, 3600)}, "3601 commits, 1.0 a second"),
    (
        "idle_member",
        "info",
        {f"{GROUP}assigned.partitions": gauge(0, 3)},
        "no partition was assigned to it in 3 pushes",
    ),
    ("dead_stream_threads", "error", {f"{STREAM}failed.stream.threads": (1, 3600)}, "1 stream threads died"),
    ("dropped_stream_records", "warning", {f"{STREAM}task.dropped.records.total": (1, 3600)}, "records dropped: 1"),
    (
        "buffer_filling",
        "info",
        {f"{PRODUCER}buffer.available.bytes": gauge(3_355_443), f"{PRODUCER}bufferpool.wait.ratio": gauge(0.01)},
        "only 3355443 of",
    ),
    (
        "buffer_full",
        "warning",
        {f"{PRODUCER}buffer.available.bytes": gauge(3_355_443), f"{PRODUCER}bufferpool.wait.ratio": gauge(0.0101)},
        "waited for buffer memory 1.0 %",
    ),
    ("failed_authentication", "error", {f"{PRODUCER}failed.authentication.total": (1, 60)}, "1 authentications failed"),
    ("frequent_commits", "info", {f"{GROUP}commit.total": (100, 10)}, "100 commits, 10.0 a second"),
    (
        "full_batches",
        "info",
        {f"{PRODUCER}batch.size.avg": gauge(12_800), SENT: (360_000, 3600)},
        "12800 bytes on average, 16000 at most",
    ),
    (
        "full_batches",
        "info",
        {f"{PRODUCER}batch.size.avg": gauge(4000), f"{PRODUCER}batch.size.max": gauge(4096), SENT: (360_000, 3600)},
        "4000 bytes on average, 4096 at most",
    ),
    (
        "full_batches",
        "info",
        {f"{PRODUCER}batch.size.avg": gauge(14_000), f"{PRODUCER}batch.size.max": gauge(14_746), SENT: (360_000, 3600)},
        "14000 bytes on average, 14746 at most",
    ),
    (
        "full_batches",
        "info",
        {
            f"{PRODUCER}batch.size.avg": gauge(99_000),
            f"{PRODUCER}batch.size.max": gauge(101_900),
            SENT: (360_000, 3600),
        },
        "99000 bytes on average, 101900 at most",
    ),
    (
        "connection_churn",
        "warning",
        {f"{PRODUCER}connection.creation.total": (61, 3600), f"{PRODUCER}connection.close.total": (61, 3600)},
        "61 connections opened, 1.0 a minute",
    ),
    ("metadata_waits", "warning", {f"{PRODUCER}metadata.wait.time.ns.total": (36.1e9, 3600)}, "waited 36.1 s for"),
    (
        "metadata_waits",
        "warning",
        {f"{PRODUCER}metadata.wait.time.ns.total": (10e9, 100), SENT: (1000, 100)},
        "10.0 s for metadata in 100 s",
    ),
    (
        "processing_bound",
        "warning",
        waits(0.0999) | {LAG: gauge(1000)},
        "10.0 % of the time for records, lag up to 1000",
    ),
    ("silent_retries", "info", NO_TRANSACTIONS | {f"{PRODUCER}record.retry.total": (1, 3600)}, "1 sends were retried"),
    ("slow_processing", "warning", {f"{CONSUMER}time.between.poll.max": gauge(299_999)}, "s between two polls"),
    ("stale_metadata", "error", {f"{PRODUCER}metadata.age": gauge(361)}, "361 s old"),
    ("tiny_batches", "info", TINY | {f"{PRODUCER}batch.size.avg": gauge(4095)}, "4095 bytes on average"),
    ("tiny_batches", "info", TINY | {f"{PRODUCER}records.per.request.avg": gauge(2)}, "2000 bytes on average"),
    (
        "uncompressed_records",
        "info",
        {f"{PRODUCER}compression.rate.avg": gauge(0.99), f"{PRODUCER}topic.byte.total": (1_000_000, 3600)},
        "1.0 MB were sent at 99.0 %",
    ),
]
# What `QUIET` doesn't show: the same where one of several conditions falls just short.
JUST_SHORT: list[Metrics] = [
    {f"{PRODUCER}records.per.request.avg": gauge(2)},
    {f"{PRODUCER}metadata.age": gauge(360)},
    {f"{PRODUCER}compression.rate.avg": gauge(0.989)},
    {f"{PRODUCER}compression.rate.avg": gauge(1), f"{PRODUCER}topic.byte.total": (999_999, 3600)},
    waits(0.1001),
    waits(0.05) | {LAG: gauge(999)},
    TINY | {f"{PRODUCER}records.per.request.avg": gauge(1.9), SENT: (35_000, 3600)},
    {f"{FETCH}fetch.total": (179_640, 3600), f"{CONSUMER}incoming.byte.total": (100e6, 3600)},
    {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.01)},
    {f"{PRODUCER}batch.size.avg": gauge(12_799), SENT: (360_000, 3600)},
    {f"{PRODUCER}batch.size.avg": gauge(4000), f"{PRODUCER}batch.size.max": gauge(4095), SENT: (360_000, 3600)},
    {f"{PRODUCER}batch.size.avg": gauge(13_000), SENT: (359_000, 3600)},
    {f"{PRODUCER}connection.close.total": (5, 3600), f"{PRODUCER}connection.count": gauge(1)},
    {f"{PRODUCER}topic.byte.total": (360e6, 3600)},
    {f"{PRODUCER}topic.byte.total": (361e6, 3600), f"{PRODUCER}batch.size.avg": gauge(4096)},
    SYNCHRONOUS | {f"{PRODUCER}request.latency.avg": gauge(159.9)},
    # Of 2 records a request, some of them without records, though Java's mean counts more requests than it sent.
    SYNCHRONOUS | {f"{PRODUCER}records.per.request.avg": gauge(0.1), f"{PRODUCER}request.total": (17_100, 3600)},
    # It sends nothing more: its other requests are those for metadata and telemetry, its latency is of the beginning.
    SYNCHRONOUS | {SENT: (10, 3600), f"{PRODUCER}request.total": (36_000, 3600)},
    {f"{PRODUCER}record.retry.total": (1, 3600)},  # with transactions
    {f"{PRODUCER}record.retry.total": (1, 3600), f"{PRODUCER}txn.abort.time.ns.total": (0, 3600)},
    {f"{GROUP}last.heartbeat.seconds.ago": gauge(15, 2)},
    {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (99, 3600)},
    MINUTE | {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (1000, 59)},
    SYNCHRONOUS | MINUTE | {SENT: (560, 59)},
    # All batches are those of bursts of one size.
    {f"{PRODUCER}batch.size.avg": gauge(14_000), f"{PRODUCER}batch.size.max": gauge(14_745), SENT: (360_000, 3600)},
    {f"{PRODUCER}batch.size.avg": gauge(104_000), f"{PRODUCER}batch.size.max": gauge(104_997), SENT: (360_000, 3600)},
    {f"{PRODUCER}metadata.age": gauge(1_795_492_259)},  # none was asked for yet: the time since 1970
    {f"{PRODUCER}compression.rate.avg": gauge(1.0002)},  # lz4 of random bytes
    SYNCHRONOUS | {f"{PRODUCER}requests.in.flight": gauge(2)},
    SYNCHRONOUS | {f"{PRODUCER}records.per.request.avg": gauge(2)},
    {f"{PRODUCER}metadata.wait.time.ns.total": (9.9e9, 100), SENT: (1000, 100)},
    {f"{PRODUCER}connection.close.total": (6, 3600), f"{PRODUCER}connection.count": gauge(3)},
    {f"{PRODUCER}connection.close.total": (6, 2700)},  # in three quarters of the hour, as in an outage of half of it
    waits(0.8999) | {LAG: gauge(1000, 10)},
    waits(0.91) | {LAG: gauge(1000, 9)},
    waits(0.91) | {LAG: gauge(999, 10)},
    {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(1000, 9)},
    {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(999, 10)},
    {f"{FETCH}fetch.total": (180_001, 3600), f"{CONSUMER}incoming.byte.total": (181e6, 3600)},
    {f"{GROUP}commit.total": (99, 10)},
    {f"{GROUP}assigned.partitions": gauge(0, 2)},
]


def test_a_healthy_client_has_no_findings() -> None:
    assert found(Client(QUIET)) == {}


def test_one_behaviour_one_finding() -> None:
    findings = found_by_client({str(n): Client(QUIET | metrics) for n, (_, _, metrics, _) in enumerate(ONE_BEHAVIOUR)})
    for client, (finding, severity, _, evidence) in zip(findings.values(), ONE_BEHAVIOUR, strict=True):
        assert list(client) == [finding]
        assert client[finding][0] == severity
        assert evidence in client[finding][1]


def test_just_short_of_a_bound_there_is_no_finding() -> None:
    findings = found_by_client({str(n): Client(QUIET | metrics) for n, metrics in enumerate(JUST_SHORT)})
    assert {str(JUST_SHORT[int(n)]): list(client) for n, client in findings.items() if client} == {}


def test_a_finding_closes_where_it_no_longer_nearly_opens() -> None:
    """With the bounds at which findings close, what has a finding has it, and what falls just short too."""
    closes = {name for name, rule in rules().items() if rule.closes}
    clients = {f"{name} {n}": Client(QUIET | more) for n, (name, _, more, _) in enumerate(ONE_BEHAVIOUR)}
    opened, closed = found_by_client(clients), found_by_client(clients, closing=True)
    assert {name for each in closed.values() for name in each} <= closes
    for client_id, findings in opened.items():
        assert findings.keys() & closes <= closed[client_id].keys(), client_id
    assert closed.keys() >= {f"{name} {n}" for n, (name, *_) in enumerate(ONE_BEHAVIOUR) if name in closes}
    quiet = found_by_client({"orders": Client(QUIET)}, closing=True)["orders"]
    assert quiet.keys() == {
        "aborted_transactions", "buffer_filling", "costly_commits", "frequent_commits", "heartbeat_at_risk",
        "large_records", "metadata_waits", "near_request_timeout", "slow_processing", "stuck_in_queue", "tiny_fetches",
    }  # fmt: skip


def test_the_time_in_polls_is_as_each_library_measures_it() -> None:
    """Java's ratio of a consumer that only waits is a half; of its first poll it is 1."""
    clients = {
        "java": Client(waits(0.25)), "waits": Client({IDLE: gauge(0.52)}),
        "rdkafka": Client({IDLE: gauge(0.25)}, ("librdkafka", "2.10.1")), "nothing": Client({LAG: gauge(1)}),
    }  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {}
    for client_id, client in clients.items():
        for table, rows in client.rows(client_id).items():
            tables.setdefault(table, []).extend(rows)
    shares = {row["client_id"]: row["poll_share"] for row in answer("instance_hours", tables)}
    assert shares == {"java": pytest.approx(0.25), "waits": 1, "rdkafka": 0.25, "nothing": None}


def test_a_member_that_joins_slowly_is_not_idle() -> None:
    """Of pushes every second, three are before it has joined."""
    clients = {
        str(pushes): Client(QUIET | {f"{GROUP}assigned.partitions": gauge(0, pushes)}, push_interval_ms=1000)
        for pushes in (59, 60)
    }
    assert {name: list(findings) for name, findings in found_by_client(clients).items()} == {
        "59": [], "60": ["idle_member"]
    }  # fmt: skip


def test_retries_that_end_in_failures_are_reported_as_failures() -> None:
    metrics = QUIET | {f"{PRODUCER}record.retry.total": (50, 60), f"{PRODUCER}record.error.total": (2, 60)}
    assert list(found(Client(metrics))) == ["failed_records"]


def test_advice_on_batching_follows_the_rate() -> None:
    """100 records/s of 2 kB: 100 ms of lingering gather 10 records, 20 kB, so a batch of 32 KiB holds them."""
    slow = QUIET | {f"{PRODUCER}records.per.request.avg": gauge(1.2), f"{PRODUCER}record.size.avg": gauge(2000)}
    rates = {"hundred": 360_000.0, "many": 36_000_000.0, "few": 35_000.0}
    findings = found_by_client({name: Client(slow | {SENT: (sent, 3600)}) for name, sent in rates.items()})
    advice = {name: client["one_record_per_request"][2] for name, client in findings.items() if client}
    assert "linger.ms=100 and batch.size=32768, about 10 records per request" in advice["hundred"]
    assert "linger.ms=5 and batch.size=131072, about 50 records per request" in advice["many"]
    assert "few" not in advice  # to gather them would take too long


def test_connections_at_a_start_are_no_churn() -> None:
    def opened(connections: float, seconds: float, instances: int) -> Client:
        return Client({f"{CONSUMER}connection.creation.total": (connections, seconds)}, instances=instances)

    findings = found_by_client(
        {
            "start": opened(9, 30, 1),
            "many": opened(10, 33, 3),
            "fewer": opened(9, 33, 3),
            "slow": opened(60, 3600, 1),
        }
    )
    assert {name for name, client in findings.items() if client} == {"many"}
    assert list(findings["many"]) == ["connection_churn"]


def test_client_versions_with_known_bugs() -> None:
    said = {
        ("confluent-kafka-python", "2.10.0-rdkafka-2.10.0"): "librdkafka 2.10.0",
        ("librdkafka", "2.5.0"): "librdkafka 2.5.0",
        ("confluent-kafka-python", "2.11.1-rdkafka-2.11.1"): "librdkafka 2.11.1",
        ("apache-kafka-java", "3.8.1"): "Java client 3.8.1",
        ("confluent-kafka-python", "2.10.1-rdkafka-2.10.1"): None,
        ("confluent-kafka-python", "2.12.0-rdkafka-2.12.0"): None,
        ("librdkafka", "unknown"): None,
        ("apache-kafka-java", "3.9.0"): None,
        ("kgo", "v1.22.2"): None,
        (None, None): None,
    }
    findings = found_by_client({str(software): Client(software=software) for software in said})
    evidence = [[(name, evidence) for name, (_, evidence, _) in client.items()] for client in findings.values()]
    assert evidence == [[] if text is None else [("buggy_client_version", text)] for text in said.values()]


def test_short_lived_clients_push_less_often_than_their_interval_asks() -> None:
    def run(instances: int, each: int) -> Client:
        pushes = [(f"i{n}", minute) for n in range(instances) for minute in range(n % 2, each * 2, 2)]
        return Client(outcomes=tuple(
            {"client_instance_id": name, "outcome": "points", "landed_at": HOUR + timedelta(minutes=minute)}
            for name, minute in [*pushes, ("i0", 50)]
        ))  # fmt: skip

    findings = found_by_client({"short": run(12, 2), "steady": run(12, 14), "few": run(9, 2)})
    assert {name: list(client) for name, client in findings.items()} == {
        "short": ["short_lived_clients"],
        "steady": [],
        "few": [],
    }


def test_the_bounds_of_short_lived_clients() -> None:
    """A push interval is 60 s: ten instances, six intervals, and less than a quarter of the pushes that they ask."""

    def run(instances: int, pushes: int, span_s: int) -> Client:
        times = [HOUR] * (pushes - 1) + [HOUR + timedelta(seconds=span_s)]
        return Client(outcomes=tuple(
            {"client_instance_id": f"i{n % instances}", "outcome": "points", "landed_at": at}
            for n, at in enumerate(times)
        ))  # fmt: skip

    fleets = {"all": run(10, 10, 360), "few": run(9, 9, 360), "short": run(10, 10, 359), "rare": run(10, 15, 361),
              "quarter": run(10, 15, 360)}  # fmt: skip
    findings = found_by_client(fleets)
    assert {name for name, client in findings.items() if "short_lived_clients" in client} == {"all", "rare"}


def test_what_happened_to_the_telemetry_itself() -> None:
    good = {"client_instance_id": "i", "outcome": "points", "decompressed_bytes": 838_860}
    assert found(Client(outcomes=(good,))) == {}
    findings = found(
        Client(
            outcomes=(
                good,
                good | {"outcome": "quarantined"},
                good | {"lost_start": HOUR, "decompressed_bytes": 838_861},
            )
        )
    )
    assert {name: (severity, evidence) for name, (severity, evidence, _) in findings.items()} == {
        "large_telemetry": (
            "warning",
            "pushes of up to 838861 bytes, decompressed; it went on after intervals that never landed, as clients do "
            "after TELEMETRY_TOO_LARGE",
        ),
        "lost_telemetry": ("info", "intervals that the client collected but that never landed: 1"),
        "unreadable_telemetry": ("error", "1 of 3 pushes could not be read"),
    }


def test_a_push_that_could_not_be_processed_is_no_unreadable_one() -> None:
    failed = {"client_instance_id": "i", "outcome": "quarantined"}
    rows = ({"scope": "push", "reason": "PROCESSING_FAILED"}, {"scope": "push", "reason": "INVALID_RECORD"})
    (one,) = found(Client(outcomes=(failed,), quarantine=rows[:1])).items()
    assert (one[0], one[1][:2]) == (
        "failed_processing", ("error", "1 of 1 pushes made their processing fail and were set aside")
    )  # fmt: skip
    assert "replay --from quarantine" in one[1][2]
    both = found(Client(outcomes=(failed, failed), quarantine=rows))
    assert {name: evidence for name, (_, evidence, _) in both.items()} == {
        "failed_processing": "1 of 2 pushes made their processing fail and were set aside",
        "unreadable_telemetry": "1 of 2 pushes could not be read",
    }


def test_a_principal_that_lands_more_than_ten_shares_of_twenty_or_more() -> None:
    def greedy(others: int, size: int) -> list[tuple[Any, ...]]:
        sent = [("User:greedy", size), *((f"User:{n}", 100) for n in range(others)), (None, 10**9)]
        landed = {"cluster_id": "c", "client_id": "x", "client_instance_id": "i", "landed_at": HOUR}
        landed["landed_date"] = HOUR.date()
        rows = [landed | {"principal": principal, "payload_bytes": size} for principal, size in sent]
        found = answer("findings", {"pushes": rows})
        greedy = [row for row in found if row["finding"] == "greedy_principal"]
        return [(row["client_id"], without_hour(row["evidence"])) for row in greedy]

    # 20 principals: more than 10 / 20 of all bytes
    assert greedy(19, 1900) == []
    evidence = "User:greedy landed 1901 of 3801 bytes by 1 client instances; 20 principals pushed"
    assert greedy(19, 1901) == [(None, evidence)]
    assert greedy(18, 10**6) == []


def at(client_id: str, instance: str, **more: Any) -> dict[str, Any]:
    """A row of any table about an instance, landed in the hour."""
    landed = {"cluster_id": "c", "client_id": client_id, "client_instance_id": instance, "landed_at": HOUR}
    return landed | {"landed_date": HOUR.date()} | more


def gauged(client_id: str, instance: str, metric: str, value: float, **attributes: str) -> dict[str, Any]:
    row = at(client_id, instance, metric=metric, kind="gauge", delta_status="value", time=HOUR, value=value)
    return row | {"attributes": list(attributes.items())}


def told(tables: dict[str, list[dict[str, Any]]], finding: str) -> list[tuple[Any, ...]]:
    """Client id, scope, subject, affected and all instances, worst instance, severity and evidence."""
    columns = ("client_id", "scope", "subject", "instances_affected", "instances", "worst_instance", "severity")
    rows = [row for row in answer("findings", tables) if row["finding"] == finding]
    return [(*(row[name] for name in columns), without_hour(row["evidence"])) for row in rows]


def test_a_finding_names_the_instances_their_number_and_the_worst() -> None:
    """Of four instances, two have failed records; and one that pushes a lot makes no other look busy."""
    tables: dict[str, list[dict[str, Any]]] = {"push_outcomes": [], "metric_points": []}
    for n, failed in enumerate((0, 3, 7, 0)):
        tables["push_outcomes"].append(at("orders", f"i{n}", outcome="points"))
        metrics = {SENT: (100.0, 3600), f"{PRODUCER}record.error.total": (failed, 3600)}
        tables["metric_points"] += [
            at("orders", f"i{n}", metric=metric, delta_status="ok", time=HOUR) | _point(*measured)
            for metric, measured in metrics.items()
        ]
    evidence = "2 of 4 client instances (50.0 %), at worst i2: 7 records could not be sent (100 were)"
    assert told(tables, "failed_records") == [("orders", "client_id", "orders", 2, 4, "i2", "error", evidence)]
    own = answer("instance_findings", tables)
    assert [(row["client_instance_id"], row["measure"], without_hour(row["evidence"])) for row in own] == [
        ("i1", 3.0, "3 records could not be sent (100 were)"), ("i2", 7.0, "7 records could not be sent (100 were)"),
    ]  # fmt: skip


def test_an_application_an_owner_and_a_principal_are_groups_of_instances() -> None:
    """Two client ids of one application; one instance has an alias of its own; a rule says whose one client id is."""
    clients = {"orders": Client(instances=3), "bills": Client(instances=1), "others": Client()}
    tables: dict[str, list[dict[str, Any]]] = {}
    for client_id, client in clients.items():
        for name, rows in client.rows(client_id).items():
            tables.setdefault(name, []).extend(
                row | {"client_instance_id": f"{client_id} {row['client_instance_id']}"} for row in rows
            )
    for push in tables["pushes"]:
        push["principal"] = "User:b" if push["client_id"] == "bills" else "User:a"
    latency = {"cluster_id": "c", "landed_at": HOUR, "landed_date": HOUR.date(), "time": HOUR, "kind": "gauge",
               "metric": f"{GROUP}commit.latency.avg", "delta_status": "value"}  # fmt: skip
    tables["metric_points"] = [
        latency | {"client_id": name.split()[0], "client_instance_id": name, "value": value}
        for name, value in (("orders i0", 999.0), ("orders i1", 1500.0), ("orders i2", 1700.0), ("bills i0", 1600.0),
                            ("others i0", 1000.0))
    ]  # fmt: skip
    tables["client_aliases"] = [
        {"client_id": "orders", "application": "any"},
        {"client_id": "orders", "cluster_id": "c", "application": "shop"},
        {"client_id": "bills", "application": "shop"}, {"client_instance_id": "orders i2", "application": "canary"},
        {"client_id": "others", "cluster_id": "d", "application": "elsewhere"},
        {"client_id": "others", "application": "old", "valid_to": HOUR},
    ]  # fmt: skip
    tables["client_changes"] = [
        {"cluster_id": "c", "client_instance_id": "orders i2", "client_id": "orders", "step": 1},
        {"cluster_id": "c", "client_instance_id": "others i0", "client_id": "others", "step": 1},
    ]
    tables["application_rules"] = [{"position": 0, "client_id": "oth.*", "application": "rest", "owner": "ann"}]
    rows = answer("finding_groups", tables)
    assert {(row["finding"], row["severity"], row["window_start"]) for row in rows} == {
        ("costly_commits", "warning", HOUR)
    }
    said = ("scope", "subject", "instances", "instances_affected", "worst_client_id", "worst_instance", "measure")
    assert [tuple(row[name] for name in said) for row in rows] == [
        ("application", "canary", 1, 1, "orders", "orders i2", 1700),
        ("application", "rest", 1, 1, "others", "others i0", 1000),
        ("application", "shop", 3, 2, "bills", "bills i0", 1600),
        ("owner", "ann", 1, 1, "others", "others i0", 1000),
        ("principal", "User:a", 4, 3, "orders", "orders i2", 1700),
        ("principal", "User:b", 1, 1, "bills", "bills i0", 1600),
    ]
    assert [row["share"] for row in rows] == [1, 1, pytest.approx(2 / 3), 1, 0.75, 1]
    assert without_hour(rows[2]["evidence"]) == "commits take 1600 ms on average"
    gauges = {f"{PRODUCER}batch.size.avg": (2000.0, 1000.0), f"{PRODUCER}records.per.request.avg": (5.0, 5.0)}
    totals = {SENT: 1e6, f"{PRODUCER}topic.byte.total": 1e9}
    less = []
    for number in (0, 1):
        point = latency | {"client_id": "orders", "client_instance_id": f"orders i{number}"}
        less += [point | {"metric": metric, "value": values[number]} for metric, values in gauges.items()]
        total = point | {"kind": "sum", "delta_status": "ok", "delta_start": HOUR - timedelta(hours=1)}
        less += [total | {"metric": metric, "delta": delta} for metric, delta in totals.items()]
    rows = answer("finding_groups", tables | {"metric_points": less})
    assert {(row["subject"], row["worst_instance"]) for row in rows if row["finding"] == "tiny_batches"} == {
        ("shop", "orders i1"), ("User:a", "orders i1")
    }  # fmt: skip


def test_open_findings_of_an_application_an_owner_and_a_principal() -> None:
    def opened(subject: str, severity: str, affected: int | None, hours: int = 0, **more: Any) -> dict[str, Any]:
        at = HOUR + timedelta(hours=hours)
        return {
            "cluster_id": "c", "finding_id": subject, "finding": "throttled", "severity": severity,
            "scope": "client_id", "subject": subject, "application": "shop", "principal": "User:a", "change": "opened",
            "at": at, "opened_at": at, "window_start": at, "recorded_at": at, "instances_affected": affected, **more,
        }  # fmt: skip

    changes = [
        opened("orders", "warning", 2), opened("bills", "error", 1, hours=1), opened("carts", "warning", 3, hours=2),
        opened("slow", "warning", None, finding="one_slow_broker", application=None, principal=None),
        opened("gone", "error", 9), opened("gone", "error", 9, hours=1, change="resolved", opened_at=HOUR),
        opened("seen", "info", 1, finding="full_batches", principal=None),
        opened("seen", "info", 1, finding="full_batches", principal=None, change="acknowledged", by="ann"),
    ]  # fmt: skip
    changes[0]["owner"] = "ann"
    rows = answer("open_finding_groups", {"finding_changes": changes})
    throttled = ("throttled", "error", "open", 3, 6, HOUR, "bills")
    assert [tuple(row.values()) for row in rows] == [
        ("c", "application", "shop", "full_batches", "info", "acknowledged", 1, 1, HOUR, "seen"),
        ("c", "application", "shop", *throttled),
        ("c", "owner", "ann", "throttled", "warning", "open", 1, 2, HOUR, "orders"),
        ("c", "principal", "User:a", *throttled),
    ]  # fmt: skip


def test_a_finding_now_against_the_hours_before() -> None:
    """Hours back, and mean latency of commits; hour 0 isn't over, and counts only if there is no other."""
    hours = {
        "rising": {3: 1000, 2: 1000, 1: 1201}, "steady": {3: 1100, 2: 900, 1: 1320, 0: 9000},
        "fast": {2: 1000, 1: 1200}, "falling": {3: 3000, 2: 2000, 1: 1999}, "new": {3: 10, 1: 2000},
        "first": {0: 1500}, "over": {60: 2000}, "again": {60: 2000, 1: 2000},
    }  # fmt: skip
    while True:
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        rows = {row["subject"]: row for row in answer("finding_trends", _commits(hours, now))}
        if datetime.now(UTC) - now < timedelta(hours=1):  # else the hour ended meanwhile
            break
    said = {name: (row["trend"], row["measure"], row["before"], row["hours_before"]) for name, row in rows.items()}
    assert said == {
        "rising": ("rising", 1201, 1000, 2), "steady": ("steady", 1320, 1100, 1), "fast": ("steady", 1200, 1000, 1),
        "falling": ("falling", 1999, 2500, 2), "new": ("new", 2000, None, 0), "first": ("new", 1500, None, 0),
        "again": ("new", 2000, None, 0),
    }  # fmt: skip
    assert rows["steady"]["window_start"] == now - timedelta(hours=1)
    assert rows["first"]["window_start"] == now


def _commits(latencies: dict[str, dict[int, int]], now: datetime) -> dict[str, list[dict[str, Any]]]:
    """The tables of clients with mean latencies of commits, by how many hours ago."""
    landed = [
        {"cluster_id": "c", "client_id": name, "client_instance_id": name, "landed_at": now - timedelta(hours=back),
         "landed_date": (now - timedelta(hours=back)).date(), "value": value}
        for name, values in latencies.items() for back, value in values.items()
    ]  # fmt: skip
    point = {"kind": "gauge", "metric": f"{GROUP}commit.latency.avg", "delta_status": "value"}
    pushes = [{name: row[name] for name in row if name != "value"} for row in landed]
    return {
        "metric_points": [row | point | {"time": row["landed_at"]} for row in landed],
        "push_outcomes": [push | {"outcome": "points"} for push in pushes],
        "pushes": pushes,
    }


def test_the_worst_is_the_least_where_less_is_worse() -> None:
    slow = {SENT: (72_000.0, 3600.0)}
    tables: dict[str, list[dict[str, Any]]] = {"push_outcomes": [], "metric_points": []}
    for n, per_request in enumerate((1.5, 1.2, 1.7)):
        tables["push_outcomes"].append(at("orders", f"i{n}", outcome="points"))
        metrics = slow | {f"{PRODUCER}records.per.request.avg": gauge(per_request)}
        tables["metric_points"] += [
            at("orders", f"i{n}", metric=metric, delta_status="ok", time=HOUR) | _point(*measured)
            for metric, measured in metrics.items()
        ]
    (one,) = told(tables, "one_record_per_request")
    assert one[3:6] == (3, 3, "i1")
    assert "at worst i1: 1.2 records per request" in one[-1]


def test_what_pushes_and_events_show_of_an_instance() -> None:
    five = timedelta(minutes=5)
    pushes: dict[str, dict[str, Any]] = {
        "fine": {"outcome": "points", "last_time": HOUR + five - timedelta(milliseconds=1), "quarantined_points": 0},
        "ahead": {"outcome": "points", "last_time": HOUR + five},
        "behind": {"outcome": "points", "last_time": HOUR - five},
        "points": {"outcome": "points", "quarantined_points": 1},
        "dropped": {"outcome": "dropped"},
        "twice": {"outcome": "points"},
        "dead": {"outcome": "points"},
    }
    tables = {
        "push_outcomes": [at(name, "i", **row) for name, row in pushes.items()],
        "client_events": [
            at("twice", "i", event="duplicate_instance"), at("dead", "i", event="data_path_dead"),
            at("fine", "i", event="rebootstrap"), at("gone", "i", event="data_path_dead"),
        ],
    }  # fmt: skip
    rows = [(row["client_id"], row["finding"], without_hour(row["evidence"])) for row in answer("findings", tables)]
    assert sorted(rows) == [
        ("ahead", "wrong_clock", "its clock is 300 s ahead of the broker's"),
        ("behind", "wrong_clock", "its clock is 300 s behind the broker's"),
        ("dead", "dead_data_path", "no broker answered its requests any more (1 times)"),
        ("dropped", "dropped_telemetry", "1 of 1 pushes landed without their payload"),
        ("points", "rejected_points", "points rejected: 1"),
        ("twice", "duplicate_instance", "another process pushed under its instance id (1 times)"),
    ]


def test_a_consumer_at_the_end_of_retention() -> None:
    lead, lag = f"{FETCH}records.lead", f"{FETCH}records.lag"

    def read(client_id: str, leads: tuple[float, ...], lags: tuple[float, ...]) -> list[dict[str, Any]]:
        rows = [
            gauged(client_id, "i", metric, value, topic="t", partition="0")
            | {"landed_at": HOUR + timedelta(minutes=minute)}
            for metric, values in ((lead, leads), (lag, lags))
            for minute, value in enumerate(values)
        ]
        # Another partition is quiet, and new: its lead is small, but it has no lag.
        return rows + [gauged(client_id, "i", lead, 5, topic="t", partition="1")] + [
            gauged(client_id, "i", lag, 0, topic="t", partition="1")] * 3  # fmt: skip

    points = [
        *read("lost", (10, 52, 9), (1000, 1001, 1000)), *read("lead", (10, 53, 9), (1000, 1000, 1000)),
        *read("lag", (2, 1, 1), (999, 5000, 5000)), *read("short", (2, 1), (5000, 5000)),
        # They began with the first record of a topic from which nothing is deleted yet.
        *read("begins", (0, 10, 52), (3000, 2000, 1000)), *read("stands", (0, 0, 0), (1000, 2000, 3000)),
    ]  # fmt: skip
    evidence = (
        "in 1 partitions of topic t it lags by up to 1000 records and is at most 52 records ahead of what retention "
        "deletes"
    )
    assert told({"metric_points": points}, "about_to_lose_data") == [
        ("lost", "topic", "t, client id lost", 1, 1, "i", "error", evidence)
    ]


LAGS, CONSUMED = f"{FETCH}records.lag", f"{FETCH}records.consumed.total"


def lags(
    client_id: str, values: list[float], instance: str = "i", partition: str = "0", start: float = 0, **more: Any
) -> list[dict[str, Any]]:
    """Lags of a partition, one a push, from minute `start` of the hour to its end."""
    each = (60 - start) / len(values)
    return [
        gauged(client_id, instance, LAGS, value, topic="t", partition=partition)
        | {"landed_at": HOUR + timedelta(minutes=start + n * each)} | more
        for n, value in enumerate(values)
    ]  # fmt: skip


def test_the_lag_of_a_consumer_grows_all_through_the_hour() -> None:
    """From the first quarter's most to the last one's least, by 1000 records and a fifth, in eight pushes or more."""
    grows = [500.0, 1000, 1000, 1400, 1300, 1600, 3000, 2000]
    sizes: dict[str, list[float]] = {
        "grows": grows, "less": [500, 1001, *grows[2:]], "few": [*grows[:6], 2000],
        "fifth": [10_000.0, 10_000, 10_500, 10_500, 11_000, 11_000, 12_000, 13_000],
        "tenth": [10_001.0, 10_000, 10_500, 10_500, 11_000, 11_000, 12_000, 13_000],
        "third quarter": [*grows[:4], 1000, *grows[5:]],
        "second quarter": [*grows[:3], 2000, *grows[4:]],
        "large": [10.0**9] * 12, "starts": [10.0**6 - 50_000 * n for n in range(12)],
        "catches up": [50_000.0 * n for n in (0, 1, 2, 3, 4, 5, 6, 7, 6, 4, 2, 0)],
        "every half hour": [float(3000 * (n % 6)) for n in range(12)],
        "every 20 minutes": [float(3000 * (n % 4)) for n in range(12)],
        "none": [0.0] * 12,
    }  # fmt: skip
    points = [row for name, values in sizes.items() for row in lags(name, values)]
    late = lags("came at half past", [2000.0 * n for n in range(12)], start=30)
    stuck = lags("clock", [7000.0] * 12, time=HOUR + timedelta(hours=1))
    kind = lags("kind", grows, kind="sum", delta_status="ok", delta=1.0)
    twice = lags("twice", grows, delta_status="duplicate")
    evidence = (
        "1 of 1 client instances (100.0 %), at worst i: the lag of 1 partitions grew all through the hour, that of "
        "partition 0 of topic t from at most {} to at least {} records"
    )
    tables = {"metric_points": [*points, *late, *stuck, *kind, *twice]}
    assert told(tables, "growing_lag") == [
        (name, "client_id", name, 1, 1, "i", "warning", evidence.format(before, after))
        for name, before, after in (("fifth", 10_000, 12_000), ("grows", 1000, 2000))
    ]


def test_a_growing_lag_names_the_worst_of_several() -> None:
    """By landing times: what a consumer's own clock says doesn't count."""
    steep, flat = [1000.0 * n for n in range(12)], [10.0] * 12
    wrong: dict[str, Any] = {"time": HOUR - timedelta(hours=1)}
    points = [
        *lags("orders", flat, "i0"), *lags("orders", steep, "i1", "4", **wrong),
        *lags("orders", [2 * value for value in steep], "i1", "7", **wrong), *lags("orders", steep, "i2", "1"),
        *lags("orders", flat, "i2", "2"), gauged("orders", "i0", LAG, 9e9),
    ]  # fmt: skip
    evidence = (
        "2 of 3 client instances (66.7 %), at worst i1: the lag of 3 partitions grew all through the hour, that of "
        "partition 7 of topic t from at most 4000 to at least 18000 records"
    )
    assert told({"metric_points": points}, "growing_lag") == [
        ("orders", "client_id", "orders", 2, 3, "i1", "warning", evidence)
    ]


def consumed(client_id: str, records: float, seconds: float = 3600, topic: str = "t", **more: Any) -> dict[str, Any]:
    row = at(client_id, "i", metric=CONSUMED, delta_status="ok", time=HOUR, attributes=[("topic", topic)])
    return row | _point(records, seconds) | more


def test_how_long_a_consumer_needs_to_work_off_its_lag() -> None:
    """300 s and 1000 records by what it was never below, at the rate of half an hour or more."""

    def client(name: str, values: list[float], *rates: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        return [*lags(name, values, **more), *rates]

    three = [1200.0, 1000, 1100]
    points = [
        *client("late", three, consumed("late", 12_000)), *client("fast", three, consumed("fast", 12_001)),
        *client("small", [999.0] * 3, consumed("small", 1)), *client("few", three[:2], consumed("few", 1)),
        *client("half", three, consumed("half", 6000, 1800)), *client("short", three, consumed("short", 1, 1799.9)),
        *client("stands", three, consumed("stands", 0)), *client("unknown", three),
        *client("kind", three, consumed("kind", 1, kind="gauge", value=1.0, delta=None)),
        *client("lag's kind", three, consumed("lag's kind", 1), kind="sum", delta=1.0),
        *client("other topic", three, consumed("other topic", 1, topic="u")),
        *client("all topics", three, consumed("all topics", 1, attributes=[])),
        *client("keeps up", [9e6, 0.0, 9e6], consumed("keeps up", 1)),
        *client("clock", three, consumed("clock", 12_001, 7200)),
        *client("parts", [500.0] * 3, *lags("parts", [500.0] * 3, partition="1"), consumed("parts", 12_000)),
        *client("moved", three[:2], *lags("moved", [999.0] * 3, partition="1"), consumed("moved", 1)),
    ]  # fmt: skip
    evidence = (
        "1 of 1 client instances (100.0 %), at worst i: it would need {} s to work off its lag of topic t, never less "
        "than 1000 records, at the {} records/s that it consumed"
    )
    assert told({"metric_points": points}, "time_lag") == [
        (name, "client_id", name, 1, 1, "i", "warning", evidence.format(*numbers))
        for name, *numbers in (("half", 300, 3.3), ("late", 300, 3.3), ("parts", 300, 3.3), ("stands", 3600000, 0.0))
    ]


def test_where_growing_and_time_lag_close() -> None:
    growing = {"open": 2000.0, "closing": 1500.0, "closed": 1499.0}
    points = [row for name, last in growing.items() for row in lags(name, [*[1000.0] * 4, *[1200.0] * 2, last, last])]
    late = {"slow": (800.0, 12_000), "fast": (800.0, 12_001), "small": (799.0, 1)}
    points += [row for name, (lag, rate) in late.items() for row in (*lags(name, [lag] * 3), consumed(name, rate))]
    rows = answer("findings", {"metric_points": points}, closing=True)
    assert [(row["finding"], row["client_id"]) for row in rows if row["finding"].endswith("_lag")] == [
        ("growing_lag", "closing"), ("growing_lag", "open"), ("time_lag", "slow")
    ]  # fmt: skip


def test_telemetry_that_ends_near_the_size_that_brokers_refuse() -> None:
    """Not if it was small, said goodbye (then there is no event), pushes again, or another push was the large one."""

    def push(client_id: str, size: int | None, minute: int, **more: Any) -> dict[str, Any]:
        landed = {"landed_at": HOUR + timedelta(minutes=minute), "decompressed_bytes": size, "outcome": "points"}
        return at(client_id, "i", **landed, **more)

    def silent(client_id: str, minute: int, event: str = "went_silent") -> dict[str, Any]:
        return at(client_id, "i", event=event) | {"landed_at": HOUR + timedelta(minutes=minute)}

    tables: dict[str, list[dict[str, Any]]] = {
        "push_outcomes": [
            push("cut", 100, 0), push("cut", 838_861, 9), push("small", 838_860, 9), push("closed", 838_861, 9),
            push("back", 838_861, 5), push("back", 838_861, 9), push("then small", 838_861, 5),
            push("then small", 838_860, 9), push("upgraded", 1_048_577, 9), push("default", 1_048_576, 9),
            push("tried", 900_000, 5), push("tried", 1_048_577, 9, lost_start=HOUR), push("dropped", 900_000, 5),
            push("dropped", None, 9), push("consumer", 838_861, 9), push("allowed", 1_048_577, 9),
        ],
        "client_events": [
            silent("cut", 9), silent("small", 9), silent("closed", 9, "terminated"), silent("back", 5),
            silent("back", 9, "resumed"), silent("then small", 9), silent("upgraded", 9), silent("default", 9),
            silent("tried", 5), silent("tried", 9), silent("dropped", 9), silent("consumer", 9),
            at("cut", "j", event="went_silent"), silent("gone", 9),
        ],
        "metric_points": [gauged("consumer", "i", f"{CONSUMER}poll.idle.ratio.avg", 0.5)],
    }  # fmt: skip
    after, before = "it fell silent without a terminating push after one of {} bytes, decompressed; {}", (
        "brokers that take so much have a larger telemetry.max.bytes or are older than 4.3.1"
    )  # fmt: skip
    maybe = "the next one may have been too large"
    tried = "it had gone on after intervals that never landed, as clients do after TELEMETRY_TOO_LARGE"
    assert [(row[0], row[-2], row[-1]) for row in told(tables, "telemetry_cut_off")] == [
        ("consumer", "error", after.format(838_861, maybe)),
        ("cut", "warning", after.format(838_861, maybe)),
        ("default", "warning", after.format(1_048_576, maybe)),
        ("tried", "warning", after.format(1_048_577, tried)),
        ("upgraded", "warning", after.format(1_048_577, f"{before}, and an upgrade ends that")),
    ]
    pushes = "pushes of up to {} bytes, decompressed{}"
    assert [(row[0], row[-1]) for row in told(tables, "large_telemetry")] == [
        ("allowed", pushes.format(1_048_577, f"; {before}")),
        *((name, pushes.format(838_861, "")) for name in ("back", "closed")),
        ("dropped", pushes.format(900_000, "")),
        ("then small", pushes.format(838_861, "")),
    ]


def test_one_broker_is_slower_than_the_others() -> None:
    metric = f"{PRODUCER}node.request.latency.avg"

    def cluster(name: str, clients: int, latencies: dict[str, float]) -> list[dict[str, Any]]:
        return [
            gauged("orders", f"i{n}", metric, latency, node_id=node) | {"cluster_id": name}
            for n in range(clients) for node, latency in latencies.items()
        ]  # fmt: skip

    points = [
        *cluster("slow", 5, {"0": 10.0, "1": 10.0, "2": 30.0, "-1": 900.0, "coordinator": 900.0}),
        *cluster("less", 5, {"0": 10.0, "1": 10.0, "2": 29.9}),
        *cluster("fast", 5, {"0": 5.0, "1": 5.0, "2": 19.9}),
        *cluster("edge", 5, {"0": 5.0, "1": 5.0, "2": 20.0}),
        *cluster("few", 4, {"0": 10.0, "1": 10.0, "2": 30.0}),
        *cluster("two", 5, {"0": 10.0, "2": 300.0}),
    ]
    evidence = "requests of 5 producers to broker 2 take {} ms, to 3 brokers {} ms in the median"
    assert [(row[:5], row[-1]) for row in told({"metric_points": points}, "one_slow_broker")] == [
        ((None, "broker", "2", 5, 5), evidence.format(most, median))
        for most, median in (("20.0", "5.0"), ("30.0", "10.0"))
    ]


def test_one_instance_is_slower_than_its_siblings() -> None:
    metric = f"{PRODUCER}request.latency.avg"
    fleets = {
        "slow": (40, 41, 39, 40, 120),
        "less": (40, 41, 39, 40, 119.9),
        "fast": (9, 9, 9, 9, 99),
        "few": (1, 1, 1, 900),
        "edge": (30, 30, 30, 30, 100),
    }
    points = [
        gauged(name, f"i{n}", metric, latency)
        for name, fleet in fleets.items() for n, latency in enumerate(fleet) for _ in range(3)
    ]  # fmt: skip
    # A process that has just begun has pushed twice.
    points += [gauged("begun", f"i{n}", metric, latency) for n, latency in enumerate(fleets["slow"]) for _ in range(2)]
    evidence = "1 of 5 client instances (20.0 %), at worst i4: requests take {} ms, {} ms in the median of all"
    assert told({"metric_points": points}, "slow_instance") == [
        (name, "client_id", name, 1, 5, "i4", "info", evidence.format(*latencies))
        for name, latencies in (("edge", (100, 30)), ("slow", (120, 40)))
    ]


def test_requests_take_longer_than_a_week_before() -> None:
    def hours(client_id: str, before: float, now: float) -> list[dict[str, Any]]:
        metric = f"{PRODUCER}request.latency.avg"
        key: dict[str, Any] = {"cluster_id": "c", "client_id": client_id, "metric": metric, "kind": "gauge"}
        key |= {"attribute_keys": "", "points": 1, "value_count": 1}
        return [
            key | {"window_start": start, "value_sum": value}
            for start, value in ((HOUR - timedelta(days=7), before), (HOUR, now))
        ]

    rollups = [*hours("slow", 50, 100), *hours("less", 50.1, 100), *hours("fast", 1, 99.9)]
    evidence = "produce requests take 100 ms, 50 ms in the same hour a week before"
    (one,) = told({"metric_rollups_1h": rollups}, "latency_regression")
    assert (one[0], one[-1]) == ("slow", evidence)


def test_partitions_are_spread_unevenly_over_a_group() -> None:
    metric = f"{GROUP}assigned.partitions"

    def group(name: str, partitions: tuple[float, ...], pushes: int = 3) -> dict[str, list[dict[str, Any]]]:
        ids = [f"{name}{n}" for n in range(len(partitions))]
        return {
            "metric_points": [
                gauged("c", one, metric, value)
                for one, value in zip(ids, partitions, strict=True)
                for _ in range(pushes)
            ],
            "push_outcomes": [at("c", one, outcome="points", labels=[("group_id", name)]) for one in ids],
        }

    groups = (
        group("uneven", (6, 2, 2)), group("two", (5.9, 2)), group("one", (3, 1)), group("new", (9, 1), 2),
        group("three", (4, 1)),
    )  # fmt: skip
    tables = {table: [row for each in groups for row in each[table]] for table in groups[0]}
    evidence = "in group {} of {} pushing members one has {} partitions, another {}"
    assert told(tables, "uneven_assignment") == [
        (None, "group", name, 1, members, f"{name}0", "info", evidence.format(name, members, most, least))
        for name, members, most, least in (("three", 2, 4.0, 1.0), ("uneven", 3, 6.0, 2.0))
    ]


def test_what_the_names_of_clients_show() -> None:
    def push(client_id: str, n: int, principal: str = "User:a", version: str = "4.3.0") -> dict[str, Any]:
        software = {"client_software_name": "apache-kafka-java", "client_software_version": version}
        return at(client_id, f"i{n}", principal=principal, **software)

    pushes = [
        push("fine", 1), push("fine", 2), push("shared", 1), push("shared", 2, "User:b"),
        push("mixed", 1), push("mixed", 2, version="4.2.0"), push("rdkafka", 1), push("producer-1", 1), push("", 1),
        push("producer-x", 1), push("my-consumer-1", 1),
    ]  # fmt: skip
    rows = answer("findings", {"pushes": pushes})
    assert sorted((row["finding"], row["client_id"], without_hour(row["evidence"])) for row in rows) == [
        ("default_client_id", "", "1 client instances have the client id that their library sets"),
        ("default_client_id", "producer-1", "1 client instances have the client id that their library sets"),
        ("default_client_id", "rdkafka", "1 client instances have the client id that their library sets"),
        (
            "mixed_versions",
            "mixed",
            "2 client instances have 2 versions, such as apache-kafka-java 4.2.0 and apache-kafka-java 4.3.0",
        ),
        ("shared_client_id", "shared", "2 principals use it, such as User:a and User:b"),
    ]


def test_a_quota_is_nearly_used_up() -> None:
    def used(client_id: str, percents: tuple[float, ...], **more: Any) -> list[dict[str, Any]]:
        key = {"cluster_id": "c", "client_id": client_id, "user": "u", "quota_type": "produce", "broker_id": 1}
        key |= {"source": "broker", "window_seconds": 10, "throttled": False, "landed_date": HOUR.date(), **more}
        return [
            key | {"window_start": HOUR + timedelta(seconds=10 * n), "used_percent": percent}
            for n, percent in enumerate(percents)
        ]

    usage = [
        *used("near", (80.0,) + (10.0,) * 9), *used("less", (79.9,) * 10), *used("rare", (95.0,) + (10.0,) * 10),
        *used("few", (95.0,) * 5), *used("six", (80.0,) * 6), *used("over", (110.0,) * 10, throttled=True),
    ]  # fmt: skip
    evidence = (
        "produce quota of user u, client id near: at 80.0 % of the limit at most, above 80 % in 1 of 10 windows of 10 s"
    )
    one, six = told({"quota_usage": usage}, "quota_headroom_short")
    assert "in 6 of 6 windows" in six[-1]
    assert (one[:3], one[-1]) == (("near", "quota", "produce quota of user u, client id near"), evidence)


def test_bad_input_is_no_finding_and_costs_no_other_client_its_own() -> None:
    """A thousand topics, a client id of 1 KB with control characters, an hour without data, metrics of a wrong kind."""
    hostile = "\x00\x1b[2J'\\\n" + "x" * 1015
    kinds: dict[str, dict[str, Any]] = {
        f"{PRODUCER}metadata.age": {"kind": "sum", "delta_status": "ok", "value": 9e9, "delta": 9e9},
        f"{PRODUCER}record.error.total": {"kind": "gauge", "delta_status": "value", "value": 9e9},
        f"{PRODUCER}buffer.exhausted.total": {"kind": "histogram", "delta_status": "ok", "count": 9},
        f"{PRODUCER}txn.abort.time.ns.total": {"kind": "sum", "delta_status": "too_late", "delta": 9e9},
        f"{GROUP}rebalance.latency.max": {"kind": "gauge", "delta_status": "non_finite"},
    }
    wrong = [at("kinds", "i", metric=metric, time=HOUR, **point) for metric, point in kinds.items()]
    topics = [
        row
        for n in range(1000)
        for row in (
            gauged("topics", "i", LAG, 10.0**9, topic=f"t{n}", partition="0"),
            at("topics", "i", metric=f"{PRODUCER}topic.byte.total", attributes=[("topic", f"t{n}")], time=HOUR,
               delta_status="ok") | _point(100, 60),
        )
    ]  # fmt: skip
    failed = at(hostile, "i", metric=f"{PRODUCER}record.error.total", delta_status="ok", time=HOUR) | _point(1, 60)
    later = {"landed_at": HOUR + timedelta(hours=2)}
    pushes = [at(name, "i", outcome="points") for name in ("kinds", "topics", hostile)]
    rows = answer("findings", {
        "metric_points": [*wrong, *topics, failed],
        "push_outcomes": [*pushes, *(row | later for row in pushes)],
        "pushes": [at(hostile, "i", principal=hostile, client_software_version=hostile)],
    })  # fmt: skip
    assert [(row["client_id"], row["finding"], row["window_start"]) for row in rows] == [
        (hostile, "failed_records", HOUR)
    ]


@pytest.mark.parametrize(
    ("view", "reads", "others"), [("instance_hours", 5, 0), ("instance_findings", 5, 0), ("findings", 13, 2)]
)
def test_a_filter_by_day_reads_no_other_day(view: str, reads: int, others: int) -> None:
    """Except the two scans of the rule that compares with the week before. Rules share scans: `reads` in all."""
    views, below = needed([view])
    with duckdb.connect() as connection:
        for name in below:
            connection.register(name, CATALOG[name].empty_table())
        for each in views:
            connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
        asked = f"EXPLAIN (FORMAT JSON) SELECT * FROM {view} WHERE landed_date = DATE '2026-11-21'"
        ((_, plan),) = connection.execute(asked).fetchall()
    scans = list(_filters_of_scans(json.loads(plan)))
    assert len(scans) == reads
    assert len([filters for filters in scans if "landed_date = '2026-11-21'::DATE" not in filters]) == others


def _filters_of_scans(plan: list[dict[str, Any]], filters: str = "") -> Iterator[str]:
    """The filters right above each scan of a plan: what they leave out, nothing else reads."""
    for node in plan:
        name, info = node["name"], node["extra_info"]
        if "ARROW_SCAN" in name:
            yield filters
        passes = name in ("FILTER", "PROJECTION") or info.get("Join Type") == "MARK"  # a MARK join is that of IN (...)
        own = f"{filters} {info['Expression']}" if name == "FILTER" else filters
        yield from _filters_of_scans(node["children"], own if passes else "")
