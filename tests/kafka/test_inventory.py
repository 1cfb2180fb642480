"""The views of the inventory against what real clients and brokers say themselves."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.companions import syncing
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.groups import members
from kafka_telemetry_lake.pipelines.groups.members import ConsumerGroups
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.patience import wait_until

from .landing import Landing

RECORDS = 500
POLL_S = 1
POLLS = 25


def ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(str(lake), sql).read_all().to_pylist()
    return rows


def written_at(cluster: LocalCluster, topic: str) -> dict[tuple[int | None, int | None], float]:
    """When each record of a topic was written, s since 1970, by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "truth", "enable.metrics.push": False}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    times: dict[tuple[int | None, int | None], float] = {}
    while messages := consumer.consume(1000, 5):
        times |= {(each.partition(), each.offset()): each.timestamp()[1] / 1000 for each in messages}
    consumer.close()
    return times


@pytest.mark.slow
def test_the_lag_in_time_is_that_of_records_whose_times_are_known(
    cluster: LocalCluster, clients: LocalClients, spark: SparkSession, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One group keeps up, one is stopped in between. The lag may be wrong by the time between two polls.

    And by the time that the brokers took to answer, as a sample's time is that of the last answer.
    """
    answers, read = dict[datetime, float](), members._read

    def timed(*asked: Any) -> ConsumerGroups:
        began = time.monotonic()
        groups = read(*asked)
        answers[groups.read_at] = time.monotonic() - began
        return groups

    monkeypatch.setattr(members, "_read", timed)
    producer = clients.producer("java", topic, "lag-producer", rate=50, properties={"enable.metrics.push": "false"})
    groups = {
        name: clients.consumer(
            "librdkafka", topic, f"lag-{name}", group=f"lag-{name}",
            properties={"auto.commit.interval.ms": 200, "enable.metrics.push": False},
        )
        for name in ("steady", "stopped")
    }  # fmt: skip
    flags = ["--source", "kafka", "--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers]
    PUSHES.create(str(tmp_path))  # then it is a lake
    own = "WHERE group_id LIKE 'lag-%'"

    def polls() -> int:
        if not (tmp_path / "group_lag_samples").exists():
            return 0
        rows = table(tmp_path, "group_lag_samples").to_pylist()
        return len({row["sampled_at"] for row in rows if row["group_id"] == "lag-stopped"})

    with supervised("", [syncing(parse(IngestSettings, [*flags, "--sync-seconds", str(POLL_S)], "test"), spark)]):
        wait_until(lambda: polls() >= 5, every_s=0.2)
        groups["stopped"].pause()
        wait_until(lambda: polls() >= POLLS, every_s=0.2)
    groups["stopped"].resume()
    producer.close()
    written = written_at(cluster, topic)
    rows = ask(tmp_path, f"SELECT * FROM group_lag {own}")
    measured = [row for row in rows if row["status"] == "measured"]
    assert len([row for row in measured if row["group_id"] == "lag-stopped"]) >= POLLS
    polled = sorted(answers)
    slowest = max(answers[each] for each in polled[1:])  # the first one warms up
    for row in measured:
        truth = row["sampled_at"].timestamp() - written[row["partition"], row["committed_offset"]]
        assert abs(row["time_lag_s"] - truth) <= row["time_lag_error_s"] + slowest, row
        assert row["lag_records"] == row["end_offset"] - row["committed_offset"]
    longest = max(row["time_lag_s"] for row in measured)
    assert longest > 10
    steady = [row["time_lag_s"] for row in rows if row["group_id"] == "lag-steady" and row["time_lag_s"] is not None]
    pause = median((after - before).total_seconds() for before, after in pairwise(polled))  # `POLL_S` and a poll
    assert median(steady) < 2 * pause
    (last, *_) = ask(tmp_path, f"SELECT * FROM group_lag {own} AND latest AND group_id = 'lag-stopped'")
    assert last["time_lag_growth"] == pytest.approx(1, abs=0.5)  # nothing is read: a second a second
    assert last["retention_left_s"] == pytest.approx(7 * 86400 - last["time_lag_s"])


@pytest.mark.slow
def test_what_clients_count_themselves(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, ingest: Ingest, tmp_path: Path
) -> None:
    """A topic with a dot, which a Java consumer also pushes with an underscore."""
    topic = "inventory.orders"
    cluster.create_topic(topic, partitions=2)
    flags = ["--bootstrap-servers", cluster.bootstrap_servers]
    fleet = [
        clients.producer("java", topic, "telemetry-inv-java", records=RECORDS, properties={"compression.type": "zstd"}),
        clients.producer("librdkafka", topic, "telemetry-inv-rd", records=RECORDS),
        clients.consumer("java", topic, "telemetry-inv-reader", group="inv", records=2 * RECORDS),
        clients.consumer(
            "librdkafka", topic, "inv-mute", group="inv-mute", records=2 * RECORDS,
            properties={"enable.metrics.push": False},
        ),
    ]  # fmt: skip
    for each in fleet:
        each.wait_for("done")
    for each in fleet[:3]:
        landing.wait_for_more(each.client_id, 3)
    assert run_command("sync", ["--lake", str(tmp_path), *flags]) == 0
    own = {each.client_id: each.close() for each in fleet}
    ingest(None, tmp_path, *flags)
    Lifecycle(str(tmp_path)).catch_up()

    sums = {
        (name, each["metric"], each["attributes"].get("topic")): each["value"]
        for name in ("telemetry-inv-java", "telemetry-inv-reader")
        for each in own[name]["sums"]
    }
    sql = (
        "SELECT role, client_id, known_from, group_id, sum(records) AS records, sum(bytes) AS bytes FROM topic_clients"
    )
    sql += f" WHERE topic = '{topic}' GROUP BY ALL"
    found = {row["client_id"]: row for row in ask(tmp_path, sql)}
    assert found.keys() == {"telemetry-inv-java", "telemetry-inv-reader", "inv-mute"}
    java, reader, mute = (found[name] for name in ("telemetry-inv-java", "telemetry-inv-reader", "inv-mute"))
    bytes_sent = sums["telemetry-inv-java", "org.apache.kafka.producer.topic.byte.total", topic]
    assert (java["role"], java["records"], java["bytes"]) == ("producer", RECORDS, bytes_sent)
    bytes_read = sums["telemetry-inv-reader", "org.apache.kafka.consumer.fetch.manager.bytes.consumed.total", topic]
    assert (reader["role"], reader["group_id"], reader["records"], reader["bytes"]) == (
        "consumer", "inv", 2 * RECORDS, bytes_read,
    )  # fmt: skip
    assert (mute["known_from"], mute["group_id"], mute["records"]) == ("group", "inv-mute", None)
    sql = "SELECT DISTINCT role FROM topic_clients WHERE client_id = 'telemetry-inv-rd' AND topic IS NULL"
    assert ask(tmp_path, sql) == [{"role": "producer"}]
    flows = ask(tmp_path, f"SELECT writer, reader, records_read FROM topic_flows WHERE topic = '{topic}'")
    assert {tuple(row.values()) for row in flows} == {
        ("telemetry-inv-java", "telemetry-inv-reader", 2 * RECORDS), ("telemetry-inv-java", "inv-mute", None),
    }  # fmt: skip

    sql = (
        "SELECT client_id, sum(records_sent) AS sent, sum(records_consumed) AS read, any_value(not_in_library) AS lacks"
    )
    sql += " FROM client_measures WHERE client_id LIKE 'telemetry-inv-%' GROUP BY 1"
    measures = {row["client_id"]: row for row in ask(tmp_path, sql)}
    assert (measures["telemetry-inv-java"]["sent"], measures["telemetry-inv-java"]["lacks"]) == (RECORDS, "")
    assert measures["telemetry-inv-reader"]["read"] == 2 * RECORDS
    assert measures["telemetry-inv-rd"]["sent"] is None
    assert measures["telemetry-inv-rd"]["lacks"].startswith("records_sent, bytes_sent")
    sql = "SELECT counted_again, instances FROM metric_catalog"
    sql += " WHERE metric = 'org.apache.kafka.producer.record.send.total'"
    (send_total,) = ask(tmp_path, sql)
    assert send_total["counted_again"] == "org.apache.kafka.producer.topic.record.send.total (topic)"
    assert send_total["instances"] >= 1, "clients of other tests land in the same topic"
