"""librdkafka, by its Python binding: what it pushes, how it ends, and what it counts itself."""

from __future__ import annotations

import time

import pytest

from kafka_telemetry_lake.sandbox.clients import Client, LocalClients

from .landing import Landing, Push, delta_totals

pytestmark = pytest.mark.kafka


def assert_ended(pushes: list[Push]) -> None:
    """librdkafka misses about one terminating push in ten; it sends no other after it."""
    assert [push.terminating for push in pushes[:-1]] == [False] * (len(pushes) - 1)


def close_and_read(client: Client, landing: Landing) -> list[Push]:
    landing.wait_for_more(client.client_id, 2)
    client.close()
    pushes = landing.pushes(client.client_id)
    assert_ended(pushes)
    assert len({push.key for push in pushes}) == 1
    assert {push.headers["client_software_name"] for push in pushes} == {"confluent-kafka-python"}
    return pushes


def test_a_producer(clients: LocalClients, landing: Landing, topic: str) -> None:
    producer = clients.producer("librdkafka", topic, "telemetry-rd-producer", records=300, rate=300)
    idle = [clients.producer("librdkafka", topic, f"telemetry-rd-idle-{n}", records=0) for n in range(2)]
    assert producer.wait_for("done")["records"] == 300
    pushes = close_and_read(producer, landing)
    ends = [pushes[-1], *(close_and_read(client, landing)[-1] for client in idle)]
    assert any(push.terminating for push in ends)
    assert producer.wait_for("closing")["stats"]["txmsgs"] == 300
    names = {metric.name for push in pushes for metric in push.metrics()}
    assert "org.apache.kafka.producer.node.request.latency.avg" in names
    # Connects before its first subscription are not counted (kafka-facts 2.1), later there are at most few.
    connects = delta_totals(pushes)["org.apache.kafka.producer.connection.creation.total", frozenset()]
    assert 0 <= connects <= producer.wait_for("closing")["stats"]["connects"]


def test_the_rate_is_kept(clients: LocalClients, topic: str) -> None:
    """Deliveries that come in between, ten a second, don't hasten it."""
    producer = clients.producer("librdkafka", topic, "rd-paced", records=40, rate=10, properties={"linger.ms": 0})
    producer.wait_for("started")
    begun = time.monotonic()
    assert producer.wait_for("done")["records"] == 40
    assert time.monotonic() - begun > 3.5


def test_a_consumer(clients: LocalClients, landing: Landing, topic: str) -> None:
    clients.producer("librdkafka", topic, "rd-feeder", records=300).wait_for("done")
    consumer = clients.consumer("librdkafka", topic, "telemetry-rd-consumer", group="rd", records=300)
    consumer.wait_for("done")
    pushes = close_and_read(consumer, landing)
    closing = consumer.wait_for("closing")
    assert (closing["records"], closing["error"]) == (300, None)
    assigned = [
        point.as_int
        for metric in pushes[-2].metrics()
        if metric.name == "org.apache.kafka.consumer.coordinator.assigned.partitions"
        for point in metric.gauge.data_points
    ]
    assert assigned == [2]


def test_killed_and_paused(clients: LocalClients, landing: Landing, topic: str) -> None:
    killed = clients.producer("librdkafka", topic, "telemetry-rd-killed", rate=10)
    paused = clients.producer("librdkafka", topic, "telemetry-rd-paused", rate=10)
    for client in (killed, paused):
        landing.wait_for_more(client.client_id, 2)
    killed.kill()
    paused.pause()
    clock = clients.producer("librdkafka", topic, "telemetry-rd-clock", rate=10)
    landing.wait_for_more(clock.client_id, 1)
    before = {client.client_id: len(landing.pushes(client.client_id)) for client in (killed, paused)}
    landing.wait_for_more(clock.client_id, 4)
    assert {client_id: len(landing.pushes(client_id)) for client_id in before} == before
    assert not any(push.terminating for push in landing.pushes(killed.client_id))
    paused.resume()
    pushes = landing.wait_for_more(paused.client_id, 2)
    assert len({push.key for push in pushes}) == 1
