"""What the receiver takes of a broker's heap while its landing topic acknowledges nothing (docs/receiver.md, Cost)."""

from __future__ import annotations

import re
import subprocess

import pytest

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.support.telemetry_request import push_as_new_clients

from .receiver_brokers import LANDING, wait_for_status

pytestmark = pytest.mark.kafka

MIB = 1024 * 1024
PUSH_BYTES = 1_000_000
PUSHES = 400
HEAP_MB = 640
QUEUE_BYTES = 64 * MIB  # the defaults of queue.bytes and producer.buffer.memory
BUFFER_BYTES = 32 * MIB + 128 * 1024  # twice the largest request
BROKER_BYTES = 8 * MIB  # the broker's own: 400 client instances, classes loaded by the first pushes


def live_bytes(pid: int) -> int:
    """Bytes of all reachable objects, after a full collection."""
    histogram = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True)
    total = re.search(r"^Total +\d+ +(\d+)", histogram.stdout, re.MULTILINE)
    assert total is not None, histogram.stdout[-500:]
    return int(total[1])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.9.1", marks=pytest.mark.soak)])
def test_pushes_of_a_topic_that_acknowledges_nothing_stay_within_the_documented_heap(version: str) -> None:
    settings = {"client.telemetry.lander.status.interval.ms": 500}
    with LocalCluster(version, 2, plugin=receiver_jar(), properties=settings, heap_mb=HEAP_MB) as cluster:
        cluster.subscribe("raw", ["*"], 60_000)
        change = ["--alter", "--entity-type", "topics", "--entity-name", LANDING]
        cluster.tool("kafka.admin.ConfigCommand", *change, "--add-config", "min.insync.replicas=2")
        broker = cluster.broker(1)
        assert push_as_new_clients(broker.port, bytes(PUSH_BYTES), 3, "first") == 3
        landed = wait_for_status(cluster, lambda now: now.landed == 3).landed
        assert broker.pid is not None
        before = live_bytes(broker.pid)
        cluster.broker(2).stop()  # the landing topic needs both, the status topic one

        assert push_as_new_clients(broker.port, bytes(PUSH_BYTES), PUSHES, "raw") == PUSHES
        grown = live_bytes(broker.pid) - before
        print(f"{version}: {PUSHES} pushes of {PUSH_BYTES} bytes, none acknowledged: {grown / MIB:.1f} MiB of heap")
        assert grown <= QUEUE_BYTES + BUFFER_BYTES + BROKER_BYTES
        full = wait_for_status(cluster, lambda now: now.received == landed + PUSHES)
        assert full.balances()
        assert full.landed == landed
        assert full.lost == {"queue_full": PUSHES - full.queue_depth}
        assert full.queue_depth * PUSH_BYTES <= QUEUE_BYTES < (full.queue_depth + 1) * (PUSH_BYTES + 64 * 1024)

        cluster.broker(2).start()
        end = wait_for_status(cluster, lambda now: now.started_ms == full.started_ms and now.queue_depth == 0)
        assert end.landed == landed + full.queue_depth
        assert end.lost == full.lost
        assert live_bytes(broker.pid) - before <= BUFFER_BYTES + BROKER_BYTES
