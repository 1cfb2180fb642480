"""A live job beside a real broker: its topic of events says that a client has ended, at once and as the table does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.companions import events_address
from kafka_telemetry_lake.jobs.ingest import make_lake
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.pipelines.events.feed import begin
from kafka_telemetry_lake.pipelines.lifecycle import live_source
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.udfs.lifecycle.waves import GROUPED
from tests.support.lake_tables import table
from tests.support.live_job import live_job
from tests.support.patience import wait_until

from .landing import Landing

# A step is taken, and its events are sent, every second here. A minute is what a machine takes that gives each program
# a twentieth of its time.
TRIGGER_S, LONGEST_S = 1.0, 60.0
FLAGS = ["--source", "kafka", "--trigger-seconds", str(TRIGGER_S), "--events-topic", "events"]


class Events:
    """The topic of events, from its beginning: record time (s), key and value."""

    def __init__(self, cluster: LocalCluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "e", "enable.metrics.push": False}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition("events", 0, 0)])
        self.found: list[tuple[float, str, dict[str, Any]]] = []

    def of(self, client_id: str) -> list[tuple[float, str, dict[str, Any]]]:
        for message in self._consumer.consume(1000, 0.2):
            key, value = message.key(), message.value()
            assert isinstance(value, bytes)
            if key is None:  # of the whole cluster: the fleet of another test may have left it at once
                assert json.loads(value)["event"] in GROUPED
            else:
                assert isinstance(key, bytes)
                self.found.append((message.timestamp()[1] / 1000, key.decode(), json.loads(value)))
        return [each for each in self.found if each[2]["client_id"] == client_id]


@pytest.mark.slow
def test_a_follower_hears_of_an_end_within_a_step_of_its_row(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, spark: SparkSession, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(live_source, "LEAST_PAUSE_S", TRIGGER_S)
    flags = [*FLAGS, "--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers]
    settings = parse(IngestSettings, flags, "test")
    lake = make_lake(settings)
    address = events_address(settings)
    with pytest.raises(KafkaUnavailableError, match="topic events of --events-topic does not exist"):
        begin(spark, lake.path, *address)
    cluster.create_topic("events")
    consumer = clients.consumer("java", topic, "telemetry-feed", group="feed")
    landing.wait_for_more("telemetry-feed", 2)
    with live_job(spark, *flags):
        events = Events(cluster)
        wait_until(lambda: len(events.of("telemetry-feed")) == 1)
        consumer.close()
        wait_until(lambda: len(events.of("telemetry-feed")) == 2)
    (_, first_key, first), (sent_at, key, last) = events.of("telemetry-feed")
    assert [first["event"], last["event"]] == ["first_seen", "terminated"]
    assert key == first_key == consumer.client_instance_id
    rows = [row for row in table(tmp_path, "client_events").to_pylist() if row["event"] == "terminated"]
    (row,) = [row for row in rows if row["client_id"] == "telemetry-feed"]
    assert (last["at"], last["offset"]) == (f"{row['at']:%Y-%m-%dT%H:%M:%S.%f}Z", row["offset"])
    files = (tmp_path / "client_events").glob("landed_date=*/*")
    (written_at,) = [file.stat().st_mtime for file in files if "terminated" in events_of(file, "telemetry-feed")]
    landed_at = row["at"].timestamp()
    print(f"sent {sent_at - written_at:.1f} s after its row was written, {sent_at - landed_at:.1f} s after it landed")
    assert sent_at - written_at < LONGEST_S


def events_of(file: Path, client_id: str) -> list[str]:
    rows = pq.ParquetFile(file).read(["client_id", "event"]).to_pylist()
    return [row["event"] for row in rows if row["client_id"] == client_id]
