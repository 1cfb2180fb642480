"""The receiver plugin in whole brokers: what it cannot land is counted, and its clients never notice.

Each broker has clients of its own: what is landed, dropped and queued is compared with the topic record by record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S, idle_clock

from .receiver_brokers import (
    LANDING,
    cut_off,
    gauges,
    health,
    instances,
    landed,
    settled,
    start_fleet,
    statuses,
    wait_for,
    wait_for_status,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# The oldest and the newest that the plugin is for; `make soak` also the one between, which other tests run.
VERSIONS = ("4.4.0", "3.9.1", pytest.param("4.3.1", marks=pytest.mark.soak))
LANDER = "client.telemetry.lander."
FLEET = 10
QUEUE = 100  # full after a second of the fleet's pushes
MIB = 1024 * 1024
BIG_GAUGES = 36_000  # about 160 bytes each
CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=VERSIONS)
def small_queue(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A broker whose receiver holds few pushes and not for long."""
    settings = {
        f"{LANDER}queue.records": QUEUE,
        f"{LANDER}status.interval.ms": 500,
        f"{LANDER}producer.delivery.timeout.ms": 8000,
        f"{LANDER}producer.max.block.ms": 1000,
    }
    with LocalCluster(request.param, plugin=receiver_jar(), properties=settings) as cluster:
        cluster.subscribe("fleets", ["org.apache.kafka.producer.record."], 100, ["client_id=fleet-.*"])
        cluster.create_topic("orders")
        yield cluster
        cluster.keep_folder = request.session.testsfailed > 0


def test_pushes_lost_while_the_landing_topic_is_gone_are_counted_and_clients_push_on(
    small_queue: LocalCluster, ingest: Ingest, tmp_path: Path
) -> None:
    cluster = small_queue
    with LocalClients(cluster) as clients:
        fleet = start_fleet(cluster, clients, "fleet-gone", "orders", producers=FLEET)
        ids = set(fleet.wait_for("started")["client_instance_ids"])
        assert len(ids) == FLEET
        wait_for(lambda: instances(cluster), ids.issubset)
        cluster.delete_topic(LANDING)
        gone = wait_for_status(cluster, lambda now: now.dropped["queue_full"] > 0 and now.dropped["send_failed"] > 0)
        cluster.create_topic(LANDING, 2)
        wait_for(lambda: instances(cluster), ids.issubset)
        counted = fleet.close()
    assert counted["failed"] == 0
    assert set(counted["client_instance_ids"]) == ids

    end = settled(cluster)
    assert end.received > gone.received
    pushes = landed(cluster)
    assert {push.client_instance_id for push in pushes} == ids
    assert len(pushes) == end.landed - gone.landed
    reported = [status for status in statuses(cluster) if status.started_ms == end.started_ms]
    assert all(status.balances() for status in reported)

    ingest(None, tmp_path, "--bootstrap-servers", cluster.bootstrap_servers)
    assert table(tmp_path, "pushes").num_rows == len(pushes)
    rows = health(tmp_path, end.started_ms)
    assert rows[: len(reported)] == reported
    assert max(row.received for row in rows) == max(row.landed for row in rows) + sum(rows[-1].dropped.values())
    assert set(rows[-1].lost) == {"queue_full", "send_failed"}


def test_a_broker_stopped_with_a_full_queue_stops_in_time_and_tells_its_last_counts_at_the_next_start(
    small_queue: LocalCluster, ingest: Ingest, tmp_path: Path
) -> None:
    cluster, broker = small_queue, small_queue.broker(1)
    with LocalClients(cluster) as clients:
        fleet = start_fleet(cluster, clients, "fleet-stopped", "orders", producers=FLEET)
        ids = set(fleet.wait_for("started")["client_instance_ids"])
        wait_for(lambda: instances(cluster), ids.issubset)
        refused = statuses(cluster)[-1].dropped["queue_full"]
        cluster.delete_topic(LANDING)
        full = wait_for_status(cluster, lambda now: now.dropped["queue_full"] > refused and now.queue_depth >= QUEUE)
        with idle_clock() as clock:
            broker.stop(PATIENCE_S)
        assert clock.seconds < 45  # 1 s of close.timeout.ms, up to 6 s more, and the broker's own shutdown
        broker.start()
        cluster.create_topic(LANDING, 2)
        # On a busy machine all of the fleet may be cut off.
        later = start_fleet(cluster, clients, "fleet-later", "orders", producers=1)
        new = set(later.wait_for("started")["client_instance_ids"])
        wait_for(lambda: instances(cluster), lambda found: found >= (ids - cut_off(fleet)) | new)
        heard = (ids - cut_off(fleet)) | new
        later.close()
        counted = fleet.close()
    assert set(counted["client_instance_ids"]) == ids

    end = settled(cluster)
    reported = statuses(cluster)
    assert all(status.balances() for status in reported)
    former = [status for status in reported if status.started_ms == full.started_ms][-1]
    assert end.started_ms > former.time_ms
    assert (former.landed, former.queue_depth) == (full.landed, 0)
    assert former.dropped["closed"] > 0
    pushes = landed(cluster)
    assert len(pushes) == end.landed
    assert {push.client_instance_id for push in pushes} == heard

    ingest(None, tmp_path, "--bootstrap-servers", cluster.bootstrap_servers)
    assert table(tmp_path, "pushes").num_rows == len(pushes)
    assert health(tmp_path, former.started_ms)[-1] == former


@pytest.mark.parametrize(
    "version", ["3.9.1", *(pytest.param(each, marks=pytest.mark.soak) for each in ("4.4.0", "4.3.1"))]
)
def test_a_push_of_5_mib_lands_whole_or_as_headers_that_say_it_was_too_large(
    version: str, ingest: Ingest, tmp_path: Path
) -> None:
    settings = {"telemetry.max.bytes": 8 * MIB, f"{LANDER}status.interval.ms": 500}
    with LocalCluster(version, plugin=receiver_jar(), properties=settings, heap_mb=640) as cluster:
        cluster.subscribe("big", ["org.apache.kafka.application."], 2000, ["client_id=big-.*"])
        cluster.create_topic("orders")
        with LocalClients(cluster) as clients:
            fleet = start_fleet(cluster, clients, "big", "orders", gauges=BIG_GAUGES)
            wait_for_status(cluster, lambda now: now.landed >= 2)
            change = ["--entity-type", "topics", "--entity-name", LANDING, "--add-config", "max.message.bytes=20000"]
            cluster.tool("kafka.admin.ConfigCommand", "--alter", *change)
            wait_for_status(cluster, lambda now: now.dropped["too_large"] >= 2)
            counted = fleet.close()
        assert counted["failed"] == 0
        end = settled(cluster)
        pushes = landed(cluster)
        ingest(None, tmp_path, "--bootstrap-servers", cluster.bootstrap_servers)

    whole = [push for push in pushes if "dropped" not in push.headers]
    cut = [push for push in pushes if "dropped" in push.headers]
    assert {push.key for push in pushes} == set(counted["client_instance_ids"])
    assert all(int(push.headers["payload_bytes"]) == len(push.payload) > 5 * MIB for push in whole)
    assert {(push.headers["dropped"], push.payload) for push in cut} == {("too_large", b"")}
    assert all(int(push.headers["payload_bytes"]) > 5 * MIB for push in cut)
    assert (end.received, end.landed, end.lost) == (len(pushes), len(whole), {"too_large": len(cut)})

    rows = table(tmp_path, "pushes")
    assert Counter(rows["dropped"].to_pylist()) == {None: len(whole), "too_large": len(cut)}
    points = gauges(tmp_path)
    assert len(points) == len(whole)
    assert all(values == list(range(BIG_GAUGES)) for values in points.values())
    assert table(tmp_path, "quarantine").num_rows == 0
    assert health(tmp_path, end.started_ms)[-1].lost == {"too_large": len(cut)}


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1", pytest.param("4.4.0", marks=pytest.mark.soak)])
def test_wrong_settings_are_reported_in_the_broker_s_log_and_the_defaults_serve(version: str) -> None:
    wrong = {
        "queue.records": "-5",
        "payload.compression": "brotli",
        "status.interval.ms": "soon",
        "producer.linger.ms": "never",
        "producer.acks": "1",
        "queue.lenght": "7",
    }
    properties = {LANDER + key: value for key, value in wrong.items()}
    with LocalCluster(version, plugin=receiver_jar(), properties=properties) as cluster:
        cluster.subscribe("all", ["*"], 200)
        cluster.create_topic("orders")
        with LocalClients(cluster) as clients:
            producer = clients.producer("java", "orders", "served", rate=50)
            pushes = wait_for(lambda: landed(cluster), lambda pushes: len(pushes) >= 3)
            counted = producer.close(60)
        log = cluster.broker(1).log_file.read_text(encoding="utf-8")
    assert counted["records"] > 0
    assert counted["failed"] == 0
    assert {push.client_id for push in pushes} == {"served"}
    assert {push.headers["compression_type"] for push in pushes} == {"none"}
    errors = re.findall(rf" ERROR {re.escape(LANDER)}(.*) \(\S+LanderReporter\)$", log, re.MULTILINE)
    assert sorted(error for error in errors if not error.startswith("queue.lenght")) == [
        "payload.compression=brotli is not allowed (allowed: string [none, gzip, snappy, lz4, zstd]);"
        " the default none is used",
        "producer.acks=1 is not allowed (allowed: all); all is used",
        "producer.linger.ms=never is not allowed (Invalid value never for configuration linger.ms:"
        " Not a number of type LONG); the default is used",
        "queue.records=-5 is not allowed (allowed: int [1,...,10000000]); the default 10000 is used",
        "status.interval.ms=soon is not allowed (allowed: long [100,...,3600000]); the default 10000 is used",
    ]
    (unknown,) = (error for error in errors if error.startswith("queue.lenght"))
    assert "is no setting (allowed: " in unknown
    assert f", {LANDER}queue.records, " in unknown
    assert unknown.endswith("); it is ignored")


def test_payloads_compressed_by_the_receiver_are_read_in_every_codec(ingest: Ingest, tmp_path: Path) -> None:
    settings = {f"{LANDER}payload.compression": CODECS[0]}
    with LocalCluster(plugin=receiver_jar(), properties=settings) as cluster:
        cluster.subscribe("all", ["*"], 200, ["client_id=codec-.*"])
        cluster.create_topic("orders")
        with LocalClients(cluster) as clients:
            for codec in CODECS:
                if codec != CODECS[0]:
                    restart_with(cluster, f"{LANDER}payload.compression={codec}")
                fleet = start_fleet(cluster, clients, f"codec-{codec}", "orders", gauges=20)
                wait_for_codec(cluster, codec)
                fleet.close(60)
        ingest(None, tmp_path, "--bootstrap-servers", cluster.bootstrap_servers)

    pushes = table(tmp_path, "pushes").to_pylist()
    assert {(push["compression_type"], push["client_id"]) for push in pushes} == {
        (codec, f"codec-{codec}-0") for codec in CODECS
    }
    assert all(len(push["payload"]) < push["payload_bytes"] for push in pushes)
    points = gauges(tmp_path)
    assert set(points) == {(push["partition"], push["offset"]) for push in pushes}
    assert all(values == list(range(20)) for values in points.values())
    assert table(tmp_path, "quarantine").num_rows == 0


def wait_for_codec(cluster: LocalCluster, codec: str) -> None:
    wait_for(lambda: [push.headers["compression_type"] for push in landed(cluster)], lambda all: all.count(codec) >= 3)


def restart_with(cluster: LocalCluster, line: str) -> None:
    """Restarts the broker with one more line in its properties; of a key's lines the last one holds."""
    broker = cluster.broker(1)
    broker.stop(PATIENCE_S)
    with (cluster.folder / "broker-1" / "server.properties").open("a", encoding="utf-8") as properties:
        properties.write(f"{line}\n")
    broker.start()
