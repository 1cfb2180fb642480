"""Lag of groups that read all kinds of logs of a real broker, and groups and partitions that nobody can read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.jobs.sync import sync
from kafka_telemetry_lake.pipelines.applications.aliases_topic import read_aliases_topic
from kafka_telemetry_lake.pipelines.doctor.cluster_facts import read_cluster
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import earliest_offsets, topics_of
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S

QUIET: dict[str, Any] = {"enable.metrics.push": False}
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def java() -> Iterator[SparkSession]:
    """A JVM for Kafka's Admin client; a sync needs no more of a session."""
    with java_machine() as java:
        yield cast(SparkSession, java)


class Synced:
    """A lake and the cluster whose groups it follows."""

    def __init__(self, cluster: LocalCluster, java: SparkSession, lake: Path) -> None:
        self.cluster, self.java, self.lake = cluster, java, lake
        PUSHES.create(str(lake))  # then it is a lake

    def poll(self, *flags: str, servers: str | None = None) -> None:
        servers = servers or self.cluster.bootstrap_servers
        sync(parse(SyncSettings, ["--lake", str(self.lake), "--bootstrap-servers", servers, *flags], "test"), self.java)

    def lag(self, topic: str, *columns: str) -> dict[str, tuple[Any, ...]]:
        """Status and other columns of each group that reads a topic, as of the last poll."""
        sql = f"SELECT group_id, status, {', '.join(columns)} FROM group_lag WHERE latest AND topic = '{topic}'"
        rows = run_query(str(self.lake), sql + " AND partition = 0").read_all().to_pylist()
        return {row["group_id"]: tuple(row.values())[1:] for row in rows}


@pytest.fixture
def synced(cluster: LocalCluster, java: SparkSession, tmp_path: Path) -> Synced:
    return Synced(cluster, java, tmp_path / "lake")


def transaction(producer: Producer, topic: str, records: int, *, commit: bool = True) -> None:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"value", b"key", partition=0)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def transactional(cluster: LocalCluster, name: str) -> Producer:
    producer = Producer(QUIET | {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions()
    return producer


def read(cluster: LocalCluster, topic: str, group: str, records: int, protocol: str) -> None:
    """Read so many records of partition 0 as a member of a group, and commit the offset after each."""
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer(
        QUIET | settings | {"bootstrap.servers": cluster.bootstrap_servers, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while records:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)
            records -= 1
    consumer.close()


def commit(cluster: LocalCluster, topic: str, group: str, *offsets: int) -> None:
    """Commit these offsets of partitions 0, 1, ... for a group without members."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    deadline = time.monotonic() + PATIENCE_S
    while True:  # a coordinator that has just loaded may not know the topic yet
        (future,) = admin.alter_consumer_group_offsets(wanted).values()
        if all(each.error is None for each in future.result(PATIENCE_S).topic_partitions):
            return
        assert time.monotonic() < deadline


def delete_records(cluster: LocalCluster, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (future,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    future.result(PATIENCE_S)


GROUPS = {"classic": "txn-classic", "consumer": "txn-consumer"}


@pytest.mark.slow
def test_a_group_that_has_read_all_of_a_transactional_topic_is_caught_up(synced: Synced, topic: str) -> None:
    """librdkafka commits the offset after the last record, which is that of the marker."""
    cluster = synced.cluster
    producer = transactional(cluster, topic)
    transaction(producer, topic, 5)
    for protocol, group in GROUPS.items():
        read(cluster, topic, group, 5, protocol)
    columns = ("lag_records", "time_lag_s", "time_lag_at_least_s", "lost_in_s", "lost_records", "committed_offset")
    for _ in range(2):
        synced.poll()
        expected = dict.fromkeys(GROUPS.values(), ("caught_up", 0, 0, 0, None, None, 5))
        assert synced.lag(topic, *columns) == expected
    transaction(producer, topic, 30, commit=False)  # offsets 6 to 35, and a marker at 36: nothing to read
    synced.poll()
    assert synced.lag(topic, *columns) == expected
    producer.begin_transaction()
    producer.produce(topic, b"open", b"key", partition=0)
    producer.flush()
    synced.poll()
    waiting = ("stable_offset", "end_offset", "lag_records", "time_lag_s", "time_lag_at_least_s")
    assert synced.lag(topic, *waiting) == dict.fromkeys(GROUPS.values(), ("open_transaction", 37, 38, 1, None, None))
    producer.commit_transaction()
    synced.poll()
    unread = synced.lag(topic, "oldest_unread_offset", "lag_records", "time_lag_at_least_s")
    assert {row[:3] for row in unread.values()} == {("measured", 37, 2)}
    assert all(row[3] >= 0 for row in unread.values())
    read(cluster, topic, GROUPS["classic"], 1, "classic")
    delete_records(cluster, topic, 39)
    synced.poll()
    assert synced.lag(topic, "lost_records", "lag_records", "committed_offset") == {
        GROUPS["classic"]: ("maybe_lost", None, 0, 38),  # the marker: nobody looked while it was there
        GROUPS["consumer"]: ("lost", 2, 0, 5),
    }


@pytest.mark.slow
def test_deleted_markers_are_no_lost_records(synced: Synced, topic: str) -> None:
    transaction(transactional(synced.cluster, topic), topic, 5)
    commit(synced.cluster, topic, "deleted", 5)
    synced.poll("--no-unread-records")  # as without Read on the topic
    names = ("lag_records", "time_lag_s", "time_lag_at_least_s", "lost_in_s", "lost_records")
    assert synced.lag(topic, *names)["deleted"] == ("unchecked", 1, None, None, None, None)
    synced.poll()
    assert synced.lag(topic, *names)["deleted"] == ("caught_up", 0, 0, 0, None, None)
    delete_records(synced.cluster, topic, 6)
    synced.poll()
    assert synced.lag(topic, *names)["deleted"] == ("caught_up", 0, 0, 0, None, None)


@pytest.mark.slow
def test_compacted_records_are_not_the_oldest_unread(synced: Synced) -> None:
    topic, cluster = "lag-compacted", synced.cluster
    config = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.01}
    cluster.create_topic(topic, config=config)
    producer = Producer(QUIET | {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})

    def send(*keys: str) -> None:
        for key in keys:
            producer.produce(topic, b"value", key)
            producer.flush()

    send("a", "a", "a", "a", "b")
    commit(cluster, topic, "compacted", 1)
    synced.poll()
    assert synced.lag(topic, "oldest_unread_offset")["compacted"] == ("older_than_history", 1)
    deadline = time.monotonic() + PATIENCE_S
    while synced.lag(topic, "oldest_unread_offset")["compacted"][1] == 1:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        send("c")  # rolls the segment
        synced.poll()
    status, oldest, committed = synced.lag(topic, "oldest_unread_offset", "committed_offset")["compacted"]
    assert (oldest, committed) == (3, 1)  # the last of the key, written before the first poll
    assert status == "older_than_history"


def test_one_group_that_may_not_be_described_hides_no_other(
    synced: Synced, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = synced.cluster
    acl = ("org.apache.kafka.tools.AclCommand", "--add", "--allow-principal", "User:carol")
    cluster.tool(*acl, "--operation", "Describe", "--operation", "DescribeConfigs", "--cluster")
    cluster.tool(*acl, "--operation", "Describe", "--group", "team-", "--resource-pattern-type", "prefixed")
    cluster.tool(*acl, "--operation", "Describe", "--topic", topic)
    producer = Producer(QUIET | {"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(3):
        producer.produce(topic, b"value", b"key", partition=0)
    producer.flush()
    commit(cluster, topic, "team-a", 1)
    commit(cluster, topic, "internal", 1)
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN_LOGIN} required username="carol" password="carol-secret";',
    }
    flags = [word for key, value in options.items() for word in ("--kafka-options", f"{key}={value}")]
    synced.poll(*flags, servers=cluster.sasl_bootstrap_servers)
    assert synced.lag(topic, "lag_records") == {"team-a": ("unchecked", 2)}
    sql = "SELECT status, topic, problem FROM group_lag WHERE latest AND group_id = 'internal'"
    (row,) = run_query(str(synced.lake), sql).read_all().to_pylist()
    assert tuple(row.values()) == ("no_offsets", None, "GroupAuthorizationException")
    states = {row["group_id"]: row for row in table(synced.lake, "group_states").to_pylist()}
    assert (states["team-a"]["state"], states["team-a"]["problem"]) == ("Empty", None)
    assert (states["internal"]["state"], states["internal"]["problem"]) == ("Empty", "GroupAuthorizationException")
    (warning,) = [record.message for record in caplog.records if "can't be described" in record.message]
    assert "internal" in warning
    assert "team-a" not in warning


@pytest.mark.slow
def test_partitions_without_a_leader_cost_no_time_and_hide_no_other(
    java: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two brokers is killed. Admin would ask for offsets of its partitions until its timeout, 15 s."""
    topic = "spread"
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic(topic, 4, replication_factor=1)
        producer = Producer(QUIET | {"bootstrap.servers": cluster.bootstrap_servers})
        for partition in (0, 1, 2, 3):
            producer.produce(topic, b"value", b"key", partition)
        producer.flush()
        commit(cluster, topic, "spread", *([0] * 4))
        cluster.broker(2).kill()
        synced, servers = Synced(cluster, java, tmp_path / "lake"), cluster.bootstrap_servers.partition(",")[0]
        deadline = time.monotonic() + PATIENCE_S
        while len(topics_of(java, servers, {}, [topic])[topic].without_leader) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        synced.poll(servers=servers)
        sql = "SELECT partition, status FROM group_lag WHERE latest AND group_id = 'spread' ORDER BY partition"
        rows = run_query(str(synced.lake), sql).read_all().to_pylist()
        gone = topics_of(java, servers, {}, [topic])[topic].without_leader
        assert {row["partition"]: row["status"] for row in rows} == {
            number: "no_leader" if number in gone else "older_than_history" for number in range(4)
        }
        names = ", ".join(f"{topic}-{number}" for number in sorted(gone))
        assert f"partitions whose lag is unknown: {names} (no leader)" in caplog.text
        assert read_cluster(java, servers, {}, [topic]).topics[topic].without_leader == len(gone) == 2
        with pytest.raises(KafkaUnavailableError, match=r"first offsets of spread-\d, spread-\d \(no leader\)"):
            earliest_offsets(java, servers, {}, [topic])
        assert not read_aliases_topic(java, servers, {}, topic).is_complete
