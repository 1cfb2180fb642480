"""What `doctor` says of a cluster: a healthy one is ok throughout, and each fault is one line that says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.doctor.check import Check, age_text, exit_code, listed
from kafka_telemetry_lake.pipelines.doctor.cluster_checks import (
    check_cluster,
    check_statuses,
    check_subscriptions,
    release_of,
)
from kafka_telemetry_lake.pipelines.doctor.cluster_facts import (
    BrokerFacts,
    ClusterFacts,
    ReceiverStatus,
    TopicFacts,
    ask_brokers,
    last_statuses,
)
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import Advertised
from kafka_telemetry_lake.udfs.subscriptions.matching import CLIENTS, Subscription
from tests.support.listeners import listening

NOW_MS = 1_800_000_000_000
NAMES = ("client-telemetry", "client-telemetry-status", "client-quotas")
CONFIG = {
    "max.message.bytes": "1114112", "min.insync.replicas": "2", "retention.ms": "604800000", "cleanup.policy": "delete",
}  # fmt: skip
TOPIC = TopicFacts(12, 3, 0, 0, CONFIG, frozenset({"READ", "DESCRIBE"}), NOW_MS - 3000)
BROKERS = [
    BrokerFacts(number, f"b{number}:9092", Advertised(frozenset({18, 71, 72}), {"metadata.version": 29}), ms=number)
    for number in (1, 2, 3)
]
HEALTHY = ClusterFacts(
    "cluster", frozenset({"DESCRIBE_CONFIGS", "CREATE", "ALTER_CONFIGS"}), BROKERS, dict.fromkeys(NAMES, TOPIC)
)
STATUS = ReceiverStatus(NOW_MS - 4000, 100, 98, {}, 2)


def of_topic(**changes: Any) -> ClusterFacts:
    return replace(HEALTHY, topics={**HEALTHY.topics, NAMES[0]: replace(TOPIC, **changes)})


def of_config(**changes: str) -> ClusterFacts:
    return of_topic(config=CONFIG | {key.replace("_", "."): value for key, value in changes.items()})


def of_broker(**changes: Any) -> ClusterFacts:
    return replace(HEALTHY, brokers=[replace(BROKERS[0], **changes), *BROKERS[1:]])


def wrong(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.status != "ok"]


def test_a_healthy_cluster() -> None:
    checks = list(check_cluster(HEALTHY, NAMES, NOW_MS))
    assert [(check.name, check.status, check.text) for check in checks] == [
        ("brokers", "ok", "3 brokers answered, the slowest within 3 ms"),
        ("versions", "ok", "Kafka 4.2 on 3 brokers"),
        ("plugin", "ok", "3 brokers with GetTelemetrySubscriptions and PushTelemetry"),
        *(
            (
                f"topic {name}", "ok",
                "12 partitions, 3 replicas (2 in sync needed), messages up to 1,114,112 bytes, stored for 7 days",
            )
            for name in NAMES
        ),
        ("rights", "ok", "enough for `ingest` and `sync`, and for `connect`"),
        ("pushes", "ok", "the newest push landed 3 s ago"),
    ]  # fmt: skip


OLD = Advertised(frozenset({18, 71, 72}), {"metadata.version": 14})
ZOOKEEPER = Advertised(frozenset({18, 71, 72}), {})
BARE = Advertised(frozenset({18}), {"metadata.version": 29})
BARE_39 = Advertised(frozenset({18, 71}), {"metadata.version": 21})


@pytest.mark.parametrize(
    ("facts", "name", "status", "text", "advice"),
    [
        (of_broker(advertised=None, problem="no answer"), "brokers", "failed", "1 of 3", "listeners"),
        (of_broker(advertised=OLD), "versions", "failed", "Kafka 3.6 on 1 broker, Kafka 4.2 on 2 brokers", "broker 1"),
        (of_broker(advertised=ZOOKEEPER), "versions", "failed", "no KRaft on 1 broker", "in KRaft mode"),
        (of_broker(advertised=BARE), "plugin", "failed", "none on broker 1: clients push nothing", "LakeExporter"),
        (of_broker(advertised=BARE_39), "plugin", "failed", "none on broker 1: clients push nothing", "LakeReceiver"),
        (replace(HEALTHY, topics={}), "topic client-telemetry", "failed", "doesn't exist", "--replication-factor 3"),
        (of_topic(config={}), "topic client-telemetry", "warning", "can't be seen", "DescribeConfigs"),
        (of_topic(without_leader=2), "topic client-telemetry", "failed", "2 partitions have no leader", "start"),
        (of_config(min_insync_replicas="4"), "topic client-telemetry", "failed", "takes no record", "replicas=2"),
        (of_config(min_insync_replicas="3"), "topic client-telemetry", "warning", "nothing lands", "replicas=2"),
        (of_config(cleanup_policy="compact,delete"), "topic client-telemetry", "failed", "is compacted", "=delete"),
        (of_config(max_message_bytes="1114111"), "topic client-telemetry", "warning", "may not fit", "=1114112"),
        (of_config(retention_ms="86399999"), "topic client-telemetry", "warning", "down for longer", "retention.ms"),
        (of_topic(under_replicated=1), "topic client-telemetry", "warning", "out of sync", "brokers"),
        (of_topic(replication_factor=1, config=CONFIG | {"min.insync.replicas": "1"}), "topic client-telemetry",
         "warning", "a single broker", "replicas"),
        (of_topic(operations=frozenset({"DESCRIBE"})), "rights", "failed", "Read on topic client-telemetry", "ACLs"),
        (replace(HEALTHY, operations=frozenset()), "rights", "warning", "`sync` can't", "DescribeConfigs"),
        (of_topic(newest_ms=None), "pushes", "warning", "no records", "five minutes"),
        (of_topic(newest_ms=NOW_MS - 901_000), "pushes", "warning", "15 min ago", "subscription"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_with_what_to_do(
    facts: ClusterFacts, name: str, status: str, text: str, advice: str
) -> None:
    first = wrong(check_cluster(facts, NAMES, NOW_MS))[0]
    assert (first.name, first.status) == (name, status)
    assert text in first.text
    assert advice in first.advice


def test_one_broker_may_have_one_replica_and_unlimited_retention() -> None:
    topic = replace(TOPIC, replication_factor=1, config=CONFIG | {"min.insync.replicas": "1", "retention.ms": "-1"})
    facts = replace(HEALTHY, brokers=BROKERS[:1], topics=dict.fromkeys(NAMES, topic))
    checks = list(check_cluster(facts, NAMES, NOW_MS))
    assert wrong(checks) == []
    assert "stored for ever" in checks[3].text


def test_only_the_landing_topic_is_indispensable() -> None:
    facts = replace(HEALTHY, topics={NAMES[0]: TOPIC})
    assert [(check.name, check.status) for check in wrong(check_cluster(facts, NAMES, NOW_MS))] == [
        (f"topic {NAMES[1]}", "warning"), (f"topic {NAMES[2]}", "warning"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "release"),
    [(7, "3.3"), (14, "3.6"), (19, "3.7"), (22, "4.0"), (29, "4.2"), (30, "4.3"), (33, "4.4"), (34, "4.4+")],
)
def test_a_release_by_its_metadata_version(level: int, release: str) -> None:
    assert release_of(Advertised(frozenset(), {"metadata.version": level})) == release


def known(*names: str) -> pa.Table:
    rows = [dict.fromkeys(CLIENTS.names) | {"client_instance_id": name, "client_id": name} for name in names]
    return pa.Table.from_pylist(rows, schema=CLIENTS)


ALL = Subscription("all", ("*",), 60_000)
SOME = Subscription("some", ("org.apache.kafka.producer.",), 300_000, (("client_id", "orders-.*"),))


def test_subscriptions_and_whom_they_match() -> None:
    clients = known("orders-1", "orders-2", "billing")
    checks = list(check_subscriptions([SOME], clients))
    assert [(check.name, check.status, check.text) for check in checks] == [
        ("subscription some", "ok", "requests org.apache.kafka.producer. every 5 min from client_id=orders-.*; it "
         "matches 2 of 3 active clients"),
        ("subscriptions", "warning", "none matches 1 active client: billing"),
    ]  # fmt: skip
    assert wrong(check_subscriptions([SOME, ALL], clients)) == []
    assert wrong(check_subscriptions([ALL], None)) == []


@pytest.mark.parametrize("subscriptions", [[], [Subscription("empty", (), 60_000)]])
def test_without_metrics_nobody_pushes(subscriptions: list[Subscription]) -> None:
    last = list(check_subscriptions(subscriptions, known("a")))[-1]
    assert (last.status, last.text) == ("failed", "no subscription requests metrics: clients push nothing")


def test_a_subscription_that_cannot_be_read_may_match_any_client() -> None:
    newer = Subscription("newer", ("*",), 60_000, unread="match: got key 'client_rack'")
    (found,) = wrong(check_subscriptions([newer], known("a")))
    assert (found.text, found.advice) == (
        "requests all metrics every 60 s from some clients; whom it matches is unknown here",
        "match: got key 'client_rack'",
    )
    (found,) = wrong(check_subscriptions([replace(newer, metrics=())], known("a")))
    assert found.text == "what it requests, and from whom, is unknown here"


def test_a_topic_that_is_not_described_is_named() -> None:
    names = ("client-telemetry",)
    facts = replace(HEALTHY, topics={}, undescribed={names[0]: "TimeoutException"})
    first, *_ = (check for check in check_cluster(facts, names, NOW_MS) if check.name == f"topic {names[0]}")
    assert (first.status, first.text) == ("failed", "the brokers list it and don't describe it (TimeoutException)")


def test_receivers() -> None:
    statuses: dict[int | None, ReceiverStatus] = dict.fromkeys((1, 2, 3), STATUS)
    assert [(check.name, check.text) for check in check_statuses(statuses, BROKERS, NOW_MS)] == [
        ("receivers", "294 pushes landed since the brokers' start, none dropped, 6 waiting"),
        ("clocks", "the brokers' clocks are at most 4 s behind this machine's"),
    ]


@pytest.mark.parametrize(
    ("status", "name", "severity", "text"),
    [
        (None, "receivers", "failed", "no status of broker 2"),
        (replace(STATUS, time_ms=NOW_MS - 61_000), "receivers", "failed", "the last status of broker 2 is 61 s old"),
        (replace(STATUS, dropped={"queue_full": 7}), "receivers", "warning", "queue_full 7"),
        (replace(STATUS, time_ms=NOW_MS + 9_000), "clocks", "warning", "broker 2: 9 s ahead of this machine's clock"),
    ],
)
def test_a_receiver_with_a_fault(status: ReceiverStatus | None, name: str, severity: str, text: str) -> None:
    statuses: dict[int | None, ReceiverStatus] = {1: STATUS, 3: STATUS}
    if status is not None:
        statuses[2] = status
    (found,) = wrong(check_statuses(statuses, BROKERS, NOW_MS))
    assert (found.name, found.status) == (name, severity)
    assert text in found.text


def test_receivers_that_tell_no_broker_may_be_before_any() -> None:
    assert [check.text for check in check_statuses({None: STATUS}, BROKERS, NOW_MS)] == [
        "98 pushes landed since the brokers' start, none dropped, 2 waiting",
        "the brokers' clocks are at most 4 s behind this machine's",
    ]
    late = replace(STATUS, time_ms=NOW_MS - 61_000)
    (found,) = wrong(check_statuses({None: late, 1: late, 3: STATUS}, BROKERS, NOW_MS))
    assert found.text == "the last status of brokers 1, unknown is 61 s old"


def test_the_last_status_of_each_broker_counts_and_garbage_does_not() -> None:
    status = {"broker_id": 1, "time_ms": 5, "received": 3, "landed": 2, "dropped": {"error": 1, "closed": 0},
              "queue_depth": 0}  # fmt: skip
    later = status | {"time_ms": 9, "landed": 3, "dropped": {}}
    values = [None, "", "[]", "{", json.dumps(later), json.dumps(status), json.dumps(status | {"broker_id": 2}),
              json.dumps(status | {"dropped": None}), json.dumps(later | {"broker_id": None}),
              "[" * 100_000]  # fmt: skip
    assert last_statuses(values) == {
        1: ReceiverStatus(9, 3, 3, {}, 0), 2: ReceiverStatus(5, 3, 2, {"error": 1}, 0),
        None: ReceiverStatus(9, 3, 3, {}, 0),
    }  # fmt: skip


def test_each_broker_is_asked_and_has_its_reason() -> None:
    with listening(lambda connection: connection.close()) as closing:
        found = ask_brokers([(2, "127.0.0.1", closing), (1, "127.0.0.1", 1)], tls=False)
    assert [(broker.node_id, broker.advertised) for broker in found] == [(1, None), (2, None)]
    assert found[0].problem == "Connection refused"
    assert found[1].problem


@pytest.mark.parametrize(
    ("statuses", "code"), [(["ok", "skipped"], 0), (["ok", "warning"], 3), (["warning", "failed", "ok"], 1), ([], 0)]
)
def test_exit_codes(statuses: list[Any], code: int) -> None:
    assert exit_code(Check("x", status, "") for status in statuses) == code


def test_texts() -> None:
    assert listed(range(7)) == "0, 1, 2, 3, 4 and 2 more"
    assert [age_text(s) for s in (5, 179, 180, 7199, 7200, 172_800)] == [
        "5 s",
        "179 s",
        "3 min",
        "120 min",
        "2 h",
        "2 days",
    ]
