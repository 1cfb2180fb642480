"""``telemetry-lake check-landing`` of a topic: what another receiver wrote, and what the plugin writes."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.unit.landing.test_landing_problems import OTLP, made

Capture = pytest.CaptureFixture[str]


def test_the_newest_records_of_a_topic(cluster: LocalCluster, topic: str, capsys: Capture) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.metrics.push": False})
    cases: list[tuple[bytes, dict[str, Any]]] = [
        (b"never read: two records of this partition are newer", {}),
        (OTLP, {}),
        (OTLP, {"compression_type": "gzip", "client_id": "é\n"}),
    ]
    for value, changes in cases:
        own = made(value, **changes)
        producer.produce(topic, value, own.key, 0, headers=list(own.headers), timestamp=own.timestamp_ms or 0)
    producer.produce(topic, None, None, 1, headers=[("client_id", None)])
    assert producer.flush(30) == 0

    words = [topic, "--bootstrap-servers", cluster.bootstrap_servers, "--max-records", "4"]
    assert run_command("check-landing", words) == 1
    lines = capsys.readouterr().out.splitlines()
    said = sorted(lines[: next(number for number, line in enumerate(lines) if line.startswith("3 records, "))])
    assert said[0].startswith("partition 0, offset 2: error: value: not decompressible as gzip")
    assert [line.partition(": ")[2].split(":")[1].strip() for line in said[1:]] == [
        "client_instance_id", "value", "client_id", "record_version"
    ]  # fmt: skip

    assert run_command("check-landing", ["no-such-topic", *words[1:]]) == 2
    assert "topic no-such-topic does not exist at" in capsys.readouterr().err
