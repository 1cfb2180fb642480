"""Subscriptions against Kafka itself: synced from a broker, and the committed answers of its classes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.tables.subscriptions import CLIENT_ATTRIBUTES
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.udfs.subscriptions.as_of import announced_subscriptions
from kafka_telemetry_lake.udfs.subscriptions.history import subscription_of
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES, CLIENTS, matching, push_interval_ms
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import checksums, instance_hashes, subscription_checksums
from tests.kafka import subscription_oracle
from tests.kafka.old_broker import old_broker
from tests.support.lake_tables import table
from tests.support.telemetry_request import ask

NO_PERMISSION = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SASL = (
    '{"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": '
    '"org.apache.kafka.common.security.plain.PlainLoginModule required username=\\"ann\\" password=\\"ann-secret\\";"}'
)


def rows(lake: Path) -> list[dict[str, Any]]:
    """Versions of the subscriptions that this test made, oldest first."""
    found = [row for row in table(lake, "subscriptions").to_pylist() if row["name"].startswith("sync-")]
    return sorted(found, key=lambda row: (row["valid_from"], row["name"]))


def test_history_follows_the_broker(cluster: LocalCluster, tmp_path: Path) -> None:
    flags = ["--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers]
    cluster.subscribe("sync-all", ["*"], 1000)
    cluster.subscribe(
        "sync-some", ["org.apache.kafka.producer.", "org.apache.kafka.consumer."], 60_000, [r"client_id=o\d+"]
    )
    assert run_command("sync", flags) == 0
    first = rows(tmp_path)
    assert [(row["name"], row["metrics"], row["interval_ms"], row["match"], row["not_seen_at"]) for row in first] == [
        ("sync-all", ["*"], 1000, [], None),
        (
            "sync-some",
            ["org.apache.kafka.producer.", "org.apache.kafka.consumer."],
            60_000,
            [("client_id", r"o\d+")],
            None,
        ),
    ]
    version = DeltaTable(str(tmp_path / "subscriptions")).version()
    assert run_command("sync", flags) == 0
    assert DeltaTable(str(tmp_path / "subscriptions")).version() == version

    cluster.subscribe(
        "sync-some", ["org.apache.kafka.producer."], 60_000, ["client_software_name=kgo", r"client_id=o\d+"]
    )
    cluster.subscribe("sync-none", [], 300_000)
    cluster.unsubscribe("sync-all")
    assert run_command("sync", [*flags, "--check"]) == 0
    assert DeltaTable(str(tmp_path / "subscriptions")).version() == version
    assert run_command("sync", flags) == 0
    gone, before, none, after = rows(tmp_path)
    assert DeltaTable(str(tmp_path / "subscriptions")).version() == version + 1
    assert [row["name"] for row in (gone, before, none, after)] == ["sync-all", "sync-some", "sync-none", "sync-some"]
    assert (none["metrics"], none["interval_ms"], none["match"]) == ([], 300_000, [])
    assert after["metrics"] == ["org.apache.kafka.producer."]
    assert after["match"] == [("client_id", r"o\d+"), ("client_software_name", "kgo")]
    at = after["valid_from"]
    assert [row["valid_to"] for row in (gone, before, none, after)] == [at, at, None, None]
    unsure = (after["not_seen_at"], none["not_seen_at"], before["last_seen_at"], gone["last_seen_at"])
    assert len(set(unsure)) == 1
    assert first[0]["valid_from"] < unsure[0] < at
    assert {row["cluster_id"] for row in rows(tmp_path)} == {cluster_id(cluster)}
    for name in ("sync-some", "sync-none"):
        cluster.unsubscribe(name)


SUBSCRIPTIONS: dict[str, tuple[list[str], int, list[str]]] = {
    "sync-prefixes": (
        [f"org.apache.kafka.{name}." for name in ("producer", "consumer", "admin", "stream", "x")],
        60_000,
        [],
    ),
    "sync-client": (["a.", "b.", "c.", "org.apache.kafka.producer."], 5000, [r"client_id=orders-\d+"]),
    "sync-software": (["d.", "e.", "f.", "g.", "h."], 900_000, ["client_software_name=apache-kafka-java"]),
    "sync-address": (["i.", "j.", "k."], 200_000, [r"client_source_address=127\..*", "client_source_port=[0-9]{2}.*"]),
    "sync-all": (["*"], 1000, ["client_id=everything", "client_software_version=.*"]),
    "sync-none": ([], 100, ["client_id=(?i)NOTHING"]),
}
ASKING = [
    ("orders-1", ("apache-kafka-java", "4.3.0")),
    ("orders-x", ("apache-kafka-java", "4.3.0")),
    ("orders-2", ("librdkafka", "2.16.0")),
    ("everything", ("kgo", "unknown")),
    ("nothing", ("kgo", "1.22")),
    ("Nothing", ("apache-kafka-java", "3.9.1")),
]


def test_broker_tells_clients_what_is_computed_for_them(cluster: LocalCluster, tmp_path: Path) -> None:
    for name, (metrics, interval_ms, match) in SUBSCRIPTIONS.items():
        cluster.subscribe(name, metrics, interval_ms, match)
    assert run_command("sync", ["--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers]) == 0
    versions = table(tmp_path, "subscriptions")
    subscriptions = [subscription_of(row) for row in versions.to_pylist()]
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    answers = []
    for number, (client_id, software) in enumerate(ASKING):
        instance = bytes([9] * 15 + [number])
        answer = ask(port, instance, client_id, software)
        answers.append((client_id, len(answer.requested_metrics), answer.push_interval_ms))
        text = base64.urlsafe_b64encode(instance).decode().rstrip("=")
        values = [text, client_id, *software, "127.0.0.1", str(answer.source_port)]
        client = pa.Table.from_pylist([dict(zip(CLIENTS.names, values, strict=True))], CLIENTS)
        matched = np.array([matching(client, each).to_pylist() for each in subscriptions], np.bool_).T
        mine = tuple(each for each, found in zip(subscriptions, matched[0], strict=True) if found)
        assert push_interval_ms(each.interval_ms for each in mine) == answer.push_interval_ms
        union = {"*"} if ("*",) in [each.metrics for each in mine] else {name for each in mine for name in each.metrics}
        assert set(answer.requested_metrics) == union
        hashes = instance_hashes(client["client_instance_id"])
        ids = np.array([answer.subscription_id], np.int32)
        assert subscription_checksums(ids, hashes)[0] in checksums(mine)
        known = {key: client[key][0].as_py() for key in CLIENTS.names if key in ATTRIBUTES.names}
        known |= {"cluster_id": versions["cluster_id"][0].as_py(), "client_address": "127.0.0.1"}
        known |= {"client_port": answer.source_port, "subscription_id": answer.subscription_id}
        states = announced_subscriptions(pa.Table.from_pylist([known], CLIENT_ATTRIBUTES.schema), versions)
        assert states["subscription_state"].to_pylist()[-1] == "agrees"
    for name in SUBSCRIPTIONS:
        cluster.unsubscribe(name)
    assert answers == [
        ("orders-1", 16, 5000),
        ("orders-x", 13, 60_000),
        ("orders-2", 11, 5000),
        ("everything", 1, 1000),
        ("nothing", 8, 100),
        ("Nothing", 13, 100),
    ]


def cluster_id(cluster: LocalCluster) -> str:
    settings = (cluster.folder / "broker-1" / "data" / "meta.properties").read_text()
    return next(line.partition("=")[2] for line in settings.splitlines() if line.startswith("cluster.id="))


def test_what_the_cluster_refuses_is_reported_and_the_history_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(properties=NO_PERMISSION, sasl_users={"ann": "ann-secret"}) as cluster:
        cluster.subscribe("sync-all", ["*"], 1000)
        lake = ["--lake", str(tmp_path)]
        assert run_command("sync", [*lake, "--bootstrap-servers", cluster.bootstrap_servers]) == 0
        before = table(tmp_path, "subscriptions")
        options = ["--kafka-options", SASL]
        assert run_command("sync", [*lake, "--bootstrap-servers", cluster.sasl_bootstrap_servers, *options]) == 2
        error = capsys.readouterr().err
        assert f"the brokers at {cluster.sasl_bootstrap_servers} refuse access (ClusterAuthorizationException)" in error
        assert "ann-secret" not in error
        with old_broker() as address:
            assert run_command("sync", [*lake, "--bootstrap-servers", address]) == 2
            error = capsys.readouterr().err
            assert f"the brokers at {address} don't support client metrics subscriptions, which need Kafka 3.7" in error
            assert len(error.splitlines()) == 1
        assert table(tmp_path, "subscriptions").equals(before)


def test_committed_answers_are_those_of_java_and_kafka() -> None:
    patterns = json.loads(subscription_oracle.PATTERNS.read_text())
    assert subscription_oracle.pattern_answers(patterns) == patterns
    brokers = json.loads(subscription_oracle.BROKERS.read_text())
    assert subscription_oracle.broker_answers(brokers) == brokers
