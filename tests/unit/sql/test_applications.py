"""Views of applications: who has no owner, whose a client id is, and what each application, owner and principal has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.sql_views import answer, told

START = datetime(2026, 7, 1, tzinfo=UTC)


def client(instance: str, client_id: str, first: int = 0, last: int = 9, **more: Any) -> dict[str, Any]:
    """A client instance that was seen from hour `first` to hour `last`."""
    known = {
        "cluster_id": "c", "client_instance_id": instance, "client_id": client_id, "step": 1, "principal": "User:a",
        "client_address": "10.0.0.1", "client_software_name": "librdkafka", "client_software_version": "2.12.0",
        "state": "active", "first_seen": START + timedelta(hours=first), "last_seen": START + timedelta(hours=last),
    }  # fmt: skip
    return known | more


RULES = [
    {"position": 0, "principal": "User:a", "application": "shop", "owner": "team-a"},
    {"position": 1, "principal": "User:b", "application": "bank", "owner": "team-b"},
    {"position": 2, "principal": "User:c", "application": "lab"},
]


def test_clients_without_an_owner_and_the_reason() -> None:
    clients = [
        client("1", "owned"), client("2", "lab", principal="User:c"), client("3", "new", principal="User:d"),
        client("4", "new", principal="User:d", client_address="10.0.0.2", state="terminated", first=3, last=12),
        client("5", "hidden", principal=None, labels=[("group_id", "g")]),
    ]  # fmt: skip
    tables = {"client_changes": clients, "application_rules": RULES}
    columns = "client_id, application, reason, instances, active_instances, group_id, addresses"
    assert told("unowned_clients", tables, columns) == [
        ("hidden", None, "rule 0: its principal or address is unknown", 1, 1, "g", ["10.0.0.1"]),
        ("lab", "lab", "its alias or rule names no owner", 1, 1, None, ["10.0.0.1"]),
        ("new", None, "no alias or rule fits", 2, 1, None, ["10.0.0.1", "10.0.0.2"]),
    ]
    seen = told("unowned_clients", tables, "first_seen, last_seen", "client_id = 'new'")
    assert seen == [(START, START + timedelta(hours=12))]


def test_a_client_id_of_two_teams_is_said_to_be_shared_or_reused() -> None:
    clients = [
        client("1", "etl", 0, 5), client("2", "etl", 4, 6, principal="User:b"),
        client("3", "etl", 20, 30, principal="User:c"), client("4", "etl", 0, 30, cluster_id="d", principal="User:b"),
        client("5", "own", 0, 1), client("6", "own", 5, 6),
    ]  # fmt: skip
    columns = "cluster_id, client_id, application, instances, shared_with, reused_from"
    assert told("client_id_owners", {"client_changes": clients, "application_rules": RULES}, columns) == [
        ("c", "etl", "bank", 1, ["shop of team-a"], []),
        ("c", "etl", "lab", 1, [], ["bank of team-b", "shop of team-a"]),
        ("c", "etl", "shop", 1, ["bank of team-b"], []),
        ("c", "own", "shop", 2, [], []),
        ("d", "etl", "bank", 1, [], []),
    ]


def test_each_application_owner_and_principal_has_its_clients_quotas_and_findings() -> None:
    clients = [
        client("1", "orders", labels=[("group_id", "g")]), client("2", "orders", state="terminated"),
        client("3", "bills", client_software_version="2.5.0", labels=[("group_id", "g")]),
        client("4", "ledger", principal="User:b"), client("5", "x", principal="User:d"),
    ]  # fmt: skip
    opened = {
        "cluster_id": "c", "finding": "throttled", "scope": "client_id", "change": "opened", "at": START,
        "opened_at": START, "recorded_at": START, "application": "shop", "owner": "team-a", "principal": "User:a",
    }  # fmt: skip
    changes = [
        opened | {"finding_id": name, "subject": name, "client_id": name, "severity": severity}
        for name, severity in (("orders", "error"), ("bills", "info"), ("carts", "info"))
    ]
    quotas = [
        {"cluster_id": "c", "user": "", "client_id": "orders", "ip": "", "quota_type": "produce", "quota_limit": 1.0}
    ]
    rows = answer(
        "applications",
        {"client_changes": clients, "application_rules": RULES, "finding_changes": changes, "quotas": quotas},
    )
    columns = ("scope", "subject", "client_ids", "instances", "active_instances", "consumer_groups",
               "limited_instances", "errors", "warnings", "infos")  # fmt: skip
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("application", "bank", 1, 1, 1, 0, 0, 0, 0, 0), ("application", "shop", 2, 3, 2, 1, 2, 1, 0, 2),
        ("application", None, 1, 1, 1, 0, 0, 0, 0, 0),
        ("owner", "team-a", 2, 3, 2, 1, 2, 1, 0, 2), ("owner", "team-b", 1, 1, 1, 0, 0, 0, 0, 0),
        ("owner", None, 1, 1, 1, 0, 0, 0, 0, 0),
        ("principal", "User:a", 2, 3, 2, 1, 2, 1, 0, 2), ("principal", "User:b", 1, 1, 1, 0, 0, 0, 0, 0),
        ("principal", "User:d", 1, 1, 1, 0, 0, 0, 0, 0),
    ]  # fmt: skip
    assert rows[1]["versions"] == ["librdkafka 2.12.0", "librdkafka 2.5.0"]
