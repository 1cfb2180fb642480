"""Findings of what real clients do wrong on a real broker, and none of those that do nothing wrong."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from tests.dashboard.captured_lake import push_row, write_lake

TOPIC = "client-telemetry"
SECONDS = 12  # that each behaviour goes on for, after the one that takes longest to begin
# A behaviour and its findings; further ones that follow from it may come too.
EXPECTED = {
    "failed_records": {"failed_records"},
    "one_record_per_request": {"one_record_per_request"},
    "full_batches": {"full_batches", "uncompressed_records", "buffer_full"},
    "buffer_full": {"buffer_full"},
    "throttled": {"throttled"},
    "connection_churn": {"connection_churn"},
    "processing_bound": {"processing_bound"},
    "unstable_group": {"unstable_group"},
    "short_lived_clients": {"short_lived_clients"},
}
SEVERITY = {("full_batches", "buffer_full"): "warning", ("buffer_full", "buffer_full"): "error"}


@pytest.mark.slow
def test_each_behaviour_has_its_finding_and_healthy_clients_have_none(
    cluster: LocalCluster, clients: LocalClients, tmp_path: Path
) -> None:
    _wait_for_an_hour_that_holds_the_test()
    cluster.set_quota(client_id="telemetry-throttled", producer_byte_rate=100_000)
    consumer = _at_the_end(cluster)
    source = Path(__file__).with_name("MisbehavingClients.java")
    class_path = kafka_class_path(cluster.version)
    classes = compile_java([source], class_path)
    log = tmp_path / "misbehaving.log"
    command = java_command(f"{classes}:{class_path}", source.stem, log=log, level="ERROR", heap_mb=512)
    client = clients.start("misbehaving", command, {"driver.seconds": SECONDS})
    client.wait_for("done", limit=240)
    client.kill()
    rows = [push_row(_record(message)) for message in _rest(consumer)]
    consumer.close()
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist(rows, PUSHES.schema))

    found: dict[str, dict[str, str]] = defaultdict(dict)
    detected = run_query(
        str(lake), "SELECT client_id, finding, severity, evidence FROM findings ORDER BY ALL"
    ).read_all()
    for row in detected.to_pylist():
        found[row["client_id"].removeprefix("telemetry-")][row["finding"]] = row["severity"]
    pushed = {row["client_id"] for row in rows}
    assert {f"telemetry-{name}" for name in (*EXPECTED, "healthy_producer", "healthy_consumer")} <= pushed
    missing = {name: findings - found[name].keys() for name, findings in EXPECTED.items()}
    assert {name: findings for name, findings in missing.items() if findings} == {}, detected.to_pylist()
    assert {key: found[key[0]][key[1]] for key in SEVERITY} == SEVERITY
    assert (found["healthy_producer"], found["healthy_consumer"]) == ({}, {})


@pytest.mark.slow
def test_a_paused_consumer_an_old_client_and_retries_that_nobody_sees(
    cluster: LocalCluster, clients: LocalClients, tmp_path: Path
) -> None:
    _wait_for_an_hour_that_holds_the_test(300)
    landed = _at_the_end(cluster)
    for name in ("records-of-findings", "made-anew"):
        cluster.create_topic(name)
    # The process stands still, as in a virtual machine that is moved: 155 s between two polls.
    paused = clients.consumer("java", "records-of-findings", "telemetry-slow_processing", group="slow")
    old = clients.producer("java", "records-of-findings", "telemetry-buggy_client_version", rate=20, version="3.8.1")
    settings = {
        "enable.idempotence": "false",
        "metadata.max.age.ms": 1000,
        "delivery.timeout.ms": 120_000,
        "max.block.ms": 120_000,
    }
    retrying = clients.producer(
        "java", "made-anew", "telemetry-silent_retries", records=400, rate=50, properties=settings
    )
    time.sleep(3)
    paused.pause()
    begun = time.monotonic()
    cluster.delete_topic("made-anew")
    cluster.create_topic("made-anew")
    retrying.wait_for("done", limit=200)
    time.sleep(max(0.0, begun + 155 - time.monotonic()))
    paused.resume()
    time.sleep(5)
    for client in (paused, old, retrying):
        client.close()
    rows = [push_row(_record(message)) for message in _rest(landed)]
    landed.close()
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist(rows, PUSHES.schema))
    detected = run_query(str(lake), "SELECT client_id, finding, evidence FROM findings ORDER BY ALL").read_all()
    found = {(row["client_id"], row["finding"]): row["evidence"] for row in detected.to_pylist()}
    for finding, evidence in (
        ("slow_processing", r"1[5-9]\d s between two polls"),
        ("buggy_client_version", "Java client 3.8.1"),
        ("silent_retries", r"\d+ sends were retried for \d+ records; none failed.*"),
    ):
        assert re.fullmatch(
            rf"{evidence}, in the hour from \d{{4}}-\d\d-\d\d \d\d:00 UTC",
            found.get((f"telemetry-{finding}", finding), ""),
        ), (finding, found)


def _wait_for_an_hour_that_holds_the_test(seconds: float = 120) -> None:
    """Findings are of hours: what is split between two may be too little for each."""
    left_s = 3600 - time.time() % 3600
    if left_s < seconds:
        time.sleep(left_s + 1)


def _at_the_end(cluster: LocalCluster) -> Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "findings", "enable.metrics.push": False}
    consumer = Consumer(settings)
    known = consumer.list_topics(TOPIC).topics[TOPIC].partitions
    places = [TopicPartition(TOPIC, partition) for partition in known]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place)[1]
    consumer.assign(places)
    return consumer


def _rest(consumer: Consumer) -> Iterator[Message]:
    while messages := consumer.consume(1000, 2.0):
        yield from messages


def _record(message: Message) -> dict[str, Any]:
    headers = message.headers()
    assert isinstance(headers, list)
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        "value": message.value(),
        "headers": [{"key": key, "value": value} for key, value in headers],
    }
