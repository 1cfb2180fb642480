"""Rebootstraps (KIP-1102): detection for real clients, and the pipeline's own clients when the brokers move."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from benchmarks.rebootstrap import KINDS, detected_events, scores, summed
from benchmarks.rebootstrap_scenes import play
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from tests.support.lake_tables import table
from tests.support.patience import idle_clock

from .receiver_brokers import landed, statuses, wait_for

LANDER = "client.telemetry.lander"
REBOOTSTRAPPING = "Rebootstrapping with"
# Clients that wait seconds for a processor lose connections as in a scene: what is wrong then says nothing of the rule.
CALM = 2.0


def wrong() -> list[object]:
    """What misses its bound in a run of the scenes."""
    run = play(("one_restarts", "required", "refused", "unanswered"), clients=4, none=1, interval_s=1, scene_s=16)
    by_kind = scores(run, detected_events(run))
    for kind, score in by_kind.items():
        print(kind, score)
    found: list[object] = []
    for family in ("java", "librdkafka"):
        score = summed([by_kind[kind] for kind in KINDS if kind.startswith(family)])
        assert score.episodes >= 9, family  # the scenes are such
        found += [(family, score.missed)] if score.recall < 0.7 else []
        found += [(family, score.wrong)] if score.precision < 0.8 else []
    return found + ([by_kind["none"].wrong] if by_kind["none"].events > 1 else [])


@pytest.mark.slow
@pytest.mark.soak  # beside other tests clients get too little of the machine; the demo has a real rebootstrap, too
def test_rebootstraps_of_real_clients_are_detected() -> None:
    with idle_clock() as clock:
        found = wrong()
    if found and clock.slowness > CALM:
        pytest.skip(
            f"the clients got too little of the machine (1/{clock.slowness:.1f}), which looks like a scene: {found}"
        )
    assert found == []


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(plugin=receiver_jar()) as cluster:
        cluster.subscribe("all", ["org.apache.kafka.producer.connection"], 500, ["client_id=steady"])
        cluster.create_topic("records", partitions=1)
        yield cluster


@pytest.mark.slow
def test_receiver_and_job_find_a_broker_again_that_has_moved(cluster: LocalCluster, tmp_path: Path) -> None:
    broker, lake = cluster.broker(1), tmp_path / "lake"
    with AddressProxy([broker.port]) as proxy, LocalClients(cluster) as clients:
        settings = cluster.folder / "broker-1" / "server.properties"
        with settings.open("a", encoding="utf-8") as file:
            file.write(f"{LANDER}.bootstrap.servers={proxy.bootstrap_servers}\n")
            file.write(f"{LANDER}.producer.metadata.recovery.rebootstrap.trigger.ms=5000\n")
            file.write(f"{LANDER}.producer.metadata.max.age.ms=2000\n")
        broker.stop()
        broker.start()
        clients.producer("java", "records", "steady", rate=5)
        flags = ["--source", "kafka", "--bootstrap-servers", proxy.bootstrap_servers, "--lake", str(lake)]
        command = [
            sys.executable,
            "-m",
            "kafka_telemetry_lake.jobs.ingest",
            *flags,
            "--trigger-seconds",
            "1",
            "--driver-memory",
            "1g",
        ]
        job = Process(command, tmp_path / "job.log")
        try:
            wait_for(lambda: _stored(lake), lambda stored: stored)
            moved, rebootstraps_before = datetime.now(UTC), rebootstraps(cluster)
            proxy.move(with_bootstrap=True)
            wait_for(lambda: _stored(lake), partial(_several_after, moved))
            wait_for(lambda: rebootstraps(cluster), partial(operator.lt, rebootstraps_before))
            assert job.running, job.log.read_text()[-3000:]
        finally:
            job.stop()
        # Neither answered nor refused: no metadata for the trigger's time. Only the receiver's client knows this.
        before, rebootstraps_before = len(landed(cluster)), rebootstraps(cluster)
        proxy.vanish()
        wait_for(lambda: len(landed(cluster)), partial(operator.lt, before + 12))
        assert rebootstraps(cluster) > rebootstraps_before
        assert statuses(cluster)[-1].lost == {}


def rebootstraps(cluster: LocalCluster) -> int:
    """How often clients in the broker's process have said that they bootstrap again: the receiver's producers."""
    return cluster.broker(1).log_file.read_text().count(REBOOTSTRAPPING)


def _several_after(moment: datetime, landings: list[datetime]) -> bool:
    return sum(each > moment for each in landings) > 3


def _stored(lake: Path) -> list[datetime]:
    """When the pushes of the lake landed."""
    if not (lake / "pushes" / "_delta_log").exists():
        return []
    rows: list[datetime] = table(lake, "pushes")["landed_at"].to_pylist()
    return rows
