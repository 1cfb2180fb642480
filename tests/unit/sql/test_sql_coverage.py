"""Who pushes and who doesn't: views telemetry_coverage and silent_clients over a few rows each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.sql_views import answer, told

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
Row = dict[str, Any]
JAVA, PYTHON = ("apache-kafka-java", "4.3.1"), ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")
BOUNDS = ("connections", "pushing_instances", "pushing_connections", "silent_connections")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def counted(
    software: tuple[str | None, str | None], connections: int, second: float = 0, broker: int = 1, **more: Any
) -> Row:
    """A row of broker_connections."""
    return {
        "cluster_id": "c", "broker_id": broker, "reported_at": at(second), "landed_at": at(second), "listener": "L",
        "client_software_name": software[0], "client_software_version": software[1], "connections": connections,
    } | more  # fmt: skip


class Pushes:
    """Client instances and their last pushes, as rows of the tables that say so."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("client_changes", "pushes", "push_outcomes", "metric_points")
        }

    def add(
        self,
        software: tuple[str | None, str | None],
        connections: int | None = None,
        state: str = "active",
        client_id: str = "app",
        size: int = 100,
        dropped: str | None = None,
        cluster: str = "c",
        seen: float = 0,
    ) -> Pushes:
        number = len(self.tables["pushes"])
        push = {"source": "kafka", "cluster_id": cluster, "topic": "t", "partition": 0, "offset": number,
                "landed_at": at(number)}  # fmt: skip
        instance = push | {"client_instance_id": f"i{number}", "client_id": client_id}
        name, version = software
        self.tables["pushes"].append(instance | {"listener": "L", "dropped": dropped, "client_software_name": name})
        self.tables["push_outcomes"].append(instance | {"decompressed_bytes": size})
        self.tables["client_changes"].append(
            instance
            | {"state": state, "step": 1, "client_software_name": name, "client_software_version": version,
               "last_seen": at(seen), "labels": []}
        )  # fmt: skip
        if connections is not None:
            for metric, value in (("producer.connection.count", connections), ("producer.buffer.total.bytes", 1e9)):
                self.tables["metric_points"].append(
                    instance | {"metric": f"org.apache.kafka.{metric}", "value": float(value)}
                )
        return self


def coverage(rows: list[Row], pushes: Pushes | None = None, subscriptions: list[Row] | None = None) -> list[Row]:
    tables = {"broker_connections": rows, **(pushes.tables if pushes else {})}
    return answer("telemetry_coverage", tables | ({"subscriptions": subscriptions} if subscriptions else {}))


def subscription(match: dict[str, str], metrics: tuple[str, ...] = ("*",), ended: float | None = None) -> Row:
    return {
        "cluster_id": "c", "name": str(match), "metrics": list(metrics), "interval_ms": 1000,
        "match": list(match.items()), "valid_from": at(-60), "valid_to": None if ended is None else at(ended),
    }  # fmt: skip


def test_a_lake_without_reports_has_no_rows() -> None:
    assert coverage([]) == []
    assert answer("silent_clients", {}) == []


def test_shares_have_bounds_since_a_client_has_several_connections() -> None:
    """Of librdkafka, 30 connections to 2 brokers: 3 instances have 3 at least, and 3 times 2 + 3 at most."""
    rows = [counted(PYTHON, 20), counted(PYTHON, 10, broker=2), counted((None, None), 0)]
    pushes = Pushes().add(PYTHON).add(PYTHON).add(PYTHON).add(PYTHON, state="terminated")
    (row,) = coverage(rows, pushes)
    assert tuple(row[name] for name in BOUNDS) == (30, 3, 3, 15)
    assert (row["share_at_least"], row["share_at_most"], row["reporting_brokers"]) == (0.1, 0.5, 2)
    assert (row["library"], row["library_version"], row["likely_reason"]) == ("librdkafka", "2.16.0", "switched_off")


def test_java_clients_say_how_many_connections_they_have() -> None:
    """Of 20, brokers may have 6 of their own. What says nothing has at least one, at most one a broker and three."""
    pushes = Pushes().add(JAVA, 5).add(JAVA, 3).add(JAVA)
    (row,) = coverage([counted(JAVA, 20)], pushes)
    assert tuple(row[name] for name in BOUNDS) == (20, 3, 9, 20 - 5 - 3 - 4 - 6)
    (row,) = coverage([counted(JAVA, 18)], pushes)
    assert (row["silent_connections"], row["share_at_most"], row["likely_reason"]) == (0, 1.0, "other_connections")
    (row,) = coverage([counted(JAVA, 9)], pushes)
    assert (row["share_at_least"], row["share_at_most"], row["likely_reason"]) == (1.0, 1.0, None)
    (row,) = coverage([counted(JAVA, 7)], pushes)  # the report is older than a push
    assert (row["share_at_least"], row["share_at_most"], row["likely_reason"]) == (1.0, 1.0, None)


@pytest.mark.parametrize(
    ("software", "reason"),
    [
        (("unknown", "unknown"), "no_support"),
        (("apache-kafka-java", "3.6.2"), "no_support"),
        (("apache-kafka-java", "3.7.0"), "switched_off"),
        (("librdkafka", "2.4.0"), "no_support"),
        (("librdkafka", "2.5.0"), "switched_off"),
        (("kgo", "v1.18.1"), "no_support"),
        (("kgo", "v1.19.0"), "switched_off"),
        (("kafka-python", "3.0.12"), "no_support"),
        (("sarama", "v1.61.1"), "no_support"),
        (("sarama", "dev"), "no_support"),
        (("my-service", "2.0.0"), "unknown"),
        ((None, None), "unknown"),
    ],
)
def test_why_nobody_of_a_software_pushes(software: tuple[str | None, str | None], reason: str) -> None:
    (row,) = coverage([counted(software, 50)])
    assert (row["pushing_instances"], row["share_at_least"], row["likely_reason"]) == (0, 0.0, reason)
    assert row["silent_connections"] == (44 if software[0] == "apache-kafka-java" else 50)


@pytest.mark.parametrize(
    ("subscriptions", "reason"),
    [
        ([subscription({})], "switched_off"),
        ([subscription({}, ended=-1)], "no_subscription"),
        ([subscription({}, metrics=())], "no_subscription"),
        ([subscription({"client_id": "none"})], "switched_off"),  # nobody knows whose the connections are
        ([subscription({"client_software_name": "confluent-kafka-python"})], "switched_off"),
        ([subscription({"client_software_name": "confluent.*"})], "switched_off"),
        ([subscription({"client_software_name": "confluent"})], "no_subscription"),  # the whole name must match
        ([subscription({"client_software_name": "apache.*"}), subscription({})], "switched_off"),
        ([subscription({"client_software_version": "2.15.*"})], "no_subscription"),
        ([subscription({"client_software_version": "2.16.*", "client_software_name": "kgo"})], "no_subscription"),
        ([subscription({"client_software_name": "(?=x)confluent"})], "switched_off"),  # not the same to all engines
    ],
)
def test_no_subscription_may_match_a_software(subscriptions: list[Row], reason: str) -> None:
    (row,) = coverage([counted(PYTHON, 50)], subscriptions=subscriptions)
    assert row["likely_reason"] == reason


def test_who_pushes_is_asked_whatever_the_lake_knows_of_subscriptions() -> None:
    (row,) = coverage([counted(PYTHON, 50)], Pushes().add(PYTHON), [subscription({}, ended=-1)])
    assert (row["silent_connections"], row["likely_reason"]) == (46, "switched_off")


def test_what_was_cut_off_by_its_size() -> None:
    pushes = Pushes().add(JAVA, 2).add(JAVA, state="silent", size=838_861)
    pushes.add(JAVA, state="silent", dropped="too_large").add(JAVA, state="silent", size=838_860)
    pushes.add(JAVA, state="terminated", size=10**6)
    (row,) = coverage([counted(JAVA, 4)], pushes)
    assert (row["cut_off_instances"], row["silent_connections"], row["likely_reason"]) == (2, 0, "cut_off")


def test_the_latest_report_of_each_broker_counts_and_what_is_old_does_not() -> None:
    rows = [
        counted(PYTHON, 8, second=600), counted(PYTHON, 7, second=590), counted(("kgo", "v1.22.2"), 9, second=590),
        counted(PYTHON, 1, second=300, broker=2), counted(PYTHON, 2, second=290, broker=2),
        counted(PYTHON, 40, second=299, broker=3),  # it has stopped
    ]  # fmt: skip
    late = [row | {"landed_at": at(700)} for row in rows[1:3]]  # an earlier report that lands last
    for order in (rows, [*rows[::-1], *late]):
        (row,) = coverage(order)
        assert (row["connections"], row["reporting_brokers"], row["reported_at"]) == (9, 2, at(600))
    (row,) = coverage([counted(PYTHON, 8), counted(PYTHON, 8)])  # one report that landed twice
    assert row["connections"] == 8


def test_clusters_and_listeners_are_apart_and_software_without_reports_is_there() -> None:
    rows = [
        counted(PYTHON, 3), counted(PYTHON, 4, listener="M"), counted(PYTHON, 5, cluster_id="d", second=9999),
        counted(PYTHON, 6, cluster_id=None),
    ]  # fmt: skip
    pushes = Pushes().add(PYTHON).add(("kgo", "v1.22.2"), cluster="p").add((None, None))
    names = ("cluster_id", "listener", "client_software_name", "connections", "pushing_instances", "likely_reason")
    assert {tuple(row[name] for name in names) for row in coverage(rows, pushes)} == {
        ("c", "L", PYTHON[0], 3, 1, "other_connections"), ("c", "M", PYTHON[0], 4, 0, "switched_off"),
        ("d", "L", PYTHON[0], 5, 0, "switched_off"), (None, "L", PYTHON[0], 6, 0, "switched_off"),
        ("p", "L", "kgo", None, 1, None), ("c", "L", None, None, 1, None),
    }  # fmt: skip


def sample(client_id: str, user: str = "", second: float = 0, **more: Any) -> Row:
    return {"cluster_id": "c", "client_id": client_id, "user": user, "time": at(second), "quota_type": "fetch"} | more


def silent(**tables: list[Row]) -> list[tuple[Any, ...]]:
    names = ("client_id", "user", "seen_in", "group_id", "last_seen", "likely_reason")
    return [tuple(row[name] for name in names) for row in answer("silent_clients", tables)]


DAY = 86_400.0


def test_client_ids_that_brokers_counted_and_that_pushed_nothing() -> None:
    pushes = Pushes().add(JAVA, client_id="pushing", seen=1).add(JAVA, client_id="ended", state="silent", seen=-1)
    samples = [
        sample("never", "alice", DAY - 5), sample("never", "alice", DAY), sample("pushing", "bob", DAY),
        sample("ended", "", DAY - 1), sample("long-ago", "", -1), sample("", "carol", DAY),
        sample("client-telemetry-status-1"), sample("elsewhere", "", cluster_id="d"),
    ]  # fmt: skip
    reports = [counted(("kafka-python", "3.0.12"), 2), counted(JAVA, 4)]
    assert silent(quota_samples=samples, broker_connections=reports, **pushes.tables) == [
        ("client-telemetry-status-1", "", "quotas", None, at(0), "receiver"),
        ("ended", "", "quotas", None, at(DAY - 1), "stopped"),
        ("never", "alice", "quotas", None, at(DAY), "no_support"),
        ("elsewhere", "", "quotas", None, at(0), "unknown"),
    ]
    rules = [{"position": 0, "client_id": "ended", "application": "shop", "owner": "ann"}]
    tables = {"quota_samples": samples, "application_rules": rules, **pushes.tables}
    assert told("silent_clients", tables, "client_id, owner", "application IS NOT NULL") == [("ended", "ann")]
    reports.append(counted(("kgo", "v1.22.2"), 2))  # now there are two reasons
    rows = silent(quota_samples=samples, broker_connections=reports, **pushes.tables)
    assert ("never", "alice", "quotas", None, at(DAY), "unknown") in rows


def test_members_of_groups_that_push_nothing() -> None:
    members = [
        {"cluster_id": "c", "group_id": "g", "member_id": f"m{n}", "client_id": client_id, "host": "/10.0.0.1",
         "assignment": []}
        for n, client_id in enumerate(("app", "quiet"))
    ]  # fmt: skip
    pushes = Pushes().add(JAVA)
    pushes.tables["client_changes"][0]["labels"] = [("group_id", "g"), ("group_member_id", "m0")]
    rules = [{"position": 0, "client_id": "quiet", "application": "shop", "owner": "ann"}]
    tables: dict[str, Any] = {"group_members": members, "application_rules": rules, **pushes.tables}
    owned = told("silent_clients", tables, "client_id, host, application, owner")
    assert owned == [("quiet", "/10.0.0.1", "shop", "ann")]
    assert silent(group_members=members, **pushes.tables) == [("quiet", None, "group", "g", None, "unknown")]
