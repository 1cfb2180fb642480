"""Changes of findings on a real topic: what `telemetry-lake notify` sends, with which rights, after which failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.notify import sinks
from kafka_telemetry_lake.jobs.supervisor import supervised
from kafka_telemetry_lake.pipelines.notify.file import read_notify_file
from kafka_telemetry_lake.pipelines.runtime import kafka_producer
from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.patience import wait_until
from tests.unit.notify.changed_findings import change, http_sink, make_lake, record

TOPIC = "client-findings"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def sasl(user: str, password: str) -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} required username="{user}" password="{password}";',
    }


def config(folder: Path, servers: str, options: dict[str, str] | None = None, **more: Any) -> Path:
    """A file with the topic as sink `one`, and with others, which all get all changes at once."""
    topic = {"type": "kafka", "bootstrap_servers": servers, "topic": TOPIC, "kafka_options": options or {}}
    file, sinks = folder / "notify.yml", {"one": topic} | more
    file.write_text(yaml.safe_dump({"sinks": sinks, "routes": [{"sinks": list(sinks), "group_seconds": 0}]}))
    return file


def records(cluster: LocalCluster, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Key and value of the topic's records; waits for so many."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "n", "enable.metrics.push": False}
    consumer, found = Consumer(settings), []
    consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def has_all() -> bool:
        for message in consumer.consume(1000, 0.2):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found.append((key.decode(), json.loads(value)))
        return len(found) >= number

    try:
        wait_until(has_all)
    finally:
        consumer.close()
    return found


def test_records_of_a_user_and_what_is_wrong_with_a_topic(
    cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake(tmp_path)
    record(lake, change("orders"), change("ünï\x00" + "x" * 1024, second=1))
    argv = ["notify", "--lake", lake, "--log-level", "DEBUG", "--give-up-seconds", "0", "--notify"]
    servers = cluster.sasl_bootstrap_servers
    assert cli.main([*argv, str(config(tmp_path, servers, sasl("alice", "wrong-secret")))]) == 1
    right = str(config(tmp_path, servers, sasl("alice", "alice-secret")))
    assert cli.main([*argv, right]) == 1
    cluster.create_topic(TOPIC, config={"max.message.bytes": 5000})
    assert cli.main([*argv, right]) == 0
    record(lake, change("big", second=2, evidence="e" * 6000), change("orders", "resolved", 3))  # would be a batch
    assert cli.main([*argv, right]) == 0
    assert cli.main([*argv, right]) == 0

    first, last = change("orders"), change("orders", "resolved")
    found = records(cluster, 3)
    assert [key for key, _ in found] == [value["finding_id"] for _, value in found]
    assert [(value["subject"][:6], value["change"]) for _, value in found] == [
        ("orders", "opened"), ("ünï\x00xx", "opened"), ("orders", "resolved"),
    ]  # fmt: skip
    assert found[0][0] == found[2][0] == first["finding_id"] == last["finding_id"]
    assert len({value["change_id"] for _, value in found}) == 3
    printed = capfd.readouterr()
    refused, missing = printed.err.splitlines()
    assert f"one: the brokers at {servers} refuse access (SaslAuthenticationException): check kafka_options" in refused
    assert f"notify: one: topic {TOPIC} does not exist: create it, with the partitions it needs; the next" in missing
    assert "one: a change is larger than the topic allows; it has the others; it is stored in" in caplog.text
    stored = b"".join(file.read_bytes() for file in Path(lake).rglob("*") if file.is_file())
    for secret in ("wrong-secret", "alice-secret"):
        assert secret not in printed.out + printed.err + caplog.text
        assert secret.encode() not in stored


@pytest.mark.slow
def test_a_broker_that_is_killed_delays_no_other_sink_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_producer, "DELIVERY_MS", 16_000)  # 15 s are the least
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.runtime.retries.LONGEST_PAUSE_S", 1)
    lake = make_lake(tmp_path)
    with LocalCluster() as cluster, http_sink() as hook:
        cluster.create_topic(TOPIC)
        file = config(tmp_path, cluster.bootstrap_servers, hook={"type": "webhook", "url": hook.url, "per_minute": 600})
        with supervised(lake, sinks(lake, read_notify_file(file), java_machine, 0.1)):
            record(lake, change("a"))
            assert [value["subject"] for _, value in records(cluster, 1)] == ["a"]
            cluster.broker(1).kill()
            record(lake, change("b", second=1))
            wait_until(lambda: hook.changes() == [("a", "opened"), ("b", "opened")])
            wait_until(lambda: "notify: one: TimeoutException" in caplog.text)  # of the open producer
            wait_until(lambda: "connection refused, nothing listens there" in caplog.text)  # before a new one opens
            record(lake, change("a", "resolved", 2))
            wait_until(lambda: ("a", "resolved") in hook.changes())
            cluster.broker(1).start()
            changes = [(value["subject"], value["change"]) for _, value in records(cluster, 3)]
            assert list(dict.fromkeys(changes)) == [("a", "opened"), ("b", "opened"), ("a", "resolved")]
