"""Subscriptions as a broker reads and matches them, against committed answers of Kafka's own classes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.udfs.subscriptions.matching import (
    CLIENTS,
    Subscription,
    SubscriptionError,
    as_configured,
    asked,
    from_config,
    matching,
    push_interval_ms,
)
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import checksums, instance_hashes, subscription_checksums
from kafka_telemetry_lake.udfs.subscriptions.view_names import view_names

BROKERS = json.loads((Path(__file__).parents[2] / "data" / "broker_subscriptions.json").read_text())
ANSWERED = [each for each in BROKERS if isinstance(each["answers"], list)]
REFUSED = [each for each in BROKERS if isinstance(each["answers"], str)]
# Brokers before 4.2 took a list with an empty prefix in it, so reading one takes it too.
REFUSED_SINCE_4_2 = "Configuration 'metrics' values must not be empty."
JAVA_17_ID, JAVA_25_ID = -1063690035, -1214332545


def subscriptions_of(broker: dict[str, Any]) -> list[Subscription]:
    return [from_config(name, config) for name, config in broker["subscriptions"].items()]


def clients(*rows: dict[str, str | None]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), CLIENTS)


def answered() -> Iterator[tuple[list[Subscription], dict[str, Any]]]:
    """The subscriptions that match a client, and what a broker answered to it."""
    for broker in ANSWERED:
        subscriptions = subscriptions_of(broker)
        found = [matching(clients(*broker["clients"]), each).to_pylist() for each in subscriptions]
        for number, answer in enumerate(broker["answers"]):
            yield [each for each, matched in zip(subscriptions, found, strict=True) if matched[number]], answer


def test_m1_clients_match_as_the_broker_matches_them() -> None:
    compared = [([each.name for each in matched], answer["matching"]) for matched, answer in answered()]
    assert [names for names, of_broker in compared if names != of_broker] == []
    assert len(compared) > 300


def test_m4_push_interval_is_that_of_the_broker() -> None:
    for matched, answer in answered():
        assert push_interval_ms([each.interval_ms for each in matched]) == answer["push_interval_ms"]


def test_m9_subscription_id_is_that_of_the_broker() -> None:
    """Sets of 2 to 50 prefixes, and several subscriptions whose prefixes share hash buckets."""
    sizes, unknown = set(), []
    for broker in ANSWERED:
        by_name = {each.name: each for each in subscriptions_of(broker)}
        for client, answer in zip(broker["clients"], broker["answers"], strict=True):
            hashes = instance_hashes(pa.array([client["client_instance_id"]]))
            (checksum,) = subscription_checksums(np.array([answer["subscription_id"]], np.int32), hashes).tolist()
            possible = checksums(tuple(by_name[name] for name in answer["matching"]))
            if possible:
                assert checksum in possible, broker
                sizes.add(len(answer["requested_metrics"]))
            else:
                unknown.append(answer["matching"])
    assert set(range(51)) <= sizes
    assert unknown == [["tree"]]  # Java keeps 16 colliding prefixes in a tree, whose order is not followed here


def test_m9_one_subscription_has_one_id_but_for_sizes_that_java_19_copies_otherwise() -> None:
    single = [each for each in ANSWERED if len(each["subscriptions"]) == 1 and "tree" not in each["subscriptions"]]
    sizes: dict[int, set[int]] = {1: set(), 2: set()}
    for broker in single:
        (subscription,) = subscriptions_of(broker)
        sizes[len(checksums((subscription,)))].add(len(subscription.metrics))
    assert sizes[2] == {12, 24, 48}
    assert len(sizes[1]) > 45


def test_m9_ids_of_brokers_on_java_17_and_on_java_25() -> None:
    """24 prefixes, of which two that share a bucket swap places: Kafka 4.3.1's classes on either Java."""
    broker = next(each for each in ANSWERED if "s24" in each["subscriptions"])
    hashes = instance_hashes(pa.array([broker["clients"][0]["client_instance_id"]] * 2))
    ids = np.array([JAVA_17_ID, JAVA_25_ID], np.int32)
    assert broker["answers"][0]["subscription_id"] == JAVA_17_ID
    assert set(subscription_checksums(ids, hashes).tolist()) == checksums(tuple(subscriptions_of(broker)))


def test_m5_configurations_that_brokers_refuse() -> None:
    for broker in REFUSED:
        if broker["answers"] == REFUSED_SINCE_4_2:
            continue
        with pytest.raises(SubscriptionError, match=r"^subscription 's': "):
            subscriptions_of(broker)
    assert len(REFUSED) > 12


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"metric": "a"}, "got key 'metric', allowed: metrics, interval.ms, match"),
        ({"interval.ms": "99"}, "interval.ms: got 99, allowed: 100 to 3600000"),
        ({"interval.ms": "1s"}, "interval.ms: got '1s', allowed: a whole number of milliseconds"),
        ({"match": "client_id"}, "match: got 'client_id', allowed: key=pattern with one '='"),
        ({"match": "client_id=a=b"}, "match: got 'client_id=a=b', allowed: key=pattern with one '='"),
        ({"match": "client=a"}, "match: got key 'client', allowed: client_instance_id, client_id, client_soft"),
        ({"match": "client_id=("}, "match: client_id: pattern '(' is no regular expression of Java: unclosed group"),
    ],
)
def test_m5_what_is_wrong_is_named(config: dict[str, str], message: str) -> None:
    with pytest.raises(SubscriptionError, match=re.escape(f"subscription 's': {message}")):
        from_config("s", config)


@pytest.mark.parametrize(
    ("config", "metrics", "interval_ms", "problem"),
    [
        ({"match": "client_rack=a", "metrics": "x."}, ("x.",), 300_000, "match: got key 'client_rack'"),
        ({"sampling": "0.1", "metrics": "x.", "interval.ms": "500"}, ("x.",), 500, "got key 'sampling'"),
        ({"interval.ms": "PT1S", "metrics": "x."}, ("x.",), 300_000, "interval.ms: got 'PT1S'"),
    ],
)
def test_m2_of_a_configuration_of_a_newer_release_the_clients_are_unknown(
    config: dict[str, str], metrics: tuple[str, ...], interval_ms: int, problem: str
) -> None:
    found = as_configured("s", config)
    assert (found.metrics, found.interval_ms, found.match) == (metrics, interval_ms, ())
    assert found.problem is not None
    assert problem in found.problem
    assert matching(clients({"client_id": "a"}), found).to_pylist() == [None]
    assert as_configured("s", {"metrics": "x."}) == from_config("s", {"metrics": "x."})


METRICS = pa.array(
    ["org.apache.kafka.producer.a", "org.apache.kafka.consumer.b", "Org.apache.kafka.producer.a", "*x", ""]
)


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        ((), [False] * 5),
        (("*",), [True] * 5),
        (("nothing.", "*"), [True] * 5),
        (("",), [True] * 5),
        (("org.apache.kafka.producer.",), [True, False, False, False, False]),
        (("org.", "org.apache.kafka.producer."), [True, True, False, False, False]),
        (("producer.",), [False] * 5),
        (("*x",), [False, False, False, True, False]),
    ],
)
def test_m3_prefix_rules(prefixes: tuple[str, ...], expected: list[bool]) -> None:
    assert asked(METRICS, Subscription("s", prefixes)).to_pylist() == expected


def test_m2_pattern_that_is_not_translated_leaves_the_match_open_only_where_it_decides() -> None:
    subscription = from_config("s", {"match": r"client_id=\bab,client_software_name=kgo"})
    matched = matching(
        clients(
            {"client_id": "ab", "client_software_name": "kgo"},
            {"client_id": "ab", "client_software_name": "librdkafka"},
            {"client_id": None, "client_software_name": "kgo"},
        ),
        subscription,
    )
    assert matched.to_pylist() == [None, False, False]
    assert subscription.problem is not None
    assert subscription.problem.endswith(r"client_id: pattern '\\bab': '\\bab' may mean something else in Java")
    assert from_config("s", {"match": "client_id=ab"}).problem is None


@pytest.mark.parametrize(("key", "value"), [("client_source_address", "10.0.0.1"), ("client_source_port", "5000")])
def test_m2_an_attribute_that_the_receiver_does_not_tell_leaves_the_match_open(key: str, value: str) -> None:
    told: dict[str, str | None] = {"client_id": "ab", key: value}
    known = clients(told, told | {key: value + "1"}, told | {key: None}, told | {key: ""})
    subscription = from_config("s", {"match": f"{key}={re.escape(value)}"})
    assert matching(known, subscription).to_pylist() == [True, False, None, None]
    other = from_config("s", {"match": f"client_id=cd,{key}={re.escape(value)}"})
    assert matching(known, other).to_pylist() == [False] * 4


def test_m12_view_names_are_safe_stable_and_different() -> None:
    names = ["orders", "Orders", "orders.", "orders-", "or ders", "métrique", "metrics", "x_0badcafe", "a" * 300]
    views = view_names(names)
    assert views["orders"] == "subscription_orders"
    assert views["Orders"] == "subscription_orders_47872f13"
    assert views["orders."].startswith("subscription_orders__")
    assert views["metrics"] != "subscription_metrics"
    assert views["x_0badcafe"] != "subscription_x_0badcafe"  # else it could be another's
    assert len(set(views.values())) == len(names)
    assert all(re.fullmatch(r"subscription_[a-z0-9_]{1,120}", view) for view in views.values())
    assert view_names(["Orders"]) == {"Orders": views["Orders"]}
