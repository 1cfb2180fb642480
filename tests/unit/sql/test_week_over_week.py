"""What moved against the week before, unlike its peers, and what changed in between: made weeks with known changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.sql_views import told

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
Row = dict[str, Any]
SENT = "org.apache.kafka.producer.record.send.total"
UNLIMITED = 9223372036854775807.0


def day(number: float) -> datetime:
    """Days before (negative) or after the hour."""
    return HOUR + timedelta(days=number)


def hours(client_id: str, ratio: float, covered_s: float = 3600.0, cluster: str = "c") -> list[Row]:
    """A client id's rollups of the hour, and of the one a week before."""
    usual = {
        "cluster_id": cluster, "client_id": client_id, "metric": SENT, "kind": "sum", "temporality": "delta",
        "points": 1, "resets": 0, "baselines": 0, "refused": 0,
    }  # fmt: skip
    before = {"window_start": HOUR - WEEK, "increase": 3600.0, "covered_s": 3600.0}
    return [usual | before, usual | {"window_start": HOUR, "increase": ratio * covered_s, "covered_s": covered_s}]


def client(client_id: str, number: int = 1, first: float = -30, version: str = "4.2.0", **more: Any) -> Row:
    return {
        "cluster_id": "c", "client_id": client_id, "client_instance_id": f"{client_id}/{number}", "step": 1,
        "client_software_name": "java", "client_software_version": version, "state": "active",
        "principal": "User:alice", "first_seen": day(first), "last_seen": day(1), **more,
    }  # fmt: skip


def quota(limit: float, since: float, until: float | None, user: str = "", client_id: str = "", **more: Any) -> Row:
    """A version of a produce quota, which polls every hour found from `since` to `until`."""
    hour = timedelta(hours=1)
    return {
        "cluster_id": "c", "user": user, "client_id": client_id, "ip": "", "quota_type": "produce",
        "quota_limit": limit, "valid_from": day(since), "not_seen_at": day(since) - hour,
        "valid_to": None if until is None else day(until),
        "last_seen_at": None if until is None else day(until) - hour, **more,
    }  # fmt: skip


def changes(**tables: list[Row]) -> list[tuple[Any, ...]]:
    columns = 'client_id, change, subject, before, after, "at"'
    return told("client_id_changes", tables, columns, order='client_id, "at", change')


def test_deployments_and_restarts_are_told_apart() -> None:
    clients = [
        client("a", 1, -30, state="terminated", terminated_at=day(-3)),
        client("a", 2, -3, "4.3.0"),
        client("a", 3, -2, "4.3.0", state="silent", silent_at=day(-1)),
        client("a", 4, -1.5, "4.2.0"),
        client("b", 1, -4),
        client("a", 1, -9, cluster_id="d", version="3.9.0"),
        client("a", 2, -2.5, cluster_id="d", version="4.3.0"),
    ]
    old, new = "java 4.2.0", "java 4.3.0"
    assert changes(client_changes=clients) == [
        ("a", "first_seen", "a/1", None, old, day(-30)),
        ("a", "first_seen", "a/1", None, "java 3.9.0", day(-9)),
        ("a", "ended", "a/1", old, None, day(-3)),
        ("a", "new_version", "a/2", old, new, day(-3)),
        ("a", "new_version", "a/2", "java 3.9.0", new, day(-2.5)),
        ("a", "started", "a/3", new, new, day(-2)),
        ("a", "started", "a/4", new, old, day(-1.5)),
        ("a", "ended", "a/3", new, None, day(-1)),
        ("b", "first_seen", "b/1", None, old, day(-4)),
    ]


def test_only_a_change_of_the_limit_that_applies_is_one() -> None:
    quotas = [
        quota(500.0, -20, -5, user="<default>"),
        quota(900.0, -5, -1.5, user="<default>"),  # neither has a more specific limit until day -3
        quota(950.0, -1.5, None, user="<default>"),  # one has
        quota(300.0, -20, None, client_id="b"),  # less specific, although it names the client id
        quota(100.0, -3, None, user="alice", client_id="a"),
        quota(700.0, -2, -1, user="<default>", client_id="x"),
        quota(10.0, -4, None, user="alice", client_id="a", ip="10.0.0.1"),
        quota(UNLIMITED, -1, None, user="bob"),
        quota(400.0, -0.5, None, user="<default>", cluster_id="d"),
    ]
    for of_first_poll in (quotas[0], quotas[3]):
        of_first_poll |= {"not_seen_at": None}
    clients = [client("a"), client("b", principal="User:bob")]
    found = [row for row in changes(client_changes=clients, quotas=quotas) if row[1] == "quota"]
    assert found == [
        ("a", "quota", "alice produce", "500.00", "900.00", day(-5)),
        ("a", "quota", "alice produce", "900.00", "100.00", day(-3)),
        ("b", "quota", "bob produce", "500.00", "900.00", day(-5)),
        ("b", "quota", "bob produce", "900.00", "950.00", day(-1.5)),
        ("b", "quota", "bob produce", "950.00", "none", day(-1)),
    ]


def test_a_removed_limit_gives_way_to_the_next() -> None:
    quotas = [quota(500.0, -20, None), quota(100.0, -20, -2, client_id="a")]
    quotas[0] |= {"user": "<default>", "not_seen_at": None}
    quotas[1] |= {"user": "alice", "not_seen_at": None}
    found = [row[1:5] for row in changes(client_changes=[client("a")], quotas=quotas) if row[1] == "quota"]
    assert found == [("quota", "alice produce", "100.00", "500.00")]


def subscription(name: str, metrics: list[str], since: float, until: float | None, first: bool = False) -> Row:
    row = quota(0, since, until)
    times = {key: row[key] for key in ("valid_from", "valid_to", "not_seen_at", "last_seen_at")}
    times |= {"not_seen_at": None} if first else {}
    return {"cluster_id": "c", "name": name, "metrics": metrics, "interval_ms": 1000, "match": []} | times


def test_subscriptions_count_for_those_that_they_match() -> None:
    versions = [
        subscription("all", ["*"], -20, -3, first=True),
        subscription("all", ["a.", "b."], -3, None),
        subscription("more", ["c."], -2, -1),
        subscription("others", ["d."], -2, None),
        subscription("unreadable", ["e."], -2, None),
    ]
    matches = [
        {"cluster_id": "c", "client_attributes_id": 1, "name": each["name"], "valid_from": each["valid_from"],
         "matches": None if each["name"] == "unreadable" else True}
        for each in versions if each["name"] != "others"
    ]  # fmt: skip
    attributes = [{"client_attributes_id": 1, "client_id": "a"}, {"client_attributes_id": 2, "client_id": "b"}]
    assert changes(subscriptions=versions, client_matches=matches, client_attributes=attributes) == [
        ("a", "subscription", "all", "* every 1000 ms", "a.,b. every 1000 ms", day(-3)),
        ("a", "subscription", "more", "none", "c. every 1000 ms", day(-2)),
        ("a", "subscription", "more", "c. every 1000 ms", "none", day(-1)),
    ]


def causes(columns: str, **tables: list[Row]) -> list[tuple[Any, ...]]:
    return told("metric_week_over_week_causes", tables, f"client_id, {columns}", order="cluster_id, client_id")


def alias(client_id: str, application: str) -> Row:
    return {"cluster_id": "c", "client_id": client_id, "application": application, "owner": "team", "valid_from": HOUR}


def test_peers_are_the_others_of_the_application_else_of_the_library() -> None:
    ratios = {"s1": 1.0, "s2": 2.0, "s3": 4.0, "s4": 40.0, "l1": 3.0, "l2": 5.0, "l3": 9.0, "go": 7.0}
    clients = [client(name) for name in ratios if name != "go"] + [client("go", client_software_name="go")]
    rows = [row for name, ratio in ratios.items() for row in hours(name, ratio)] + hours("l4", 100.0, 600.0)
    clients += [client("l4"), client("l1", cluster_id="d")]
    tables = {
        "metric_rollups_1h": rows + hours("l1", 50.0, cluster="d"),
        "client_changes": clients,
        "client_aliases": [alias(name, "shop") for name in ("s1", "s2", "s3", "s4")],
    }
    shop, java = "application shop", "library java"
    assert causes("ratio, peer_group, peers, peer_ratio, deviation", **tables) == [
        ("go", 7.0, "library go", 0, None, None),
        ("l1", 3.0, java, 2, 7.0, 3 / 7),
        ("l2", 5.0, java, 2, 6.0, 5 / 6),
        ("l3", 9.0, java, 2, 4.0, 9 / 4),
        ("l4", 100.0, java, 0, None, None),  # its hours aren't comparable
        ("s1", 1.0, shop, 3, 4.0, 1 / 4),
        ("s2", 2.0, shop, 3, 4.0, 1 / 2),
        ("s3", 4.0, shop, 3, 2.0, 2.0),
        ("s4", 40.0, shop, 3, 2.0, 20.0),
        ("l1", 50.0, java, 0, None, None),  # of the other cluster
    ]


def test_a_client_id_of_two_applications_has_no_peers() -> None:
    of_one = {"client_instance_id": "a/2", "client_id": None}
    tables = {
        "metric_rollups_1h": hours("a", 2.0) + hours("b", 1.0) + hours("gone", 3.0),
        "client_changes": [client("a"), client("a", 2), client("b")],
        "client_aliases": [alias("a", "shop"), alias("a", "bank") | of_one, alias("b", "shop")],
    }
    assert causes("application, peer_group, peers, changes IS NULL", **tables) == [
        ("a", None, None, 0, False),
        ("b", "shop", "application shop", 0, False),
        ("gone", None, None, 0, True),
    ]


def test_changes_between_the_two_hours_stand_beside_the_ratio() -> None:
    clients = [
        client("a", 1, -30, state="terminated", terminated_at=day(-3)),
        client("a", 2, -3, "4.3.0"),
        client("a", 3, -7.5),  # before the first of the two hours
        client("a", 4, 0.02),
        client("a", 5, 0.05),  # after the second
        client("still"),
    ]
    quotas = [
        quota(500.0, -20, -2, user="alice") | {"not_seen_at": None},
        quota(50.0, -2, None, user="alice"),
        quota(1.0, 1, None, user="alice", client_id="still"),
    ]
    tables = {"metric_rollups_1h": hours("a", 0.1) + hours("still", 1.0), "client_changes": clients, "quotas": quotas}
    limit = "quota alice produce: 500.00 to 50.00"
    assert causes("ratio, started, ended, changes", **tables) == [
        ("a", 0.1, 2, 1, ["new_version: java 4.2.0 to java 4.3.0", limit]),
        ("still", 1.0, 0, 0, [limit]),
    ]
