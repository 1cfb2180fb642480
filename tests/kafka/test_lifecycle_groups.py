"""Consumer groups of a real broker, both protocols, as `telemetry-lake sync` keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.companions import syncing
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S, wait_until

from .landing import Landing

RECORDS = 100
NO_TELEMETRY: dict[str, object] = {"enable.metrics.push": False}
# Of a producer: otherwise librdkafka may send all records, which have no keys, to one partition.
SPREAD = NO_TELEMETRY | {"sticky.partitioning.linger.ms": 0}
NEW_PROTOCOL: dict[str, object] = {"group.protocol": "consumer"}


def reset(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    """Set the committed offset of partition 0 of a group without members."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
    (future,) = admin.alter_consumer_group_offsets(wanted).values()
    future.result(PATIENCE_S)


def committed(lake: Path, group: str) -> dict[int, int]:
    rows = table(lake, "group_offsets").to_pylist() if (lake / "group_offsets").exists() else []
    return {row["partition"]: row["committed_offset"] for row in rows if row["group_id"] == group}


def rewinds(lake: Path) -> list[dict[str, str]]:
    rows = table(lake, "client_events").to_pylist() if (lake / "client_events").exists() else []
    return [dict(row["detail"]) for row in rows if row["event"] == "offset_rewound"]


@pytest.mark.slow
def test_members_and_offsets_of_groups_that_push_nothing(
    cluster: LocalCluster, clients: LocalClients, topic: str, tmp_path: Path
) -> None:
    flags = ["--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers]
    clients.producer("librdkafka", topic, "groups-producer", records=RECORDS, properties=SPREAD).wait_for("done")
    members = [
        clients.consumer("librdkafka", topic, f"{name}-member", group=name, records=RECORDS, properties=settings)
        for name, settings in (("classic", NO_TELEMETRY), ("new", NO_TELEMETRY | NEW_PROTOCOL))
    ]
    for each in members:
        each.wait_for("done")
    assert run_command("sync", flags) == 0
    states = {row["group_id"]: row for row in table(tmp_path, "group_states").to_pylist()}
    assert {name: (states[name]["group_type"], states[name]["state"]) for name in ("classic", "new")} == {
        "classic": ("classic", "Stable"), "new": ("consumer", "Stable"),
    }  # fmt: skip
    port = cluster.bootstrap_servers.rpartition(":")[2]
    assert (states["new"]["coordinator_id"], states["new"]["coordinator"]) == (1, f"127.0.0.1:{port}")
    PUSHES.create(str(tmp_path))  # then it is a lake
    groups = run_query(str(tmp_path), "SELECT * FROM consumer_groups").read_all().to_pylist()
    own = {row["group_id"]: row for row in groups if row["group_id"] in states.keys() & {"classic", "new"}}
    assert {name: (row["client_id"], row["assignment"], row["pushes"]) for name, row in own.items()} == {
        name: (f"{name}-member", [f"{topic}-0", f"{topic}-1"], 0) for name in ("classic", "new")
    }
    hosts = {row["host"] for row in table(tmp_path, "group_members").to_pylist()}
    assert hosts == {"127.0.0.1"}

    for each in members:
        each.close()  # commits
    assert run_command("sync", flags) == 0
    ended = [row for row in table(tmp_path, "group_members").to_pylist() if row["group_id"] in ("classic", "new")]
    assert [row["valid_to"] is None for row in ended] == [False, False]
    before = {name: committed(tmp_path, name) for name in ("classic", "new")}
    assert {name: sum(offsets.values()) for name, offsets in before.items()} == {"classic": RECORDS, "new": RECORDS}
    sql = "SELECT group_id, partition, status, lag_records, retention_ms FROM group_lag"
    sql += f" WHERE latest AND topic = '{topic}'"
    assert {tuple(row.values()) for row in run_query(str(tmp_path), sql).read_all().to_pylist()} == {
        (name, partition, "caught_up", 0, 604_800_000) for name in before for partition in (0, 1)
    }
    for name in before:
        reset(cluster, name, topic, 3)
    assert run_command("sync", [*flags, "--check"]) == 0
    assert rewinds(tmp_path) == []
    assert run_command("sync", flags) == 0
    assert run_command("sync", flags) == 0
    assert sorted(rewinds(tmp_path), key=lambda row: row["group_id"]) == [
        {"group_id": name, "topic": topic, "partition": "0", "from": str(before[name][0]), "to": "3"}
        for name in ("classic", "new")
    ]
    rows = run_query(str(tmp_path), f"{sql} AND partition = 0").read_all().to_pylist()
    assert sorted((row["group_id"], row["lag_records"]) for row in rows) == [
        (name, before[name][0] - 3) for name in ("classic", "new")
    ]


def test_aliases_of_a_topic(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.create_topic("aliases", partitions=2, config={"cleanup.policy": "compact"})
    flags = ["--lake", str(tmp_path), "--bootstrap-servers", cluster.bootstrap_servers, "--no-consumer-groups"]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.metrics.push": False})

    def synced_aliases(**aliases: str | None) -> set[tuple[str, str]]:
        for client_id, application in aliases.items():
            value = None if application is None else json.dumps({"client_id": client_id, "application": application})
            producer.produce("aliases", value, client_id)
        assert producer.flush(30) == 0
        assert run_command("sync", [*flags, "--aliases-topic", "aliases"]) == 0
        rows = table(tmp_path, "client_aliases").to_pylist()
        return {(row["client_id"], row["application"]) for row in rows if row["valid_to"] is None}

    assert synced_aliases(**{f"c{i}": "shop" for i in range(20)}) == {(f"c{i}", "shop") for i in range(20)}
    assert synced_aliases(c0="bank", **{f"c{i}": None for i in range(2, 20)}) == {("c0", "bank"), ("c1", "shop")}
    assert run_command("sync", [*flags, "--aliases-topic", "nowhere"]) == 2
    assert not (tmp_path / "group_states").exists()


@pytest.mark.slow
def test_beside_ingest_a_group_of_members_that_push_and_one_that_does_not(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, ingest: Ingest, spark: SparkSession, topic: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    clients.producer("librdkafka", topic, "beside-producer", records=RECORDS, properties=SPREAD).wait_for("done")
    group: dict[str, Any] = {"group": "beside", "properties": NEW_PROTOCOL}
    running = [
        clients.consumer("java", topic, "telemetry-beside-java", **group),
        clients.consumer("librdkafka", topic, "telemetry-beside-rd", **group),
        clients.consumer("librdkafka", topic, "beside-mute", group="beside", properties=NO_TELEMETRY | NEW_PROTOCOL),
    ]
    for each in running[:2]:
        landing.wait_for_more(each.client_id, 3)
    flags = ["--bootstrap-servers", cluster.bootstrap_servers]
    argv = ["--source", "kafka", "--lake", str(tmp_path), *flags, "--sync-seconds", "1"]
    with supervised("", [syncing(parse(IngestSettings, argv, "test"), spark)]):
        ingest(None, tmp_path, *flags)
        wait_until((tmp_path / "group_members").exists)
        sql = "SELECT * FROM consumer_group_members WHERE group_id = 'beside'"
        members = run_query(str(tmp_path), sql).read_all().to_pylist()
        found = {row["client_id"]: row["client_instance_id"] for row in members}
        assert found == {
            "telemetry-beside-java": running[0].client_instance_id,
            "telemetry-beside-rd": landing.pushes("telemetry-beside-rd")[0].client_instance_id,
            "beside-mute": None,
        }
        assert sum(row["assigned_partitions"] for row in members) == 2
        for each in running:
            each.close()
        wait_until(lambda: sum(committed(tmp_path, "beside").values()) == RECORDS)
        before = committed(tmp_path, "beside")[0]
        reset(cluster, "beside", topic, 1)
        wait_until(lambda: bool(rewinds(tmp_path)))
    assert [(row["group_id"], row["from"], row["to"]) for row in rewinds(tmp_path)] == [("beside", str(before), "1")]
