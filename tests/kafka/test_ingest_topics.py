"""One query reads pushes, statuses and quota samples: topics that are missing or appear later, and older lakes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.support.running import StreamFailedError
from kafka_telemetry_lake.pipelines.ingest import sources
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import GOOD_ID, LANDED_AT, captured
from tests.support.live_job import live_job
from tests.support.patience import PATIENCE_S

from .receiver_brokers import wait_for

AT_MS = round(LANDED_AT.timestamp() * 1000)


def flags_of(cluster: LocalCluster, topic: str) -> list[str]:
    names = ["--topic", topic, "--status-topic", f"{topic}.status", "--quotas-topic", f"{topic}.quotas"]
    return ["--bootstrap-servers", cluster.bootstrap_servers, *names]


def land(cluster: LocalCluster, topic: str, *values: bytes | dict[str, Any], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.metrics.push": False})
    for value in values:
        content = json.dumps(value).encode() if isinstance(value, dict) else value
        producer.produce(topic, content, GOOD_ID.encode(), partition, timestamp=AT_MS)
    assert producer.flush(60) == 0


def push() -> bytes:
    return bytes(captured()["value"][0].as_py())


def status(received: int) -> dict[str, Any]:
    return {"version": 1, "broker_id": 1, "received": received}


def sample(second: int, **fields: Any) -> dict[str, Any]:
    at = round((LANDED_AT + timedelta(seconds=second)).timestamp() * 1000)
    known = {"version": 1, "broker_id": 1, "time_ms": at, "quota_type": "fetch", "observed_rate": 50.0}
    return known | {"client_id": "app", "quota_limit": 100.0} | fields


def places(lake: Path, name: str, topic: str | None = None) -> list[tuple[int, int]]:
    if not (lake / name / "_delta_log").is_dir():
        return []
    rows = [row for row in table(lake, name).to_pylist() if topic in (None, row["topic"])]
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.slow
def test_missing_topics_are_read_from_their_beginning_once_they_exist(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    lake, flags = tmp_path / "lake", flags_of(cluster, topic)
    land(cluster, topic, push())
    ingest(None, lake, *flags)
    assert (places(lake, "pushes"), places(lake, "receiver_health")) == ([(0, 0)], [])
    cluster.create_topic(f"{topic}.status", partitions=2)
    cluster.create_topic(f"{topic}-status", partitions=1)  # not the topic: a dot is no pattern
    land(cluster, f"{topic}-status", status(9))
    land(cluster, f"{topic}.status", status(1), b"no JSON", partition=1)
    ingest(None, lake, *flags)  # statuses, and no push
    assert places(lake, "receiver_health") == [(1, 0), (1, 1)]
    assert not (lake / "quota_samples").exists()
    cluster.create_topic(f"{topic}.quotas", partitions=1)
    land(cluster, f"{topic}.quotas", sample(5), b"no JSON", sample(65))
    land(cluster, f"{topic}.status", status(2))
    land(cluster, topic, push())
    ingest(None, lake, *flags)
    expected = {
        "pushes": [(0, 0), (0, 1)],
        "receiver_health": [(0, 0), (1, 0), (1, 1)],
        "quota_samples": [(0, 0), (0, 2)],
        "quarantine": [(0, 1)],
    }
    assert {name: places(lake, name) for name in expected} == expected
    assert {row["received"] for row in table(lake, "receiver_health").to_pylist()} == {1, None, 2}
    assert table(lake, "quota_usage").num_rows == 4
    land(cluster, f"{topic}.quotas", sample(125))
    ingest(None, lake, *flags, "--checkpoints", str(tmp_path / "new"))
    assert {name: places(lake, name) for name in expected} == expected | {"quota_samples": [(0, 0), (0, 2), (0, 3)]}
    assert table(lake, "quota_usage").num_rows == 6


@pytest.mark.slow
def test_a_batch_that_is_cut_off_before_a_commit_stores_each_offset_once(
    cluster: LocalCluster, ingest: Ingest, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, flags = tmp_path / "lake", flags_of(cluster, topic)
    cluster.create_topic(f"{topic}.status", partitions=1)
    cluster.create_topic(f"{topic}.quotas", partitions=1)
    for name in ("receiver_health", "quota_samples", "quarantine", "pushes"):
        land(cluster, topic, push())
        land(cluster, f"{topic}.status", status(1))
        land(cluster, f"{topic}.quotas", sample(0), b"no JSON")
        with monkeypatch.context() as broken:
            broken.setattr(TableLog, "commit", cut_off_before(name))
            with pytest.raises(StreamFailedError, match="cut off"):
                ingest(None, lake, *flags)  # first repeats what was cut off before
    ingest(None, lake, *flags)
    assert places(lake, "pushes") == places(lake, "push_outcomes") == [(0, offset) for offset in range(4)]
    assert places(lake, "receiver_health") == [(0, offset) for offset in range(4)]
    assert places(lake, "quota_samples") == [(0, 2 * offset) for offset in range(4)]
    assert places(lake, "quarantine") == [(0, 2 * offset + 1) for offset in range(4)]


def cut_off_before(name: str) -> Callable[..., bool]:
    """`TableLog.commit` of a job that ends before it commits to this table."""
    commit = TableLog.commit

    def cut_off(log: TableLog, *arguments: Any, **options: Any) -> bool:
        if log.table.name == name:
            raise OSError("cut off")
        return commit(log, *arguments, **options)

    return cut_off


@pytest.mark.slow
def test_a_live_job_reads_topics_that_appear_and_grow_and_lets_statuses_wait(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_wait_s = 8.0
    monkeypatch.setattr(sources, "OTHERS_WAIT_S", others_wait_s)
    lake = tmp_path / "lake"
    flags = ["--source", "kafka", *flags_of(cluster, topic), "--lake", str(lake), "--trigger-seconds", "1"]

    def seen(name: str, expected: list[tuple[int, int]]) -> None:
        wait_for(lambda: places(lake, name), lambda found: found == expected)

    with live_job(spark, *flags):
        land(cluster, topic, push())
        seen("pushes", [(0, 0)])
        cluster.create_topic(f"{topic}.status", partitions=1)
        time.sleep(2)  # several looks at the topics
        land(cluster, f"{topic}.status", status(0))
        seen("receiver_health", [(0, 0)])
        versions = DeltaTable(str(lake / "receiver_health")).version(), DeltaTable(str(lake / "pushes")).version()
        began = time.monotonic()
        for number in range(1, 4):  # each would be a batch of its own
            land(cluster, f"{topic}.status", status(number))
            land(cluster, topic, push())
            seen("pushes", [(0, offset) for offset in range(number + 1)])
        seen("receiver_health", [(0, offset) for offset in range(4)])
        assert DeltaTable(str(lake / "pushes")).version() >= versions[1] + 3
        most = max(2, int((time.monotonic() - began) / others_wait_s))  # batches in the time that this took
        assert DeltaTable(str(lake / "receiver_health")).version() <= versions[0] + most
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(f"{topic}.status", 2)])[f"{topic}.status"].result(PATIENCE_S)
        time.sleep(2)
        land(cluster, f"{topic}.status", status(9), partition=1)
        land(cluster, topic, push())
        seen("receiver_health", [*((0, offset) for offset in range(4)), (1, 0)])
        seen("pushes", [(0, offset) for offset in range(5)])
