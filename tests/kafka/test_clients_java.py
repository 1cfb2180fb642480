"""Java's clients: what they push is what they counted, and how they end shows in the landing topic."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

from .conftest import PUSH_INTERVAL_MS
from .landing import Landing, Push, Series, delta_totals, largest

pytestmark = pytest.mark.kafka

# What stands still while a client idles; its requests go on with every push.
RECORD_COUNTERS = (
    ".record.send.total",
    ".record.error.total",
    ".record.retry.total",
    ".topic.byte.total",
    ".records.consumed.total",
    ".bytes.consumed.total",
)


def own_totals(counted: dict[str, Any]) -> dict[Series, float]:
    """The record counters of a client's own metrics, as it pushes them: without client_id."""
    return record_totals(
        {
            (
                each["metric"],
                frozenset((k, v) for k, v in each["attributes"].items() if k != "client_id"),
            ): each["value"]
            for each in counted["sums"]
        }
    )


def record_totals(totals: dict[Series, float]) -> dict[Series, float]:
    return {series: total for series, total in totals.items() if series[0].endswith(RECORD_COUNTERS)}


def test_a_producer_s_deltas_sum_up_to_its_own_counts(clients: LocalClients, landing: Landing, topic: str) -> None:
    producer = clients.producer("java", topic, "telemetry-producer", records=1000, rate=1000, value_bytes=50)
    assert producer.wait_for("done")["records"] == 1000
    landing.wait_for_more("telemetry-producer", 3)  # idle for two push intervals
    counted = producer.close()
    pushes = landing.pushes("telemetry-producer")

    own = own_totals(counted)
    assert own["org.apache.kafka.producer.record.send.total", frozenset()] == 1000
    assert own["org.apache.kafka.producer.topic.record.send.total", frozenset({("topic", topic)})] == 1000
    assert record_totals(delta_totals(pushes)) == own

    assert {push.key for push in pushes} == {producer.client_instance_id}
    assert {push.headers["client_software_name"] for push in pushes} == {"apache-kafka-java"}
    assert {push.headers["client_software_version"] for push in pushes} == {"4.3.1"}
    assert {push.headers["push_interval_ms"] for push in pushes} == {str(PUSH_INTERVAL_MS)}
    # An idle Java producer sends none at its close, unless a request is just in flight.
    assert not any(push.terminating for push in pushes[:-1])


def test_a_consumer_s_deltas_sum_up_to_its_own_counts_and_it_says_goodbye(
    clients: LocalClients, landing: Landing, topic: str
) -> None:
    clients.producer("librdkafka", topic, "feeder", records=700).wait_for("done")
    consumer = clients.consumer("java", topic, "telemetry-consumer", group="readers", records=700)
    consumer.wait_for("done")
    landing.wait_for_more("telemetry-consumer", 3)
    counted = consumer.close()
    pushes = landing.wait("telemetry-consumer", lambda pushes: pushes[-1].terminating)

    own = own_totals(counted)
    manager = "org.apache.kafka.consumer.fetch.manager."
    assert own[f"{manager}records.consumed.total", frozenset()] == 700
    assert own[f"{manager}records.consumed.total", frozenset({("topic", topic)})] == 700
    assert record_totals(delta_totals(pushes)) == own
    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {push.key for push in pushes} == {consumer.client_instance_id}


@pytest.mark.slow
def test_a_group_s_members_sum_up_to_the_group(clients: LocalClients, landing: Landing, topic: str) -> None:
    """Under the newer group protocol (KIP-848) as well."""
    members = [
        clients.consumer(
            "java", topic, f"telemetry-member-{n}", group="shared", properties={"group.protocol": "consumer"}
        )
        for n in (1, 2)
    ]
    for member in members:
        landing.wait(member.client_id, lambda pushes: assigned(pushes) == 1)
    clients.producer("java", topic, "group-feeder", records=500, value_bytes=1000).wait_for("done")
    name = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
    pushed, own = [], []
    for member in members:
        landing.wait_for_more(member.client_id, 3)
        own.append(member.close()["records"])
        pushes = landing.wait(member.client_id, lambda pushes: pushes[-1].terminating)
        pushed.append(delta_totals(pushes)[name, frozenset()])
    assert sum(pushed) == 500
    assert pushed == own


def assigned(pushes: list[Push]) -> float:
    """The partitions of a consumer by its last push."""
    return largest(pushes[-1:], "org.apache.kafka.consumer.coordinator.assigned.partitions") if pushes else 0


def test_a_killed_client_says_nothing_and_a_paused_one_goes_on(
    clients: LocalClients, landing: Landing, topic: str
) -> None:
    killed = clients.consumer("java", topic, "telemetry-killed", group="killed")
    paused = clients.producer("java", topic, "telemetry-paused", rate=100)
    clock = clients.producer("java", topic, "telemetry-clock", records=0)
    for client in (killed, paused):
        landing.wait_for_more(client.client_id, 2)
    killed.kill()
    paused.pause()
    landing.wait_for_more(clock.client_id, 1)
    before = {client.client_id: len(landing.pushes(client.client_id)) for client in (killed, paused)}
    landing.wait_for_more(clock.client_id, 4)  # longer than their intervals
    assert {client_id: len(landing.pushes(client_id)) for client_id in before} == before
    assert (killed.running, paused.running) == (False, True)
    assert not any(push.terminating for push in landing.pushes(killed.client_id))

    paused.resume()
    pushes = landing.wait_for_more(paused.client_id, 2)
    assert {push.key for push in pushes} == {paused.client_instance_id}
    totals = delta_totals(pushes)
    sent = totals["org.apache.kafka.producer.record.send.total", frozenset()]
    # A pause beyond request.timeout.ms makes the producer send again what was on its way: each attempt counts as sent.
    retried = totals.get(("org.apache.kafka.producer.record.retry.total", frozenset()), 0)
    assert 0 < sent - retried <= paused.close()["records"]


def test_every_codec_that_a_client_falls_back_to_lands_readable(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str
) -> None:
    """Java takes the first of zstd, lz4 and gzip that its class path has; none until it has found out."""
    lacking: dict[str, tuple[str, ...]] = {
        "telemetry-zstd": (),
        "telemetry-lz4": ("zstd-jni",),
        "telemetry-gzip": ("zstd-jni", "lz4-java"),
    }
    started = [
        clients.producer("java", topic, client_id, records=10, without=jars) for client_id, jars in lacking.items()
    ]
    counters = {}
    for producer in started:
        assert producer.wait_for("done")["records"] == 10
        pushes = landing.wait_for_more(producer.client_id, 3)
        producer.close()
        counters[producer.client_id] = delta_totals(pushes)["org.apache.kafka.producer.record.send.total", frozenset()]
    assert counters == dict.fromkeys(lacking, 10)
    # The broker unpacks before it calls the plugin: only its request log knows what was on the wire.
    assert wire_codecs(cluster, "telemetry-zstd") == {"zstd"}
    assert wire_codecs(cluster, "telemetry-lz4") == {"none", "lz4"}
    assert wire_codecs(cluster, "telemetry-gzip") == {"none", "gzip"}


def wire_codecs(cluster: LocalCluster, client_id: str) -> set[str]:
    codecs = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    found = set()
    for line in cluster.broker(1).log_file.read_text().splitlines():
        if "PUSH_TELEMETRY" in line and (logged := re.search(r"Completed request:(\{.*\}) \(", line)):
            request = json.loads(logged[1])
            if request["requestHeader"]["clientId"] == client_id:
                found.add(codecs[request["request"]["compressionType"]])
    return found


@pytest.mark.slow
def test_an_admin_a_transactional_and_an_older_client(clients: LocalClients, landing: Landing, topic: str) -> None:
    admin = clients.admin("telemetry-admin")
    properties = {"transactional.id": "payments"}
    payments = clients.producer("java", topic, "telemetry-payments", records=10, properties=properties)
    old = clients.producer("java", topic, "telemetry-3.9", records=20, version="3.9.1")

    (push, *_) = landing.wait_for_more(admin.client_id, 1)
    assert "org.apache.kafka.admin.client.request.total" in {metric.name for metric in push.metrics()}
    (push, *_) = landing.wait_for_more(payments.client_id, 1)
    resource = pb.MetricsData.FromString(push.payload).resource_metrics[0].resource
    assert {a.key: a.value.string_value for a in resource.attributes}["transactional_id"] == "payments"
    assert payments.wait_for("done")["records"] == 10
    old.wait_for("done")
    pushes = landing.wait_for_more(old.client_id, 3)
    assert {push.headers["client_software_version"] for push in pushes} == {"3.9.1"}
    assert delta_totals(pushes)["org.apache.kafka.producer.record.send.total", frozenset()] == 20
    for client in (admin, payments, old):
        client.close()


def test_kafka_s_own_producer_tool(cluster: LocalCluster, landing: Landing, topic: str) -> None:
    load = ["--topic", topic, "--num-records", "300", "--record-size", "100", "--throughput", "100"]
    client_id = ["--command-property", "client.id=telemetry-perf"]
    output = cluster.tool("org.apache.kafka.tools.ProducerPerformance", *load, *client_id)
    assert "300 records sent" in output
    pushed = delta_totals(landing.pushes("telemetry-perf"))
    assert 0 < pushed["org.apache.kafka.producer.record.send.total", frozenset()] <= 300


def test_wrong_credentials_fail_the_client_and_land_nothing(
    clients: LocalClients, landing: Landing, topic: str
) -> None:
    properties = {"max.block.ms": 3000}
    producer = clients.producer(
        "java", topic, "telemetry-intruder", records=1, properties=properties, credentials=("alice", "wrong")
    )
    result = producer.wait_for("done")
    assert (result["records"], result["failed"]) == (0, 1)
    assert "SaslAuthenticationException" in result["error"]
    producer.close()
    assert landing.pushes("telemetry-intruder") == []


@pytest.mark.slow
def test_streams_tells_every_inner_client(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str
) -> None:
    cluster.create_topic("word-counts")
    clients.producer("librdkafka", topic, "words", records=50, value_bytes=0).wait_for("done")
    streams = clients.word_count(topic, "word-counts", "telemetry-words")
    ids = streams.wait_for("started")["client_instance_ids"]
    assert len(ids) == 4
    inner = {
        "admin": "telemetry-words-admin",
        "telemetry-words-StreamThread-1-consumer": "telemetry-words-StreamThread-1-consumer",
        "telemetry-words-StreamThread-1-producer": "telemetry-words-StreamThread-1-producer",
    }
    for name, client_id in inner.items():
        pushes = landing.wait_for_more(client_id, 1)
        assert {push.key for push in pushes} == {ids[name]}
    streams.close()
    consumer = landing.wait(inner["telemetry-words-StreamThread-1-consumer"], lambda pushes: pushes[-1].terminating)
    assert largest(consumer, "org.apache.kafka.consumer.coordinator.assigned.partitions") == 4
