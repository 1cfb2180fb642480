"""Findings about consumers that fall behind: lag that grows, its time, and retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.made_clients import FETCH, HOUR, LAG, _point, at, found_rows, gauged
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake


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
        "in 1 partitions of topic t it lags by up to 1000 offsets and is at most 52 offsets ahead of what retention "
        "deletes"
    )
    assert found_rows({"metric_points": points}, "about_to_lose_data") == [
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
        "partition 0 of topic t from at most {} to at least {} offsets"
    )
    tables = {"metric_points": [*points, *late, *stuck, *kind, *twice]}
    assert found_rows(tables, "growing_lag") == [
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
        "partition 7 of topic t from at most 4000 to at least 18000 offsets"
    )
    assert found_rows({"metric_points": points}, "growing_lag") == [
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
        "1 of 1 client instances (100.0 %), at worst i: it would need up to {} s to work off its lag of topic t, never "
        "less than 1000 offsets, at the {} records/s that it consumed"
    )
    assert found_rows({"metric_points": points}, "time_lag") == [
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
