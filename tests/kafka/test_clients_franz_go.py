"""franz-go, where Go is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

from .landing import Landing

pytestmark = pytest.mark.kafka

PRODUCER = {"driver.records": 100, "driver.rate": 200, "driver.value_bytes": 10}


@pytest.mark.slow
def test_a_producer_and_a_consumer(clients: LocalClients, landing: Landing, topic: str, franz_go: Path) -> None:
    producer = clients.start("telemetry-go", [franz_go, "producer"], {**PRODUCER, "driver.topic": topic})
    assert producer.wait_for("done")["records"] == 100
    settings = {"driver.topic": topic, "driver.records": 100, "group.id": "go"}
    consumer = clients.start("telemetry-go-consumer", [franz_go, "consumer"], settings)
    consumer.wait_for("done")
    for client, kind in ((producer, "producer"), (consumer, "consumer")):
        landing.wait_for_more(client.client_id, 2)
        assert client.close()["records"] == 100
        pushes = landing.wait(client.client_id, lambda pushes: pushes[-1].terminating)
        assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
        assert {(push.headers["client_software_name"], push.headers["client_software_version"]) for push in pushes} == {
            ("kgo", "v1.22.2")
        }
        names = {metric.name for push in pushes for metric in push.metrics()}
        assert f"org.apache.kafka.{kind}.connection.creation.total" in names


def test_killed(clients: LocalClients, landing: Landing, topic: str, franz_go: Path) -> None:
    settings = {**PRODUCER, "driver.topic": topic, "driver.records": -1}
    producer = clients.start("telemetry-go-killed", [franz_go, "producer"], settings)
    landing.wait_for_more("telemetry-go-killed", 2)
    producer.kill()
    assert not any(push.terminating for push in landing.pushes("telemetry-go-killed"))


def test_a_star_is_a_literal_prefix_to_it_its_pushes_are_heartbeats(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str, franz_go: Path
) -> None:
    cluster.subscribe("star", ["*"], 500, ["client_id=star-go"])
    client = clients.start("star-go", [franz_go, "producer"], {**PRODUCER, "driver.topic": topic})
    push = landing.wait_for_more("star-go", 1)[0]
    assert len(push.payload) > 0
    assert push.metrics() == []
    client.close()
    cluster.unsubscribe("star")
