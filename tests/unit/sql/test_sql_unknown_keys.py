"""What is unknown is no key: rows without an address, a group, a principal or a client id have nothing in common."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.quota_samples import NOON as START
from tests.support.quota_samples import quota, usage_window
from tests.support.sql_views import answer, told

pytestmark = pytest.mark.lake

Row = dict[str, Any]
UNKNOWN = [None, ""]


def client(name: str, state: str = "active", **more: Any) -> Row:
    usual: Row = {
        "cluster_id": "c", "client_instance_id": name, "client_id": name, "state": state, "step": 1,
        "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1", "push_interval_ms": 1000,
        "first_seen": START, "last_seen": START, "silent_at": START if state == "silent" else None, "labels": [],
    }  # fmt: skip
    return usual | more


def point(of: Row, metric: str, **more: Any) -> Row:
    place = {name: of.get(name) for name in ("cluster_id", "client_instance_id", "landed_at", "offset")}
    usual: Row = {"metric": f"org.apache.kafka.{metric}", "delta_status": "ok", "time": START, "attributes": []}
    return place | usual | more


def causes(clients: list[Row], points: list[Row] | None = None) -> dict[str, str | None]:
    tables = {"client_changes": clients, "metric_points": points or []}
    return dict(told("client_liveness", tables, "client_instance_id, likely_cause"))


@pytest.mark.parametrize("address", UNKNOWN)
def test_l17_an_unknown_address_is_none_that_all_clients_are_gone_of(address: str | None) -> None:
    c = {"client_software_name": "librdkafka", "client_software_version": "2.12.1"}
    silent = [client("a", "silent", client_address=address), client("b", "silent", client_address=address, **c)]
    assert causes(silent) == {"a": "closed_without_flag", "b": "killed_or_cut_off"}


def test_l17_one_address_of_a_proxy_is_gone_when_all_behind_it_are() -> None:
    silent, alive = client("a", "silent", client_address="10.0.0.9"), client("b", client_address="10.0.0.9")
    assert causes([silent, alive])["a"] == "closed_without_flag"


def test_l17_a_consumer_without_a_group_is_no_producer() -> None:
    """Java's consumers send a terminating push, in a group or not."""
    place: Row = {"source": "kafka", "topic": "t", "partition": 0, "landed_at": START}
    silent = client("a", "silent", offset=7, **place)
    assert causes([silent]) == {"a": "closed_without_flag"}
    # Whatever a subscription asks consumers for.
    for metric in ("consumer.connection.count", "consumer.fetch.manager.fetch.total", "consumer.coordinator.m"):
        assert causes([silent], [point(silent, metric, value=2.0, **place)]) == {"a": "killed_or_cut_off"}
    assert causes([silent], [point(silent, "admin.client.m", value=2.0, **place)]) == {"a": "closed_without_flag"}


@pytest.mark.parametrize(
    ("thread", "cause"),
    [("active", "nothing_to_restore"), ("silent", "process_gone"), ("terminated", "closed_with_siblings")],
)
def test_l17_a_restore_consumer_of_streams_pushes_only_while_it_restores(thread: str, cause: str) -> None:
    streams = "app-1f0e8a5e-0000-4000-8000-000000000001-StreamThread-1-"
    restore = client(f"{streams}restore-consumer", "silent", client_address="10.0.0.1")
    main = client(f"{streams}consumer", thread, client_address="10.0.0.1", labels=[("group_id", "app")])
    main |= {"terminated_at": START if thread == "terminated" else None}
    other = client("app-2f0e8a5e-0000-4000-8000-000000000002-StreamThread-1-consumer", client_address="10.0.0.2")
    assert causes([restore, main, other])[restore["client_id"]] == cause


@pytest.mark.parametrize(
    ("address", "state", "cause"),
    [
        ("10.0.0.1", "active", "nothing_to_restore"),
        ("10.0.0.1", "silent", "process_gone"),
        (None, "active", "unknown"),
        ("", "silent", "unknown"),
    ],
)
def test_l17_whether_an_unknown_process_still_runs_is_unknown(address: str | None, state: str, cause: str) -> None:
    """With a client.id of its own, a Streams instance has no id in its clients' names."""
    restore = client("orders-StreamThread-1-restore-consumer", "silent", client_address=address)
    assert causes([restore, client("orders-admin", state, client_address=address)])[restore["client_id"]] == cause


@pytest.mark.parametrize(
    ("addresses", "members", "matched"),
    [
        (("10.0.0.1", "10.0.0.2"), 2, ["a", "b"]),
        ((None, None), 2, [None, None]),  # which is which?
        (("", None), 2, [None, None]),
        ((None,), 2, [None, None]),
        ((None,), 1, ["a"]),  # it can be no other
    ],
)
def test_members_that_look_alike_are_not_told_apart_by_unknown_addresses(
    addresses: tuple[str | None, ...], members: int, matched: list[str | None]
) -> None:
    alike: Row = {"client_id": "x", "client_software_name": "librdkafka", "labels": [("group_id", "g")]}
    clients = [client(name, client_address=each, **alike) for name, each in zip("ab", addresses, strict=False)]
    member = {"cluster_id": "c", "group_id": "g", "client_id": "x", "assignment": [], "valid_from": START}
    known = [member | {"member_id": f"m{n}", "host": f"10.0.0.{n}"} for n in range(1, members + 1)]
    rows = answer("consumer_group_members", {"client_changes": clients, "group_members": known})
    assert [row["client_instance_id"] for row in rows] == matched
    assert [row["pushing"] for row in rows] == [True] * len(addresses) + [False] * (members - len(addresses))


@pytest.mark.parametrize("address", UNKNOWN)
def test_addresses_of_nobody_are_unknown(address: str | None) -> None:
    clients = [client("a", client_address=address), client("b", client_address="10.0.0.1")]
    found = told("unowned_clients", {"client_changes": clients}, "client_id, addresses")
    assert found == [("a", None), ("b", ["10.0.0.1"])]


@pytest.mark.parametrize("group", ["spark-kafka-source-0d6f-1-executor", "spark-kafka-relation-0d-driver-0",
                                   "spark-executor-g"])  # fmt: skip
def test_l17_sparks_consumers_push_only_while_a_batch_reads(group: str) -> None:
    default = client(f"consumer-{group}-1", "silent")
    named = client("own-id", "silent", labels=[("group_id", group)])
    other = client("spark-job", "silent", labels=[("group_id", "spark-job")])
    found = causes([default, named, other])
    assert found == {default["client_id"]: "between_batches", "own-id": "between_batches",
                     "spark-job": "killed_or_cut_off"}  # fmt: skip


@pytest.mark.parametrize("address", UNKNOWN)
def test_connect_workers_of_an_unknown_address_have_unknown_tasks(address: str | None) -> None:
    of_worker: Row = {"client_address": address, "labels": [("group_id", "etl")]}
    workers = [client(f"etl-{topic}", **of_worker) for topic in ("configs", "offsets", "statuses")]
    task = client("connector-producer-a-0", client_address=address)
    tables = {"client_changes": [*workers, task]}
    columns = "worker_group, client_address, workers, connectors, tasks, groups_of_address"
    assert told("connect_workers", tables, columns) == [("etl", None, 1, None, None, None)]
    points = [point(task, "producer.record.send.total", delta=1.0)]
    found = told("connect_tasks", tables | {"metric_points": points}, "connector, worker_group")
    assert found == [("a", None)]


@pytest.mark.parametrize("group", UNKNOWN)
def test_consumers_of_no_group_are_no_members_of_one(group: str | None) -> None:
    labels = [("group_id", group), ("group_member_id", "m")] if group is not None else []
    clients = [client(name, labels=labels) for name in "ab"]
    for view, metric in (("consumer_groups", "consumer.coordinator.m"), ("share_group_members", "consumer.share.m")):
        points = [point(each, metric, value=1.0) for each in clients]
        found = told(view, {"client_changes": clients, "metric_points": points}, "group_id, members")
        assert found == [(None, None)] * 2


def test_members_of_a_group_are_those_with_a_member_id() -> None:
    labels = [("group_id", "g")]
    members = [client(name, labels=[*labels, ("group_member_id", name)]) for name in "ab"]
    by_hand, without = client("by-hand", labels=labels), [client(name) for name in "xyz"]
    clients = [*members, by_hand, *without]
    points = [point(each, "consumer.coordinator.assigned.partitions", value=25.0) for each in clients]
    columns, alone = "client_instance_id, members", [(name, None) for name in "xyz"]
    found = told("consumer_groups", {"client_changes": clients, "metric_points": points}, columns)
    assert found == [("a", 2), ("b", 2), ("by-hand", 2), *alone]
    shared = [point(each, "consumer.share.fetch.manager.fetch.total", delta=1.0) for each in (*members, *without)]
    found = told("share_group_members", {"client_changes": clients, "metric_points": shared}, columns)
    assert found == [("a", 2), ("b", 2), *alone]


def test_a_client_without_id_or_principal_is_not_the_quota_of_all() -> None:
    """Of a quota, an empty user or client id means all of them: the least specific level, not the most."""

    def limits(quotas: list[Row], **more: Any) -> list[tuple[Any, ...]]:
        tables = {"client_changes": [client("a", **more)], "quotas": quotas}
        return told("client_quotas", tables, "level, quota_limit", "quota_type = 'produce'")

    of_user = [quota("u", "", 1.0), quota("u", "<default>", 2.0)]
    assert limits(of_user, principal="User:u", client_id="") == [(2, 2.0)]
    assert limits([quota("", "a", 1.0), quota("<default>", "a", 2.0)]) == [(4, 2.0)]


@pytest.mark.parametrize("principal", [None, "9f86d081"])
def test_which_quota_of_a_user_limits_an_unknown_principal_is_unknown(principal: str | None) -> None:
    """That of <default> limits all users that have none of their own."""

    def limits(*quotas: Row) -> list[tuple[Any, ...]]:
        tables = {"client_changes": [client("a", principal=principal)], "quotas": list(quotas)}
        return told("client_quotas", tables, "level, quota_limit, quota_user", "quota_type = 'produce'")

    default, of_client = quota("<default>", "", 2.0), quota("", "a", 3.0)
    assert limits(default, of_client) == [(6, 2.0, "<default>")]
    assert limits(default, of_client, quota("u", "", 1.0)) == [(None, None, None)]
    assert limits(of_client, quota("u", "a", 1.0)) == [(None, None, None)]
    assert limits(of_client, quota("u", "b", 1.0)) == [(7, 3.0, "")]


@pytest.mark.parametrize(("principal", "listed"), [(None, []), ("9f86d081", []), ("User:v", ["a"])])
def test_who_is_unknown_may_be_limited(principal: str | None, listed: list[str]) -> None:
    tables = {"client_changes": [client("a", principal=principal)], "quotas": [quota("u", "", 1.0)]}
    rows = answer("unlimited_clients", tables)
    assert [row["client_instance_id"] for row in rows if row["quota_type"] == "produce"] == listed
    assert len(rows) == len(listed) + 2


def test_an_unknown_version_is_not_new() -> None:
    later: Row = {"first_seen": START + timedelta(minutes=1)}
    unknown: Row = {"client_software_name": None, "client_software_version": None}
    clients = [client("a", client_id="id"), client("b", client_id="id", **later, **unknown)]
    assert told("client_id_changes", {"client_changes": clients}, "change") == [("first_seen",), ("started",)]


def test_weeks_of_clients_without_id_are_not_compared() -> None:
    def hours(client_id: str | None) -> list[Row]:
        key: Row = {"cluster_id": "c", "client_id": client_id, "metric": "org.apache.kafka.m", "kind": "gauge"}
        key |= {"attribute_keys": "", "points": 1, "value_count": 1, "value_sum": 1.0}
        return [key | {"window_start": START - timedelta(days=days)} for days in (0, 7)]

    rollups = [*hours("a"), *hours(None), *hours("")]
    assert told("metric_week_over_week", {"metric_rollups_1h": rollups}, "client_id") == [("a",)]


def test_rejected_pushes_without_an_instance_are_told_apart_by_client_id() -> None:
    reject = {"cluster_id": "c", "scope": "push", "reason": "INVALID_REQUEST", "landed_at": START}
    rows = [reject | {"client_id": name} for name in ("a", "b", "b", None)]
    found = told("quarantine_offenders", {"quarantine": rows}, "offender_rank, client_id, rejected")
    assert found == [(1, "b", 2), (2, None, 1), (3, "a", 1)]


@pytest.mark.parametrize("client_id", UNKNOWN)
def test_writers_without_client_id_are_each_their_own(client_id: str | None) -> None:
    writers = [client(name, client_id=client_id) for name in "ab"]
    sent: Row = {"metric": "producer.topic.record.send.total", "delta": 1.0, "attributes": [("topic", "t")]}
    tables = {"client_changes": writers, "metric_points": [point(each, **sent) for each in writers]}
    assert told("topic_flows", tables, "writer, reader") == [("a", None), ("b", None)]


@pytest.mark.parametrize("client_id", UNKNOWN)
def test_clients_without_client_id_share_none(client_id: str | None) -> None:
    later: Row = {"first_seen": START + timedelta(minutes=1), "client_software_version": "4.2.0"}
    clients = [client("a", client_id=client_id), client("b", client_id=client_id, **later)]
    assert answer("client_id_changes", {"client_changes": clients}) == []
    aliases = [{"client_instance_id": name, "application": name} for name in "ab"]
    tables = {"client_changes": clients, "client_aliases": aliases}
    owners = told("client_id_owners", tables, "application, shared_with, reused_from")
    assert owners == [("a", [], []), ("b", [], [])]


def test_an_unknown_cluster_is_one_cluster_to_throttled_clients() -> None:
    for cluster in (None, "c"):
        clients = [client("a", cluster_id=cluster), client("b", cluster_id="other", client_id="a")]
        window = usage_window(0, cluster_id=cluster, client_id="a", source="client", throttled=True)
        tables = {"quota_usage": [window], "client_changes": clients}
        assert told("throttled_clients", tables, "client_instance_ids") == [(["a"],)]


def test_a_version_that_is_not_sent_does_not_hide_the_library() -> None:
    clients = [client("a"), client("b", client_software_name="my-service", client_software_version=None)]
    found = told("applications", {"client_changes": clients}, "DISTINCT versions")
    assert found == [(["apache-kafka-java 4.3.1", "my-service"],)]
