"""Findings that compare: brokers, siblings, the week before, partitions of a group, a quota."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.made_clients import GROUP, HOUR, PRODUCER, at, found_rows, gauged
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake


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
    assert [(row[:5], row[-1]) for row in found_rows({"metric_points": points}, "one_slow_broker")] == [
        ((None, "broker", "2", 5, 5), evidence.format(most, median))
        for most, median in (("20.0", "5.0"), ("30.0", "10.0"))
    ]


def test_one_instance_is_slower_than_its_siblings() -> None:
    metric = f"{PRODUCER}request.latency.avg"
    fleets: dict[str, tuple[float, ...]] = {"slow": (40, 41, 39, 40, 120), "less": (40, 41, 39, 40, 119.9)}
    fleets |= {"fast": (9, 9, 9, 9, 99), "few": (1, 1, 1, 900), "edge": (30, 30, 30, 30, 100)}
    points = [
        gauged(name, f"i{n}", metric, latency)
        for name, fleet in fleets.items() for n, latency in enumerate(fleet) for _ in range(3)
    ]  # fmt: skip
    # A process that has just begun has pushed twice.
    points += [gauged("begun", f"i{n}", metric, latency) for n, latency in enumerate(fleets["slow"]) for _ in range(2)]
    evidence = "1 of 5 client instances (20.0 %), at worst i4: requests take {} ms, {} ms in the median of all"
    assert found_rows({"metric_points": points}, "slow_instance") == [
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
    # librdkafka pushes 0 while nothing is sent, which makes a mean of the hour before smaller.
    rollups += [row | {"value_min": 0.0} for row in hours("idle", 50, 100)[:1]] + hours("idle", 50, 100)[1:]
    evidence = "produce requests take 100 ms, 50 ms in the same hour a week before"
    (one,) = found_rows({"metric_rollups_1h": rollups}, "latency_regression")
    assert (one[0], one[-1]) == ("slow", evidence)


def test_all_who_do_not_authenticate_are_no_principal() -> None:
    names = ["User:ANONYMOUS", *(f"User:{n}" for n in range(19)), "User:greedy"]
    sizes = {"User:ANONYMOUS": 10**9, "User:greedy": 10**6}
    pushes = [at(name, name, principal=name, payload_bytes=sizes.get(name, 1000)) for name in names]
    assert [row[2] for row in found_rows({"pushes": pushes}, "greedy_principal")] == ["User:greedy"]


def test_partitions_are_spread_unevenly_over_a_group() -> None:
    metric = f"{GROUP}assigned.partitions"

    tables: dict[str, list[dict[str, Any]]] = {"metric_points": [], "push_outcomes": []}

    def group(name: str, partitions: tuple[float, ...], pushes: int = 3, members: bool = True) -> None:
        for n, value in enumerate(partitions):
            labels = [("group_id", name), ("group_member_id", f"{name}{n}")][: 1 + members]
            tables["metric_points"] += [gauged("c", f"{name}{n}", metric, value)] * pushes
            tables["push_outcomes"].append(at("c", f"{name}{n}", outcome="points", labels=labels))

    for name, partitions in {"uneven": (6, 2, 2), "two": (5.9, 2), "one": (3, 1), "three": (4, 1)}.items():
        group(name, partitions)
    group("new", (9, 1), 2)
    group("connect", (25, 5, 1), members=False)
    evidence = "in group {} of {} pushing members one has {} partitions, another {}"
    assert found_rows(tables, "uneven_assignment") == [
        (None, "group", name, 1, members, f"{name}0", "info", evidence.format(name, members, most, least))
        for name, members, most, least in (("three", 2, 4.0, 1.0), ("uneven", 3, 6.0, 2.0))
    ]


def test_clients_without_a_client_id_are_no_siblings() -> None:
    """Nobody knows whether two pushes without a client id are of one application."""
    tables: dict[str, list[dict[str, Any]]] = {"pushes": [], "push_outcomes": [], "metric_points": []}
    for client_id in ("c", None, ""):
        ids = [f"{client_id}-{n}" for n in range(20)]
        rows = [at("", one) | {"client_id": client_id} for one in ids]
        software = {"client_software_name": "x", "push_interval_ms": 1000}
        tables["pushes"] += [
            row | software | {"client_software_version": str(n), "principal": f"User:{n}"} for n, row in enumerate(rows)
        ]
        tables["push_outcomes"] += [row | {"outcome": "points"} for row in rows]
        tables["push_outcomes"][-1]["landed_at"] += timedelta(seconds=600)
        slow = [
            gauged("", one, f"{PRODUCER}request.latency.avg", 100_000.0 if one == ids[0] else 1000.0) for one in ids
        ]
        tables["metric_points"] += [row | {"client_id": client_id} for row in slow for _ in "123"]
    rules = {"mixed_versions", "shared_client_id", "short_lived_clients", "slow_instance"}
    found = {(row["client_id"], row["finding"]) for row in answer("findings", tables)}
    assert {each for each in found if each[1] in rules} == {("c", rule) for rule in rules}


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
    one, six = found_rows({"quota_usage": usage}, "quota_headroom_short")
    assert "in 6 of 6 windows" in six[-1]
    assert (one[:3], one[-1]) == (("near", "quota", "produce quota of user u, client id near"), evidence)
