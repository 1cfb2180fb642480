"""Application and owner beside whatever names a client: no view forgets them, and none guesses."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.query.lake_query import view_columns
from tests.support.quota_samples import at, quota, usage_window
from tests.support.sql_views import Rows, answer, told

pytestmark = pytest.mark.lake

# Views that name a client without its application or owner, and why.
WITHOUT = {
    "counted_points": "one row per point, read by the views per client; join clients",
    "findings": "read by the job that opens findings; open_findings and finding_groups have both",
    "instance_findings": "read by findings; finding_groups has both",
    "instance_hours": "read by findings; join clients",
    "metric_rates_1h": "one row per metric and hour; join entity_owners",
    "metric_rates_1m": "one row per metric and minute; join entity_owners",
    "metric_week_over_week": "read by metric_week_over_week_causes, which has both",
    "point_subscriptions": "columns of table metric_points; join clients",
    "push_subscription_times": "read by the views of subscriptions; join clients",
    "quota_windows": "read by the views of quotas; join entity_owners",
    "subscription_events": "columns of table client_events; join clients",
    "subscription_metrics": "columns of table metric_points; join clients",
    "unowned_clients": "those that have no owner",
    "unsubscribed_metrics": "columns of table metric_points; join clients",
}
RULES = [
    {"position": 0, "group_id": "audit", "application": "audit", "owner": "team-c"},
    {"position": 1, "principal": "User:ann", "application": "shop", "owner": "team-a"},
    {"position": 2, "principal": "User:bob", "application": "bank", "owner": "team-b"},
]
Row = dict[str, Any]


def client(instance: str, user: str | None, client_id: str | None, cluster: str | None = "c", **more: Any) -> Row:
    return {
        "cluster_id": cluster, "client_instance_id": instance, "client_id": client_id, "step": 1, "state": "active",
        "principal": None if user is None else f"User:{user}", "first_seen": at(-3600), "last_seen": at(3600), **more,
    }  # fmt: skip


CLIENTS = [
    client("1", "ann", "orders"), client("2", "bob", "orders"), client("3", "ann", "bills"),
    client("4", "eve", "new"), client("5", "bob", "bills", cluster="d"), client("6", "ann", None),
]  # fmt: skip
OWNED: dict[str, Rows] = {"client_changes": CLIENTS, "application_rules": RULES}
SHOP, BANK, NOBODY = ("shop", "team-a"), ("bank", "team-b"), (None, None)
BOTH = ("bank, shop", "team-a, team-b")


def window(user: str, client_id: str, **more: Any) -> Row:
    return usage_window(0, user=user, client_id=client_id, **{"throttled": True} | more)


def test_every_view_that_names_a_client_has_its_application_and_owner() -> None:
    lacking = {
        name
        for name, columns in view_columns().items()
        if {"client_id", "client_instance_id"} & set(columns) and not {"application", "owner"} <= set(columns)
    }
    assert lacking == WITHOUT.keys()


def test_an_entity_has_the_owners_of_all_its_clients() -> None:
    rows = told("entity_owners", OWNED, 'cluster_id, "user", client_id, application, owner')
    assert {row[:3]: row[3:] for row in rows} == {
        ("c", "ann", ""): SHOP, ("c", "bob", ""): BANK, ("c", "eve", ""): NOBODY, ("d", "bob", ""): BANK,
        ("c", "", "orders"): BOTH, ("c", "", "bills"): SHOP, ("c", "", "new"): NOBODY, ("d", "", "bills"): BANK,
        ("c", "ann", "orders"): SHOP, ("c", "bob", "orders"): BANK, ("c", "ann", "bills"): SHOP,
        ("c", "eve", "new"): NOBODY, ("d", "bob", "bills"): BANK,
    }  # fmt: skip


@pytest.mark.parametrize("view", ["quota_headroom", "throttled_clients"])
def test_use_of_a_quota_has_the_owners_of_its_bucket(view: str) -> None:
    entities = [("", "orders"), ("bob", "orders"), ("ann", ""), ("gone", "gone")]
    tables = OWNED | {"quota_usage": [window(*entity) for entity in entities]}
    rows = answer(view, tables)
    assert {(row["user"], row["client_id"]): (row["application"], row["owner"]) for row in rows} == {
        ("", "orders"): BOTH, ("bob", "orders"): BANK, ("ann", ""): SHOP, ("gone", "gone"): NOBODY,
    }  # fmt: skip


def test_throttled_are_only_the_owners_of_clients_that_were_there() -> None:
    clients = [*CLIENTS, client("7", "bob", "bills", first_seen=at(9000), last_seen=at(9900))]
    tables = {"client_changes": clients, "application_rules": RULES, "quota_usage": [window("", "bills")]}
    (row,) = answer("throttled_clients", tables)
    assert (row["client_instance_ids"], row["application"], row["owner"]) == (["3"], *SHOP)


def test_quotas_and_their_changes_have_the_owners_of_the_entity() -> None:
    entities = (("", "orders"), ("ann", ""), ("<default>", ""))
    quotas = [quota(*entity, 100.0, begun=5, not_seen_at=at(0)) for entity in entities]
    for view in ("quota_history", "quota_changes"):
        assert told(view, OWNED | {"quotas": quotas}, '"user", client_id, application, owner') == [
            ("", "orders", *BOTH), ("<default>", "", *NOBODY), ("ann", "", *SHOP),
        ]  # fmt: skip
    estimates = [window("ann", "orders"), window("ann", "orders", source="client")]
    assert told("quota_estimate_error", OWNED | {"quota_usage": estimates}, "application, owner") == [SHOP]
    for view in ("client_quotas", "unlimited_clients"):
        columns = "client_instance_id, application, owner"
        rows = told(view, OWNED | {"quotas": quotas}, columns, "quota_type = 'fetch'")
        owners = [SHOP, BANK, SHOP, NOBODY, BANK, SHOP]
        assert rows == [(str(n), *owner) for n, owner in enumerate(owners, 1)]


def test_ranks_have_the_owners_of_the_client_id_once_each() -> None:
    rate: Row = {"cluster_id": "c", "window_start": at(0), "metric": "m", "kind": "sum", "covered_s": 60.0, "points": 1}
    rates = [rate | {"client_id": name, "increase": 1.0} for name in ("orders", "bills", "unknown", None)]
    tables = OWNED | {"metric_rollups_1h": rates}
    assert told("metric_ranks_1h", tables, "client_id, place, application, owner", order="place") == [
        (None, 1, *NOBODY), ("bills", 2, *SHOP), ("orders", 3, *BOTH), ("unknown", 4, *NOBODY),
    ]  # fmt: skip


def test_changes_of_a_client_id_have_its_owners() -> None:
    assert told("client_id_changes", OWNED, "DISTINCT cluster_id, client_id, application, owner") == [
        ("c", "bills", *SHOP), ("c", "new", *NOBODY), ("c", "orders", *BOTH), ("d", "bills", *BANK),
    ]  # fmt: skip


def test_rejected_rows_have_the_owner_of_the_instance() -> None:
    of_push = {"cluster_id": "c", "scope": "push", "reason": "MALFORMED", "landed_at": at(0)}
    ids = (("2", "orders"), ("4", "new"), (None, "orders"))
    rows = [of_push | {"client_instance_id": instance, "client_id": client_id} for instance, client_id in ids]
    columns = "client_instance_id, client_id, application, owner"
    assert told("quarantine_offenders", OWNED | {"quarantine": rows}, columns) == [
        ("2", "orders", *BANK), ("4", "new", *NOBODY), (None, "orders", *NOBODY),
    ]  # fmt: skip


def test_pushes_have_the_owner_of_their_instance() -> None:
    key = {"source": "s", "topic": "t", "partition": 0, "landed_at": at(0), "cluster_id": "c", "client_id": "orders"}
    pushes = [key | {"offset": number, "client_instance_id": name} for number, name in enumerate(("1", "2", "9"))]
    outcomes = [
        {name: push[name] for name in ("source", "topic", "partition", "offset", "landed_at")} | {"outcome": "points"}
        for push in pushes
    ]
    tables = OWNED | {"pushes": pushes, "push_outcomes": outcomes}
    assert told("push_discipline", tables, "client_instance_id, application, owner") == [
        ("1", *SHOP), ("2", *BANK), ("9", *NOBODY),
    ]  # fmt: skip


def member(group: str, member_id: str, client_id: str, **more: Any) -> Row:
    return {
        "cluster_id": "c", "group_id": group, "member_id": member_id, "client_id": client_id, "host": "10.1.0.1",
        "assignment": ["t-0"], "valid_from": at(0), **more,
    }  # fmt: skip


def test_a_member_that_pushes_nothing_has_the_owner_that_group_client_id_or_address_decide() -> None:
    address = {"address_first": "010001000000", "address_last": "010001000255"}
    rules = [
        {"position": 0, "group_id": "audit", "application": "audit", "owner": "team-c"},
        {"position": 1, "client_id": "web-.*", "application": "web", "owner": "team-w", **address},
        {"position": 2, "principal": "User:ann", "application": "shop", "owner": "team-a"},
        {"position": 3, "client_id": "late", "application": "late"},
    ]
    members = [
        member("audit", "m-1", "any"), member("g", "m-2", "web-1"), member("g", "m-3", "web-2", host="10.2.0.1"),
        member("g", "m-4", "late"), member("g", "m-5", "named"), member("g", "m-6", "web-3", host="5f" * 16),
        member("g", "m-7", "orders"), member("audit", "m-8", "any", valid_to=at(5)),
    ]  # fmt: skip
    pushing = client("7", "ann", "orders", labels=[("group_id", "g"), ("group_member_id", "m-7")])
    tables: dict[str, Rows] = {
        "group_members": members, "application_rules": rules, "client_changes": [pushing],
        "client_aliases": [{"client_id": "named", "application": "known", "owner": "team-k"}],
    }  # fmt: skip
    rows = answer("consumer_group_members", tables)
    assert {row["member_id"]: (row["client_instance_id"], row["application"], row["owner"]) for row in rows} == {
        "m-1": (None, "audit", "team-c"), "m-2": (None, "web", "team-w"), "m-3": (None, None, None),
        "m-4": (None, None, None), "m-5": (None, "known", "team-k"), "m-6": (None, None, None), "m-7": ("7", *SHOP),
    }  # fmt: skip
    del tables["client_changes"]
    unknown = "its principal or address is unknown"
    assert told("group_member_ownership", tables, "member_id, owned_by") == [
        ("m-1", "rule 0"), ("m-2", "rule 1"), ("m-3", f"rule 2: {unknown}"), ("m-4", f"rule 2: {unknown}"),
        ("m-5", "alias of the client id"), ("m-6", f"rule 1: {unknown}"), ("m-7", f"rule 2: {unknown}"),
    ]  # fmt: skip


def test_the_lag_of_a_group_has_the_owners_of_its_members_now_or_before() -> None:
    def sample(group: str) -> Row:
        return {"cluster_id": "c", "group_id": group, "topic": "t", "partition": 0, "sampled_at": at(0),
                "committed_offset": 5, "log_start_offset": 0, "end_offset": 5}  # fmt: skip

    tables: dict[str, Rows] = {
        "group_lag_samples": [sample("audit"), sample("left"), sample("mixed"), sample("bare")],
        "group_members": [member("audit", "m-1", "any"), member("mixed", "m-2", "any")],
        "client_aliases": [{"client_id": "any", "application": "known", "owner": "team-k", "cluster_id": "c"}],
        "client_changes": [
            client("1", "ann", "x", labels=[("group_id", "left")], state="terminated"),
            client("2", "bob", "y", labels=[("group_id", "mixed")]),
        ],
        "application_rules": RULES,
    }  # fmt: skip
    rows = answer("group_lag", tables)
    assert {row["group_id"]: (row["application"], row["owner"]) for row in rows} == {
        "audit": ("known", "team-k"), "left": SHOP, "mixed": ("bank, known", "team-b, team-k"), "bare": NOBODY,
    }  # fmt: skip
    assert len(rows) == 4


def test_applications_count_members_that_push_nothing_and_throttled_instances() -> None:
    pushing = client("7", "ann", "orders", labels=[("group_id", "g"), ("group_member_id", "m-4")])
    tables: dict[str, Rows] = OWNED | {
        "client_changes": [*CLIENTS, pushing],
        "group_members": [
            *(member("audit", "m-1", "a"), member("audit", "m-2", "b")),
            *(member("g", "m-3", "c"), member("g", "m-4", "orders")),
        ],
        "quota_usage": [window("ann", "orders"), window("bob", "orders", throttled=False)],
    }
    columns = "subject, client_ids, instances, members_pushing_nothing, consumer_groups, throttled_instances"
    assert told("applications", tables, columns, "scope = 'application' AND cluster_id = 'c'") == [
        ("audit", 2, 0, 2, 1, 0), ("bank", 1, 1, 0, 0, 0), ("shop", 2, 4, 0, 1, 2), (None, 2, 1, 1, 1, 0),
    ]  # fmt: skip
