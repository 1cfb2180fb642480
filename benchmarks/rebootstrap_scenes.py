"""Rebootstraps of real clients (KIP-1102): many of each family behind a proxy that changes addresses, and their logs.

A client's own log is the ground truth: it has the time at which the client starts to rebootstrap.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from kafka_telemetry_lake.sandbox import clients as local_clients
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from tests.support.landing_records import SCHEMA
from tests.support.topic_messages import messages

FAMILIES = ("java", "librdkafka")
RECORDS = "records"
LANDING = "client-telemetry"
# Groups: a log line's time, its milliseconds, and its client id.
_LINE = re.compile(
    r"^(\S+ \S+),(\d+) .*?((?:java|librdkafka)-[a-z0-9-]+).*(?:Rebootstrapping with|re-bootstrap sequence)"
)
# Clients notice within seconds that an address is gone.
SETTINGS = {"metadata.recovery.rebootstrap.trigger.ms": 5000}
JAVA = {
    "metadata.max.age.ms": 3000,
    "buffer.memory": 4_000_000,
    "max.block.ms": 100,
    "request.timeout.ms": 20_000,
    "delivery.timeout.ms": 30_000,
    "auto.offset.reset": "latest",
    "reconnect.backoff.max.ms": 2000,
}
LIBRDKAFKA = {
    "topic.metadata.refresh.interval.ms": 3000,
    "debug": "feature",
    "log_level": 7,
    "queue.buffering.max.messages": 1000,
    "reconnect.backoff.max.ms": 2000,
}


@dataclass
class Run:
    """Records of a run: landing records, each scene's start, each rebootstrap's client id and time (epoch s)."""

    interval_s: float
    landed: pa.Table = field(default_factory=SCHEMA.empty_table)
    scenes: list[tuple[str, float]] = field(default_factory=list)
    rebootstraps: list[tuple[str, float]] = field(default_factory=list)
    ended: float = 0.0


def play(scenes: Sequence[str], clients: int, none: int, interval_s: float, scene_s: float) -> Run:
    """Run real clients through scenes: `clients` of each kind and family, the first `none` with strategy none."""
    run = Run(interval_s)
    with LocalCluster(brokers=2, plugin=receiver_jar()) as cluster:
        cluster.subscribe("all", ["*"], int(1000 * interval_s), ["client_id=(java|librdkafka)-.*"])
        cluster.create_topic(RECORDS, partitions=4)
        ports = [broker.port for broker in cluster.brokers]
        with AddressProxy(ports, moves=len(scenes)) as proxy, LocalClients(cluster) as local:
            logs = [_fleet(cluster, local, proxy, family, clients, none) for family in FAMILIES]
            time.sleep(10 + 2 * interval_s)
            for name in scenes:
                run.scenes.append((name, time.time()))
                _act(proxy, name, ports)
                time.sleep(scene_s)
            run.ended = time.time()
            run.landed = landed(cluster)
            for log in logs:
                run.rebootstraps += rebootstraps_of(log)
    return run


def _act(proxy: AddressProxy, name: str, ports: Sequence[int]) -> None:
    acts: dict[str, Callable[[], object]] = {
        "quiet": lambda: None,
        "refused": proxy.move,
        "refused_everywhere": lambda: proxy.move(with_bootstrap=True),
        "unanswered": proxy.vanish,
        "required": proxy.require_rebootstrap,
        "one_restarts": lambda: _restart(proxy, ports[1:]),
        "all_restart": lambda: _restart(proxy, ports),
    }
    acts[name]()


def _restart(proxy: AddressProxy, ports: Sequence[int]) -> None:
    for port in ports:
        proxy.cut(port)
    time.sleep(4)
    for port in ports:
        proxy.restore(port)


def _fleet(
    cluster: LocalCluster, local: LocalClients, proxy: AddressProxy, family: str, clients: int, none: int
) -> Path:
    log = cluster.folder / "clients" / f"{family}.log"
    settings = {
        "driver.topic": RECORDS,
        "driver.producers": clients,
        "driver.consumers": clients,
        "driver.none": none,
        "bootstrap.servers": proxy.bootstrap_servers,
        **SETTINGS,
        **(JAVA if family == "java" else LIBRDKAFKA),
    }
    folder = Path(local_clients.__file__).parent
    if family == "java":
        class_path = kafka_class_path("4.3.1")
        classes = compile_java([folder / f"{name}.java" for name in ("ManyClients", "TelemetryClient")], class_path)
        command: Sequence[str | Path] = java_command(
            kafka_class_path("4.3.1", classes), "ManyClients", log=log, heap_mb=512
        )
    else:
        command = [sys.executable, folder / "many_librdkafka.py"]
    local.start(family, command, settings).wait_for("started")
    return log


def rebootstraps_of(log: Path) -> list[tuple[str, float]]:
    """Client id and time, epoch s, of each log line that reports a rebootstrap."""
    matches = [_LINE.match(line) for line in log.read_text(errors="replace").splitlines()]
    return [
        (match[3], datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").timestamp() + int(match[2]) / 1000)
        for match in matches
        if match
    ]


def landed(cluster: LocalCluster) -> pa.Table:
    """All landing records, in the shape of Spark's Kafka source."""
    return pa.Table.from_pylist([_row(message) for message in messages(cluster, LANDING)], SCHEMA)


def _row(message: Message) -> dict[str, object]:
    kind, milliseconds = message.timestamp()
    headers = message.headers() or []
    assert isinstance(headers, list)
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": datetime.fromtimestamp(milliseconds / 1000, UTC),
        "timestampType": kind - 1,
        "headers": [{"key": name, "value": value} for name, value in headers],
    }
