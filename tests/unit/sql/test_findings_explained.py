"""Rules whose measure means something else in another client or state, where another measure says so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.made_clients import (
    CONSUMER,
    FETCH,
    GROUP,
    HOUR,
    IDLE,
    LAG,
    QUIET,
    Client,
    Metrics,
    at,
    found_by_client,
    found_rows,
    gauge,
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
    # Partitions that it has paused have a lag, but no fetch is under way.
    ("is paused", WAITS | {FETCHES: (3599, 3600)}, MEMBER, []),
    ("waits for Kafka", WAITS | {FETCHES: (3600, 3600)}, MEMBER, ["fetch_bound"]),
    # A batch of Spark's begins with what has come since the one before.
    ("lags", waits(0.05), MEMBER, ["processing_bound"]),
    ("lags, Spark's", waits(0.05), SPARK, []),
    ("waits for Kafka, Spark's", WAITS | {FETCHES: (3600, 3600)}, SPARK, []),
    ("fetches slowly", LAGS | {LATENCY: gauge(1000)}, MEMBER, ["slow_fetches"]),
    ("fetches slowly, Spark's", LAGS | {LATENCY: gauge(1000)}, SPARK, []),
]


def test_a_measure_is_read_with_the_one_that_explains_it() -> None:
    found = found_by_client({name: Client(QUIET | metrics, labels=labels) for name, metrics, labels, _ in CASES})
    assert {name: list(each) for name, each in found.items()} == {name: expected for name, _, _, expected in CASES}


def test_a_stop_between_long_waits_shows_by_the_fetches_that_are_missing() -> None:
    tables: dict[str, list[dict[str, object]]] = {}
    for client_id, still_s, fetches in (("less", 59.9, 10), ("stops", 60, 10), ("has no partitions", 3600, 0)):
        waits_long = {BETWEEN: gauge(155_000), IDLE: gauge(0.5), FETCHES: (fetches, 60)}
        none = at(client_id, "i0", metric=FETCHES, kind="sum", delta=0.0, delta_status="ok", time=HOUR)
        none["delta_start"] = HOUR - timedelta(seconds=still_s)
        for table, rows in Client(QUIET | waits_long).rows(client_id).items():
            tables.setdefault(table, []).extend(rows)
        tables["metric_points"].append(none)
    assert [row[0] for row in found_rows(tables, "slow_processing")] == ["stops"]


def test_executors_of_spark_are_no_clients_for_each_message() -> None:
    """All executors' consumers of a query have one client id, and push only while a batch reads."""
    tables: dict[str, list[dict[str, object]]] = {"push_outcomes": [], "pushes": []}
    for client_id in ("consumer-spark-kafka-source-0d6f-1-executor-1", "orders"):
        rows = [at(client_id, f"{client_id}{n}", outcome="points") for n in range(20)]
        rows[-1]["landed_at"] += timedelta(seconds=600)
        tables["push_outcomes"] += rows
        tables["pushes"] += [at(client_id, f"{client_id}{n}", push_interval_ms=1000) for n in range(20)]
    assert [row[0] for row in found_rows(tables, "short_lived_clients")] == ["orders"]
