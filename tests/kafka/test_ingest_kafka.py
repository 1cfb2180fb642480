"""The job against a real topic: the same rows as from files, bounded batches, and what happens to topics meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.support.running import StreamFailedError
from kafka_telemetry_lake.pipelines.ingest.replaced_topics import TopicReplacedError
from kafka_telemetry_lake.pipelines.ingest.sources import SourceError
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import GOOD_ID, captured, record, write
from tests.support.live_job import live_job
from tests.support.patience import PATIENCE_S, idle_clock

from .receiver_brokers import wait_for

TABLES = ("pushes", "metric_points", "push_outcomes", "client_events", "quarantine")


def produce(cluster: LocalCluster, topic: str, records: list[dict[str, Any]]) -> None:
    """Land records where and when they say."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.metrics.push": False})
    for item in records:
        headers = [(header["key"], header["value"]) for header in item["headers"]]
        milliseconds = round(item["timestamp"].timestamp() * 1000)
        producer.produce(topic, item["value"], item["key"], item["partition"], timestamp=milliseconds, headers=headers)
    assert producer.flush(60) == 0


def good_pushes(first: int, number: int, partition: int = 0) -> list[dict[str, Any]]:
    payload = bytes(captured()["value"][0].as_py())
    return [record(offset, payload) | {"partition": partition} for offset in range(first, first + number)]


def offsets(lake: Path, name: str = "pushes") -> list[tuple[int, int]]:
    rows = table(lake, name)
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


@pytest.mark.slow
def test_the_captured_pushes_through_a_real_topic_give_the_table_of_the_files(
    cluster: LocalCluster, ingest: Ingest, tmp_path: Path
) -> None:
    few = captured().slice(0, 350)
    cluster.create_topic("captured", partitions=4)
    produce(cluster, "captured", few.to_pylist())
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", "captured", "--max-records-per-batch", "100"]
    ingest(None, tmp_path / "kafka", *flags)
    write(tmp_path / "in", "captured.parquet", few)
    ingest(tmp_path / "in", tmp_path / "files")
    assert DeltaTable(str(tmp_path / "kafka" / "pushes")).version() >= 4  # 100 a batch
    for name in TABLES:
        assert _rows(tmp_path / "kafka", name) == _rows(tmp_path / "files", name), name
    assert table(tmp_path / "kafka", "pushes").num_rows == 350
    assert table(tmp_path / "kafka", "metric_points").num_rows > 10_000


@pytest.mark.slow
def test_starts_where_configured_and_goes_on_where_it_ended(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    records = good_pushes(0, 6)
    for number, item in enumerate(records):
        item["timestamp"] = item["timestamp"].replace(minute=number)
    produce(cluster, topic, records)
    from_minute_4 = int(records[4]["timestamp"].timestamp() * 1000)
    ingest(None, tmp_path / "time", *flags, "--starting-offsets", str(from_minute_4))
    assert offsets(tmp_path / "time") == [(0, 4), (0, 5)]
    ingest(None, tmp_path / "latest", *flags, "--starting-offsets", "latest")
    assert offsets(tmp_path / "latest") == []
    ingest(None, tmp_path / "earliest", *flags)
    produce(cluster, topic, good_pushes(6, 2))
    for lake in ("time", "latest", "earliest"):
        ingest(None, tmp_path / lake, *flags)
    assert offsets(tmp_path / "time") == [(0, offset) for offset in range(4, 8)]
    assert offsets(tmp_path / "latest") == [(0, 6), (0, 7)]
    assert offsets(tmp_path / "earliest") == [(0, offset) for offset in range(8)]
    # Another checkpoint reads what the first left out, and nothing twice.
    ingest(None, tmp_path / "time", *flags, "--checkpoints", str(tmp_path / "other"))
    assert offsets(tmp_path / "time") == [(0, offset) for offset in range(8)]


@pytest.mark.slow
def test_partitions_added_are_read_from_their_beginning(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    produce(cluster, topic, good_pushes(0, 2))
    ingest(None, tmp_path / "lake", *flags)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(PATIENCE_S)
    produce(cluster, topic, good_pushes(0, 3, partition=3))
    ingest(None, tmp_path / "lake", *flags)
    assert offsets(tmp_path / "lake") == [(0, 0), (0, 1), (3, 0), (3, 1), (3, 2)]
    assert offsets(tmp_path / "lake", "push_outcomes") == offsets(tmp_path / "lake")


# Fewer and more than were read of the topic before.
@pytest.mark.slow
@pytest.mark.parametrize("records", [3, 8])
def test_a_topic_deleted_and_made_again_is_refused_and_then_read_on_request(
    cluster: LocalCluster, ingest: Ingest, tmp_path: Path, records: int
) -> None:
    """With more records Kafka has the next offset, and going on would skip those before it without an error."""
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", "again"]
    cluster.create_topic("again", partitions=1)
    produce(cluster, "again", good_pushes(0, 5))
    ingest(None, tmp_path / "lake", *flags)
    cluster.delete_topic("again")
    cluster.create_topic("again", partitions=1)
    later = good_pushes(0, records)
    for item in later:
        item["timestamp"] = item["timestamp"].replace(hour=13)
        item["value"] = captured()["value"][1].as_py()  # the same bytes at the same offset are the same push (D1)
    produce(cluster, "again", later)
    with pytest.raises(TopicReplacedError, match="topic again isn't the one that this lake has read"):
        ingest(None, tmp_path / "lake", *flags)
    assert offsets(tmp_path / "lake") == [(0, offset) for offset in range(5)]
    ingest(None, tmp_path / "lake", *flags, "--new-topic")
    # The same offsets are other records than before.
    both = sorted([(0, offset) for offset in range(5)] + [(0, offset) for offset in range(records)])
    assert offsets(tmp_path / "lake") == offsets(tmp_path / "lake", "push_outcomes") == both
    produce(cluster, "again", good_pushes(records, 1))
    ingest(None, tmp_path / "lake", *flags)
    assert offsets(tmp_path / "lake") == sorted([*both, (0, records)])
    cluster.delete_topic("again")


@pytest.mark.slow
def test_records_that_expired_before_they_were_read_are_rows(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    produce(cluster, topic, good_pushes(0, 5))
    ingest(None, tmp_path / "lake", *flags)
    produce(cluster, topic, good_pushes(5, 4))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (expired,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert expired.result(PATIENCE_S).low_watermark == 7
    with pytest.raises(StreamFailedError, match="--no-fail-on-data-loss"):
        ingest(None, tmp_path / "lake", *flags)
    ingest(None, tmp_path / "lake", *flags, "--no-fail-on-data-loss")
    assert offsets(tmp_path / "lake") == [(0, offset) for offset in (0, 1, 2, 3, 4, 7, 8)]
    (lost,) = table(tmp_path / "lake", "lost_records").to_pylist()
    assert (lost["topic"], lost["partition"], lost["first_offset"], lost["last_offset"]) == (topic, 0, 5, 6)
    assert (lost["records"], lost["reason"], lost["source"]) == (2, "expired", "test")
    assert lost["cluster_id"] == admin.list_topics(topic, 10).cluster_id


def test_garbage_on_the_topic_is_quarantined_beside_good_pushes(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    records = good_pushes(0, 2)
    garbage = record(0, b"\x00garbage\xff" * 50) | {"partition": 0}
    nobody = record(0, b"{}", key=None) | {"partition": 0, "headers": []}
    produce(cluster, topic, [records[0], garbage, nobody, records[1]])
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    ingest(None, tmp_path / "lake", *flags)
    reasons = {row["offset"]: row["reason"] for row in table(tmp_path / "lake", "quarantine").to_pylist()}
    assert reasons == {1: "INVALID_RECORD", 2: "INVALID_REQUEST"}
    points = table(tmp_path / "lake", "metric_points")
    assert sorted(set(points["offset"].to_pylist())) == [0, 3]
    assert points.num_rows == 30
    assert set(points["client_instance_id"].to_pylist()) == {GOOD_ID}


def test_a_cluster_that_cannot_be_read_is_one_clear_line(cluster: LocalCluster, ingest: Ingest, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with pytest.raises(KafkaUnavailableError, match=r"no Kafka broker answers at 127\.0\.0\.1:1: connection refused"):
        ingest(None, lake, "--bootstrap-servers", "127.0.0.1:1")
    with pytest.raises(SourceError, match=r"topic nowhere does not exist .* create it"):
        ingest(None, lake, "--bootstrap-servers", cluster.bootstrap_servers, "--topic", "nowhere")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="wrong-secret";'
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
    }
    flags = [word for key, value in options.items() for word in ("--kafka-options", f"{key}={value}")]
    with pytest.raises(KafkaUnavailableError, match=r"refuse access .SaslAuthenticationException.") as refused:
        ingest(None, lake, "--bootstrap-servers", cluster.sasl_bootstrap_servers, *flags)
    assert "wrong-secret" not in str(refused.value)
    assert not lake.exists()


def test_nothing_landed_says_what_to_look_at(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a subscription asks for nothing: its clients' empty pushes never reach the plugin."""
    flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    ingest(None, tmp_path / "lake", *flags)
    (said,) = [line for line in caplog.messages if "no push has landed yet" in line]
    assert "subscription with a non-empty `metrics` list" in said
    produce(cluster, topic, good_pushes(0, 1))
    caplog.clear()
    ingest(None, tmp_path / "lake", *flags)
    assert "no push has landed" not in caplog.text


def test_sasl_options_reach_the_consumer(cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path) -> None:
    produce(cluster, topic, good_pushes(0, 1))
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";'
    conf = tmp_path / "ingest.yml"
    conf.write_text(
        f"kafka_options:\n  kafka.security.protocol: SASL_PLAINTEXT\n  kafka.sasl.mechanism: PLAIN\n"
        f"  kafka.sasl.jaas.config: '{jaas}'\n",
        encoding="utf-8",
    )
    servers = cluster.sasl_bootstrap_servers
    ingest(None, tmp_path / "lake", "--conf", str(conf), "--bootstrap-servers", servers, "--topic", topic)
    assert offsets(tmp_path / "lake") == [(0, 0)]
    leaking = [
        file for file in (tmp_path / "lake").rglob("*") if file.is_file() and b"alice-secret" in file.read_bytes()
    ]
    assert leaking == []


def _rows(lake: Path, name: str) -> list[str]:
    rows = table(lake, name).drop_columns(["topic"]).to_pylist()
    return sorted(str(sorted(row.items())) for row in rows)


@pytest.mark.slow
def test_a_long_trigger_waits_for_few_pushes_and_not_for_many(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    flags = ["--source", "kafka", "--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    flags += ["--lake", str(tmp_path / "lake"), "--trigger-seconds", "20", "--max-records-per-batch", "10"]

    def judged() -> int:
        there = (tmp_path / "lake" / "push_outcomes" / "_delta_log").is_dir()
        return len(offsets(tmp_path / "lake", "push_outcomes")) if there else 0

    with live_job(spark, *flags):
        produce(cluster, topic, good_pushes(0, 1))
        wait_for(judged, lambda number: number == 1)
        with idle_clock() as clock:
            produce(cluster, topic, good_pushes(1, 40))
            wait_for(judged, lambda number: number == 41)
        assert clock.seconds < 40  # four batches: with a wait before each of them it would be 60 to 80
        began = time.monotonic()
        produce(cluster, topic, good_pushes(41, 3))
        wait_for(judged, lambda number: number == 44)
        assert time.monotonic() - began > 5
    assert offsets(tmp_path / "lake") == [(0, offset) for offset in range(44)]


@pytest.mark.slow
def test_partitions_added_while_a_batch_waits_do_not_stop_the_job(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Spark 4.0's Kafka source fails when it sees a new partition and delays the batch."""
    flags = ["--source", "kafka", "--bootstrap-servers", cluster.bootstrap_servers, "--topic", topic]
    flags += ["--lake", str(tmp_path / "lake"), "--trigger-seconds", "20"]

    def judged() -> list[tuple[int, int]]:
        there = (tmp_path / "lake" / "push_outcomes" / "_delta_log").is_dir()
        return offsets(tmp_path / "lake", "push_outcomes") if there else []

    with live_job(spark, *flags):
        produce(cluster, topic, good_pushes(0, 1))
        wait_for(judged, lambda rows: rows == [(0, 0)])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(PATIENCE_S)
        time.sleep(6)  # several looks at the topic
        produce(cluster, topic, good_pushes(0, 2, partition=3))
        wait_for(judged, lambda rows: rows == [(0, 0), (3, 0), (3, 1)])
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_S)
        produce(cluster, topic, good_pushes(0, 1, partition=5))
        wait_for(judged, lambda rows: rows == [(0, 0), (3, 0), (3, 1), (5, 0)])
