"""Kafka's clients under another package name, as on Databricks, give the same answers as under their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.doctor.cluster_facts import read_cluster
from kafka_telemetry_lake.pipelines.groups.members import read_groups
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.quotas.configured import read_quotas
from kafka_telemetry_lake.pipelines.runtime import java_machine as machines
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import (
    HasJvm,
    create_topic,
    existing_topics,
    topic_consumer,
)
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import for_jvm, kafka_package
from kafka_telemetry_lake.pipelines.runtime.kafka_producer import producing
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import earliest_offsets, topic_ids
from kafka_telemetry_lake.pipelines.subscriptions.configured import read_subscriptions
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.moved_classes import move_package

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ALICE = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="alice-secret";',
}


@pytest.fixture(scope="module")
def moved_jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, moved = tmp_path_factory.mktemp("moved"), []
    for jar in jars("spark"):
        moved.append(folder / jar.name if "kafka" in jar.name else jar)
        if "kafka" in jar.name:
            move_package(jar, moved[-1], "org.apache.kafka", "kafkashaded")
    return moved


@pytest.fixture(scope="module")
def both(moved_jars: list[Path]) -> Iterator[tuple[HasJvm, HasJvm]]:
    """A JVM with Kafka's classes under their own names, and one with moved ones."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        # Other tests' session is not used: its JVM has jars of its own.
        patch.setattr(machines, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
        own = stack.enter_context(machines.java_machine())
        patch.setattr(machines, "jars", lambda _: moved_jars)
        yield own, stack.enter_context(machines.java_machine())


def test_the_package_is_the_one_of_the_jvm(both: tuple[HasJvm, HasJvm]) -> None:
    own, moved = (str(kafka_package(java._jvm).clients.admin.Admin._fqn) for java in both)
    assert (own, moved) == ("org.apache.kafka.clients.admin.Admin", "kafkashaded.org.apache.kafka.clients.admin.Admin")


def test_names_of_classes_in_options(both: tuple[HasJvm, HasJvm]) -> None:
    own, moved = (java._jvm for java in both)
    options = {"a": f"{MODULE} required;", "b": f"x,{MODULE}", "c": f"my.{MODULE}", "d": f"kafkashaded.{MODULE}"}
    assert for_jvm(own, options) == options
    assert for_jvm(moved, options) == options | {
        "a": f"kafkashaded.{MODULE} required;",
        "b": f"x,kafkashaded.{MODULE}",
    }


@pytest.mark.slow
def test_every_request_has_the_same_answer(cluster: LocalCluster, both: tuple[HasJvm, HasJvm]) -> None:
    servers = cluster.sasl_bootstrap_servers

    def answers(java: HasJvm, topic: str) -> dict[str, Any]:
        create_topic(java, servers, ALICE, topic, 2, 1, {"retention.ms": "1000000"})
        with producing(java, servers, ALICE, topic) as send:
            send([("k", "first"), ("k", "second")])
        with topic_consumer(java, servers, ALICE, topic) as (consumer, partitions, _):
            consumer.seekToBeginning(partitions)
            read: list[str] = []
            while len(read) < 2:
                records = consumer.poll(java._jvm.java.time.Duration.ofSeconds(10))
                read += [str(each.value()) for each in records.iterator()]
        facts = read_cluster(java, servers, ALICE, [topic])
        groups = read_groups(java, servers, ALICE, Privacy())
        return {
            "exists": topic in existing_topics(java, servers, ALICE),
            "has id": list(topic_ids(java, servers, ALICE, [topic])) == [topic],
            "earliest": earliest_offsets(java, servers, ALICE, [topic])[topic],
            "read": read,
            "cluster": facts.cluster_id,
            "settings": facts.topics[topic].config["retention.ms"],
            "groups": groups.cluster_id,
            "quotas": read_quotas(java, servers, ALICE),
            "subscriptions": read_subscriptions(java, servers, ALICE),
        }

    own, moved = (answers(java, f"classes-{number}") for number, java in enumerate(both))
    assert own == moved
    assert own["read"] == ["first", "second"]
    assert own["earliest"] == {0: 0, 1: 0}
    assert own["settings"] == "1000000"
