"""Whom a finding is about: instances, applications, owners and principals, and what it was before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.made_clients import (
    GROUP,
    HOUR,
    PRODUCER,
    SENT,
    Client,
    Metrics,
    _point,
    at,
    found_rows,
    gauge,
    tables_of,
    without_hour,
)
from tests.support.sql_views import answer, told

pytestmark = pytest.mark.lake


def instances(measured: Iterable[Metrics]) -> dict[str, list[dict[str, Any]]]:
    """Client instances of one client id, by what each measured."""
    tables: dict[str, list[dict[str, Any]]] = {"push_outcomes": [], "metric_points": []}
    for n, metrics in enumerate(measured):
        tables["push_outcomes"].append(at("orders", f"i{n}", outcome="points"))
        tables["metric_points"] += [
            at("orders", f"i{n}", metric=metric, delta_status="ok", time=HOUR) | _point(*values)
            for metric, values in metrics.items()
        ]
    return tables


def test_a_finding_names_the_instances_their_number_and_the_worst() -> None:
    """Of four instances, two have failed records; and one that pushes a lot makes no other look busy."""
    errors = f"{PRODUCER}record.error.total"
    tables = instances({SENT: (100.0, 3600), errors: (failed, 3600)} for failed in (0, 3, 7, 0))
    evidence = "2 of 4 client instances (50.0 %), at worst i2: 7 records could not be sent (100 were)"
    assert found_rows(tables, "failed_records") == [("orders", "client_id", "orders", 2, 4, "i2", "error", evidence)]
    own = told("instance_findings", tables, "client_instance_id, measure, evidence")
    assert [(*row[:2], without_hour(row[2])) for row in own] == [
        (f"i{n}", failed, f"{failed} records could not be sent (100 were)") for n, failed in ((1, 3), (2, 7))
    ]


def test_an_application_an_owner_and_a_principal_are_groups_of_instances() -> None:
    """Two client ids of one application; one instance has an alias of its own; a rule says whose one client id is."""
    tables = tables_of({"orders": Client(instances=3), "bills": Client(), "others": Client()})
    for row in (row for rows in tables.values() for row in rows):
        row["client_instance_id"] = f"{row['client_id']} {row['client_instance_id']}"
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
    kinds = {(row["finding"], row["severity"], row["window_start"]) for row in rows}
    assert kinds == {("costly_commits", "warning", HOUR)}
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
    means = (gauge(mean) for mean in (1.5, 1.2, 1.7))
    tables = instances({SENT: (72_000, 3600), f"{PRODUCER}records.per.request.avg": mean} for mean in means)
    (one,) = found_rows(tables, "one_record_per_request")
    assert one[3:6] == (3, 3, "i1")
    assert "at worst i1: 1.2 records per request" in one[-1]


def test_what_pushes_and_events_show_of_an_instance() -> None:
    five = timedelta(minutes=5)
    pushes: dict[str, dict[str, Any]] = {
        "fine": {"last_time": HOUR + five - timedelta(milliseconds=1), "quarantined_points": 0},
        "ahead": {"last_time": HOUR + five},
        "behind": {"last_time": HOUR - five},
        "points": {"quarantined_points": 1},
        "dropped": {"outcome": "dropped"},
        "twice": {},
        "dead": {},
    }
    tables = {
        "push_outcomes": [at(name, "i", **{"outcome": "points"} | row) for name, row in pushes.items()],
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
