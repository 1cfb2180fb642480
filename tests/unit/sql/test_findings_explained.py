"""Rules whose measure means something else in another client or state, where another measure says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.made_clients import (
    CONSUMER,
    FETCH,
    GROUP,
    HOUR,
    IDLE,
    LAG,
    PRODUCER,
    QUIET,
    Client,
    Metrics,
    at,
    found_by_client,
    found_rows,
    gauge,
    gauged,
    tables_of,
    waits,
)

pytestmark = pytest.mark.lake

BETWEEN, FETCHES = f"{CONSUMER}time.between.poll.max", f"{FETCH}fetch.total"
LATENCY, ASSIGNED = f"{FETCH}fetch.latency.avg", f"{GROUP}assigned.partitions"
LAGS = {LAG: gauge(1000, 10)}
WAITS = waits(0.95) | LAGS | {LATENCY: gauge(500)}
MEMBER = (("group_id", "g"), ("group_member_id", "m"))
BY_HAND = (("group_id", "g"),)
SPARK = (("group_id", "spark-kafka-source-0d6f2a0c-1-executor"),)
STREAMS = "app-1f0e8a5e-0000-4000-8000-000000000001-StreamThread-1-"
HEARTBEATS, LAST_HEARTBEAT = f"{GROUP}heartbeat.total", f"{GROUP}last.heartbeat.seconds.ago"
OPENED = f"{PRODUCER}connection.creation.total"
FRANZ_GO = ("kgo", "v1.22.3")
Tables = dict[str, list[dict[str, Any]]]

CASES: list[tuple[str, Metrics, tuple[tuple[str, str], ...], list[str]]] = [
    # Java's time between polls runs from the start of one to the start of the next.
    ("only waits in poll(160 s)", {BETWEEN: gauge(160_000), IDLE: gauge(0.5)}, MEMBER, []),
    ("only waits in poll(400 s)", {BETWEEN: gauge(400_000), IDLE: gauge(0.5)}, MEMBER, []),
    ("mostly waits", {BETWEEN: gauge(160_000)} | waits(0.75), MEMBER, []),
    ("works as well", {BETWEEN: gauge(160_000)} | waits(0.749), MEMBER, ["slow_processing"]),
    # Nobody is thrown out of a group that he isn't in.
    ("works, by hand", {BETWEEN: gauge(400_000)} | waits(0.1), BY_HAND, []),
    ("works, no group", {BETWEEN: gauge(400_000)} | waits(0.1), (), []),
    ("works, Spark's", {BETWEEN: gauge(400_000)} | waits(0.1), SPARK, []),
    ("has nothing", {ASSIGNED: gauge(0, 3)}, MEMBER, ["idle_member"]),
    ("has nothing, by hand", {ASSIGNED: gauge(0, 3)}, BY_HAND, []),
    # Who has left its group keeps the label of its member id, and sends no heartbeats.
    ("has nothing, left", {ASSIGNED: gauge(0, 3), HEARTBEATS: (0, 3600)}, MEMBER, []),
    ("works, left", {BETWEEN: gauge(160_000), HEARTBEATS: (0, 3600)} | waits(0.1), MEMBER, []),
    ("heartbeats late", {LAST_HEARTBEAT: gauge(15, 3), HEARTBEATS: (9, 3600)}, MEMBER, ["heartbeat_at_risk"]),
    ("heartbeats no more, left", {LAST_HEARTBEAT: gauge(2000, 3), HEARTBEATS: (0, 3600)}, MEMBER, []),
    ("heartbeats no more, by hand", {LAST_HEARTBEAT: gauge(2000, 3), HEARTBEATS: (9, 3600)}, BY_HAND, []),
    # Partitions that it has paused have a lag, but no fetch is under way.
    ("is paused", WAITS | {FETCHES: (3599, 3600)}, MEMBER, []),
    ("waits for Kafka", WAITS | {FETCHES: (3600, 3600)}, MEMBER, ["fetch_bound"]),
    # A batch of Spark's begins with what has come since the one before.
    ("lags", waits(0.05), MEMBER, ["processing_bound"]),
    ("lags, Spark's", waits(0.05), SPARK, []),
    ("waits for Kafka, Spark's", WAITS | {FETCHES: (3600, 3600)}, SPARK, []),
    ("fetches slowly", LAGS | {LATENCY: gauge(1000)}, MEMBER, ["slow_fetches"]),
    ("fetches slowly, Spark's", LAGS | {LATENCY: gauge(1000)}, SPARK, []),
    # A restore consumer of Streams reads what its thread's tasks lack, as fast as it can.
    (f"{STREAMS}consumer", waits(0.05), MEMBER, ["processing_bound"]),
    (f"{STREAMS}restore-consumer", waits(0.05), (), []),
]


def test_a_measure_is_read_with_the_one_that_explains_it() -> None:
    found = found_by_client({name: Client(QUIET | metrics, labels=labels) for name, metrics, labels, _ in CASES})
    assert {name: list(each) for name, each in found.items()} == {name: expected for name, _, _, expected in CASES}


def test_a_stop_between_long_waits_shows_by_the_fetches_that_are_missing() -> None:
    waits_long = QUIET | {BETWEEN: gauge(155_000), IDLE: gauge(0.5)}
    stops = {"less": (59.9, 10), "stops": (60, 10), "has no partitions": (3600, 0)}
    tables = tables_of({name: Client(waits_long | {FETCHES: (fetches, 60)}) for name, (_, fetches) in stops.items()})
    for name, (still_s, _) in stops.items():
        none = at(name, "i0", metric=FETCHES, kind="sum", delta=0.0, delta_status="ok", time=HOUR)
        tables["metric_points"].append(none | {"delta_start": HOUR - timedelta(seconds=still_s)})
    assert [row[0] for row in found_rows(tables, "slow_processing")] == ["stops"]


def test_executors_of_spark_are_no_clients_for_each_message() -> None:
    """All executors' consumers of a query have one client id, and push only while a batch reads."""
    tables: Tables = {"push_outcomes": [], "pushes": []}
    for client_id in ("consumer-spark-kafka-source-0d6f-1-executor-1", "orders"):
        rows = [at(client_id, f"{client_id}{n}", outcome="points") for n in range(20)]
        rows[-1]["landed_at"] += timedelta(seconds=600)
        tables["push_outcomes"] += rows
        tables["pushes"] += [at(client_id, f"{client_id}{n}", push_interval_ms=1000) for n in range(20)]
    assert [row[0] for row in found_rows(tables, "short_lived_clients")] == ["orders"]


def churn(client_id: str, software: tuple[str, str], opened: int, covered_s: float, first: int) -> Tables:
    """Sixty pushes, one a minute: the first has no start in franz-go's, and it leaves out deltas of 0."""
    outcomes = ({"client_instance_id": "i0", "outcome": "points"},) * 60
    tables = Client({OPENED: (opened, covered_s)}, software, outcomes, labels=()).rows(client_id)
    tables["metric_points"].append(
        at(client_id, "i0", metric=OPENED, kind="sum", delta=first, delta_status="ok", time=HOUR)
    )
    return tables


def test_connections_of_franz_go_are_counted_over_all_of_its_pushes() -> None:
    """It leaves out counters that didn't grow, so deltas cover only the minutes in which it opened connections."""
    cases = [
        churn("start", FRANZ_GO, 1, 60, first=10), churn("few", FRANZ_GO, 48, 12 * 60, first=12),
        churn("many", FRANZ_GO, 49, 12 * 60, first=12), churn("java", ("apache-kafka-java", "4.3.1"), 61, 3600, 0),
    ]  # fmt: skip
    # Receivers before Kafka 4.2 tell no interval: then nobody knows what time its pushes are of.
    unknown = churn("unknown interval", FRANZ_GO, 49, 12 * 60, first=12)
    unknown["pushes"] = [row | {"push_interval_ms": None} for row in unknown["pushes"]]
    cases.append(unknown)
    tables = {table: [row for each in cases for row in each[table]] for table in cases[0]}
    assert [(row[0], row[-1]) for row in found_rows(tables, "connection_churn")] == [
        ("java", "61 connections opened, 1.0 a minute"), ("many", "61 connections opened, 1.0 a minute"),
    ]  # fmt: skip


def test_who_polls_in_batches_falls_silent_without_a_bug() -> None:
    """KAFKA-20393 is named for clients that fell silent; Spark's consumers and idle restore consumers always do."""
    labels = {"spark": SPARK, f"{STREAMS}restore-consumer": (), "orders": BY_HAND}
    java = ("apache-kafka-java", "4.0.2")
    tables = tables_of({client_id: Client({}, java, labels=of_client) for client_id, of_client in labels.items()})
    tables["client_events"] = [at(client_id, "i0", event="went_silent", at=HOUR) for client_id in labels]
    assert [row[0] for row in found_rows(tables, "buggy_client_version")] == ["orders"]


def test_streams_spreads_tasks_not_partitions() -> None:
    tables: Tables = {"metric_points": [], "push_outcomes": []}
    for group, client_id in (("plain", "orders"), ("streams", f"{STREAMS}consumer")):
        for n, partitions in enumerate((6.0, 2.0)):
            one = f"{group}{n}"
            tables["metric_points"] += [gauged(client_id, one, ASSIGNED, partitions) for _ in range(3)]
            label = [("group_id", group), ("group_member_id", one)]
            tables["push_outcomes"].append(at(client_id, one, outcome="points", labels=label))
    assert [row[2] for row in found_rows(tables, "uneven_assignment")] == ["plain"]
