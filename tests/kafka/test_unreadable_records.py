"""A landing record whose timestamp Spark's Kafka source can't convert is stored as others with a useless timestamp."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import GOOD_ID

from .test_ingest_topics import AT_MS, flags_of, push

YEAR_57000, NANOSECONDS, LONG_AGO = AT_MS * 1000, AT_MS * 1_000_000, -(2**62)
NO_BOUND = {"message.timestamp.after.max.ms": 2**63 - 1, "message.timestamp.before.max.ms": 2**63 - 1}
RECEIVED = ("received_at_ms", str(AT_MS + 5).encode())


def land(cluster: LocalCluster, topic: str, partition: int, *times: int) -> None:
    """Land records of every shape, which differ only by their times."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.metrics.push": False})
    key, value = GOOD_ID.encode(), push()
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]] = [
        (value, key, [("client_id", b"good")]),
        (value, key, [RECEIVED, ("client_id", "größe".encode()), ("x", None), ("client_id", b"\xff last wins")]),
        (value, key, None),
        (None, key, []),  # a tombstone
        (b"", None, [RECEIVED]),
    ]
    for (content, name, headers), time in zip(contents, times, strict=True):
        producer.produce(topic, content, name, partition, timestamp=time, headers=headers)
    assert producer.flush(60) == 0


def test_a_timestamp_that_overflows_stops_nothing(
    cluster: LocalCluster, ingest: Ingest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, lake = "unreadable", tmp_path / "lake"
    cluster.create_topic(topic, 2, NO_BOUND)
    cluster.create_topic(f"{topic}.status", 1, NO_BOUND)
    land(cluster, topic, 0, AT_MS, YEAR_57000, AT_MS + 1, YEAR_57000, YEAR_57000)
    ingest(None, lake, *flags_of(cluster, topic))
    land(cluster, topic, 1, AT_MS, NANOSECONDS, AT_MS + 1, LONG_AGO, NANOSECONDS)
    with caplog.at_level(logging.WARNING, "telemetry-lake"):
        ingest(None, lake, *flags_of(cluster, topic))
    assert f"{topic}/1: offset 1" in caplog.text
    assert str(NANOSECONDS) in caplog.text
    for name in ("pushes", "quarantine"):
        rows = table(lake, name).sort_by("offset").to_pylist()
        safe, unsafe = ([row | {"partition": 0} for row in rows if row["partition"] == number] for number in (0, 1))
        assert safe == unsafe
        assert safe
    stored = sorted((row["partition"], row["offset"]) for row in table(lake, "pushes").to_pylist())
    assert stored == [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert sorted(each.name for each in (lake / "_checkpoints" / "landing" / "commits").glob("[0-9]")) == ["0", "1"]
    assert not list(lake.rglob("*unreadable*"))
