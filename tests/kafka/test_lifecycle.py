"""What the lifecycle tells of real clients, against their true fates: closed normally, killed, paused, alive.

And of clients whose subscription is deleted and made again: they push nothing for minutes, and aren't silent.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.clients import Client, Library, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.support.patience import PATIENCE_S
from tests.support.topic_messages import messages
from tests.unit.lifecycle.test_lifecycle_lake import LandedLake

INTERVAL_S = 1.0
SILENCE_S = 60.0  # the least threshold
LIBRARIES: tuple[Library, ...] = ("java", "librdkafka")
NUMBERS = ("push_interval_ms", "client_port", "broker_id")
TEXTS = (
    "cluster_id",
    "client_instance_id",
    "client_id",
    "client_address",
    "principal",
    "client_software_name",
    "client_software_version",
)


@pytest.fixture
def own_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(plugin=receiver_jar()) as cluster:
        cluster.subscribe("life", ["org.apache.kafka."], int(1000 * INTERVAL_S), ["client_id=life-.*"])
        hold(cluster)
        cluster.create_topic("records", partitions=1)
        yield cluster


def hold(cluster: LocalCluster) -> None:
    cluster.subscribe("deferred", ["org.apache.kafka."], int(1000 * INTERVAL_S), ["client_id=deferred-.*"])


def landed(cluster: LocalCluster) -> list[dict[str, Any]]:
    """All landing records as rows of `pushes`."""
    rows = map(_row, messages(cluster, "client-telemetry"))
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def _row(message: Message) -> dict[str, Any]:
    sent = message.headers() or []
    assert isinstance(sent, list)
    headers = {name: text.decode() for name, text in sent if isinstance(text, bytes)}
    return {
        "source": "kafka",
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "landed_at": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        "terminating": headers["terminating"] == "true",
        **{name: int(headers[name]) for name in NUMBERS if name in headers},
        **{name: headers[name] for name in TEXTS if name in headers},
    }


def wait_for_pushes(cluster: LocalCluster, wanted: dict[str, int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        counts: dict[str, int] = {}
        for row in landed(cluster):
            counts[row["client_id"]] = counts.get(row["client_id"], 0) + 1
        if all(counts.get(name, 0) >= least for name, least in wanted.items()):
            return
        assert time.monotonic() < deadline, f"{counts} of {wanted}"
        time.sleep(1)


def longest_gap_s(rows: list[dict[str, Any]], client_id: str) -> float:
    """Between two pushes of a client, or from its last to the last of all."""
    times: list[datetime] = sorted(row["landed_at"] for row in rows if row["client_id"] == client_id)
    times.append(max(row["landed_at"] for row in rows))
    return max((after - before).total_seconds() for before, after in pairwise(times))


@pytest.mark.slow
@pytest.mark.soak  # test_lifecycle_fates.py has other kinds of clients
def test_true_fates_and_what_is_reported_of_them(own_cluster: LocalCluster, tmp_path: Path) -> None:
    with LocalClients(own_cluster) as clients:
        started: dict[str, Client] = {}
        for fate in ("closed", "killed", "paused", "alive"):
            for library in LIBRARIES:
                name = f"life-{library}-producer-{fate}"
                started[name] = clients.producer(library, "records", name, rate=2)
                name = f"life-{library}-consumer-{fate}"
                started[name] = clients.consumer(library, "records", name, group=name)
        deferred = [f"deferred-{library}" for library in LIBRARIES]
        for library, name in zip(LIBRARIES, deferred, strict=True):
            clients.producer(library, "records", name, rate=2)
        wait_for_pushes(own_cluster, dict.fromkeys([*started, *deferred], 3))
        look = ["--lake", str(tmp_path), "--bootstrap-servers", own_cluster.bootstrap_servers, "--no-consumer-groups"]
        assert run_command("sync", look) == 0
        for name, client in started.items():
            if name.endswith("closed"):
                client.close()
            elif name.endswith("killed"):
                client.kill()
            elif name.endswith("paused"):
                client.pause()
        own_cluster.unsubscribe("deferred")
        assert run_command("sync", look) == 0
        time.sleep(5 * INTERVAL_S)  # so that they ask while there is none: they ask again after five minutes
        hold(own_cluster)
        assert run_command("sync", look) == 0
        time.sleep(SILENCE_S + 10)
        paused = [name for name in started if name.endswith("paused")]
        before = landed(own_cluster)
        for name in paused:
            started[name].resume()
        counts = {name: sum(row["client_id"] == name for row in before) for name in paused}
        wait_for_pushes(own_cluster, {name: count + 1 for name, count in counts.items()})
        rows = landed(own_cluster)
    gaps = {name: longest_gap_s(rows, name) for name in deferred}
    print(f"longest gaps of clients without a subscription: {gaps}")
    assert max(gaps.values()) > SILENCE_S
    lake = LandedLake(tmp_path)
    lake.land([row for row in rows if "consumer" in row["client_id"]], {"group_id": "g"})
    lake.land([row for row in rows if "consumer" not in row["client_id"]]).judge()
    liveness = run_query(
        str(tmp_path), "SELECT client_id, state, likely_cause, last_seen, silent_at FROM client_liveness"
    )
    found = {row["client_id"]: row for row in liveness.read_all().to_pylist()}
    events: dict[str, list[str]] = {name: [] for name in (*started, *deferred)}
    for row in sorted(lake.events(), key=lambda row: (row["offset"] or 0, str(row["at"]))):
        if row["client_id"] in events:
            events[row["client_id"]].append(row["event"])
    for name in sorted(started):
        row = found[name]
        delay = (
            ""
            if row["silent_at"] is None
            else f"{(row['silent_at'] - row['last_seen']).total_seconds() / INTERVAL_S:.0f}"
        )
        print(f"{name}: {row['state']} {row['likely_cause'] or ''} {delay} {' '.join(events[name])}")
    fates = {
        "killed": [("silent", ["first_seen", "went_silent"])],
        "paused": [("active", ["first_seen", "went_silent", "resumed"])],
        "alive": [("active", ["first_seen"])],
        # Java consumers always say goodbye, librdkafka nearly always, Java producers with records in their buffer.
        "closed": [("terminated", ["first_seen", "terminated"]), ("silent", ["first_seen", "went_silent"])],
    }
    for name in started:
        assert (found[name]["state"], events[name]) in fates[name.rpartition("-")[2]], name
    assert {name: events[name] for name in deferred} == {name: ["first_seen"] for name in deferred}
    assert found["life-java-consumer-closed"]["state"] == "terminated"
    causes = {name: found[name]["likely_cause"] for name in started if found[name]["state"] == "silent"}
    assert causes["life-java-consumer-killed"] == causes["life-librdkafka-producer-killed"] == "killed_or_cut_off"
    shutil.copytree(tmp_path / "subscriptions", tmp_path / "again" / "subscriptions")
    assert (
        lake.events()
        == LandedLake(tmp_path / "again")
        .land(rows[: len(rows) // 2])
        .judge()
        .land(rows[len(rows) // 2 :])
        .judge()
        .events()
    )
