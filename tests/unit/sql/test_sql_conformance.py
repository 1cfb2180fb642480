"""Whether libraries obey KIP-714, rule by rule, over a few pushes of two libraries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.sql_views import Rows, answer

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KEY = {"source": "kafka", "topic": "t", "partition": 0, "cluster_id": "c"}


def tables(pushes: list[tuple[float, str, dict[str, Any]]], states: dict[str, str]) -> dict[str, Rows]:
    """Pushes (seconds, client instance id, columns of pushes or push_outcomes), and the state of each instance."""
    rows = [
        {**KEY, "offset": offset, "landed_at": NOON + timedelta(seconds=seconds), "client_instance_id": client,
         "push_interval_ms": 10_000, "terminating": False, "client_port": 1, "outcome": "points", "points": 2,
         "quarantined_points": 0, "temporality": "delta"} | columns
        for offset, (seconds, client, columns) in enumerate(pushes)
    ]  # fmt: skip
    clients = [
        {"cluster_id": "c", "client_instance_id": client, "client_software_name": client.rstrip("0123456789"),
         "client_software_version": "1", "first_seen": NOON, "last_seen": NOON, "step": 1, "state": state}
        for client, state in states.items()
    ]  # fmt: skip
    of_pushes = ("push_interval_ms", "client_port")
    of_outcomes = ("outcome", "points", "quarantined_points", "temporality")
    return {
        "pushes": [{name: value for name, value in row.items() if name not in of_outcomes} for row in rows],
        "push_outcomes": [{name: value for name, value in row.items() if name not in of_pushes} for row in rows],
        "client_changes": clients,
    }


def cards(given: dict[str, Rows]) -> dict[tuple[str, str], tuple[int, int, int, str | None]]:
    return {
        (row["software_name"], row["rule"]): (row["checked"], row["broken"], row["instances"], row["example"])
        for row in answer("client_conformance", given)
    }


def test_a_library_that_obeys_and_one_that_does_not() -> None:
    good = [(0, "good1", {}), (10, "good1", {}), (20, "good1", {"terminating": True, "points": 1})]
    bad: list[tuple[float, str, dict[str, Any]]] = [
        (0, "bad1", {}), (1, "bad1", {}), (2, "bad1", {"temporality": "cumulative"}), (52, "bad1", {}),
        (0, "bad2", {"outcome": "quarantined", "points": 0, "temporality": None}),
        (10, "bad2", {"quarantined_points": 1}), (10.5, "bad2", {"outcome": "duplicate"}),
    ]  # fmt: skip
    found = cards(tables([*good, *bad], {"good1": "terminated", "bad1": "silent", "bad2": "active"}))
    assert found == {
        ("good", "interval"): (2, 0, 0, None),
        ("good", "no_gap"): (2, 0, 0, None),
        ("good", "delta_temporality"): (3, 0, 0, None),
        ("good", "readable"): (3, 0, 0, None),
        ("good", "goodbye"): (1, 0, 0, None),
        ("bad", "interval"): (4, 2, 1, "bad1"),
        ("bad", "no_gap"): (4, 1, 1, "bad1"),
        ("bad", "delta_temporality"): (5, 1, 1, "bad1"),
        ("bad", "readable"): (6, 2, 1, "bad2"),
        ("bad", "goodbye"): (1, 1, 1, "bad1"),
    }


def test_names_count_only_where_subscriptions_are_known() -> None:
    given = tables([(0, "java1", {})], {"java1": "active"})
    given["metric_points"] = [
        {**KEY, "offset": 0, "landed_at": NOON, "client_instance_id": "java1", "metric": name}
        for name in ("a.b", "c.d")
    ]
    assert ("java", "subscribed_names") not in cards(given)
    given["subscriptions"] = [
        {"cluster_id": "c", "name": "of-others", "metrics": ["z."], "interval_ms": 10_000, "match": [],
         "valid_from": NOON - timedelta(hours=1)}
    ]  # fmt: skip
    assert cards(given)["java", "subscribed_names"] == (2, 2, 1, "java1")
