"""What applications of real clients cost: the bytes of view application_cost are those that the brokers count."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.query.formats import write_table
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.conftest import Ingest

from .landing import Landing

RECORDS, VALUE_BYTES = 30_000, 1000
FILE = """
rules:
  - {client_id: 'orders-.*', address_range: 127.0.0.0/8, application: shop, owner: team-a}
  - {group_id: billing, application: billing, owner: team-b}
  - {principal: 'User:ANONYMOUS', client_id: 'bills-.*', application: billing, owner: team-b}
"""
PRICES = """
currency: EUR
bytes_in_gb: 50
bytes_out_gb: 20
storage_gb_month: 100
requests_million: 0
cross_zone_gb: {zone-1: 10}
topics: [{topic: orders, retention_hours: 168, replication_factor: 1}]
"""


@pytest.fixture
def zones(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two brokers, each in a zone of its own."""
    with LocalCluster(brokers=2, plugin=receiver_jar(), racks=("zone-1", "zone-2")) as cluster:
        for topic in ("orders", "bills"):
            cluster.create_topic(topic, 2, replication_factor=1)
        cluster.subscribe("all", ["org.apache.kafka."], 1000)
        yield cluster
        cluster.keep_folder = request.session.testsfailed > 0


def broker_bytes(cluster: LocalCluster) -> Counter[tuple[int, str, str]]:
    """Bytes by broker, MBean (BytesInPerSec, BytesOutPerSec) and topic."""
    classes = compile_java([Path(__file__).with_name("BrokerBytes.java")], kafka_class_path(cluster.version))
    pids = [str(part) for broker in cluster.brokers for part in (broker.node_id, broker.pid)]
    command = java_command(str(classes), "BrokerBytes", *pids, log=cluster.folder / "bytes.log")
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Counter[tuple[int, str, str]] = Counter()
    for line in printed.splitlines():
        broker, name, topic, count = line.split("\t")
        found[int(broker), name, topic] = int(count)
    return found


@pytest.mark.slow
def test_bytes_of_applications_are_those_that_brokers_count(
    zones: LocalCluster, ingest: Ingest, tmp_path: Path
) -> None:
    lake, servers = tmp_path / "lake", zones.bootstrap_servers
    near: dict[str, Any] = {"properties": {"client.rack": "zone-1"}}
    lz4: dict[str, Any] = {"properties": {"client.rack": "zone-3", "compression.type": "lz4"}}
    with LocalClients(zones) as clients, Landing(servers) as landing:
        load: dict[str, Any] = {"records": RECORDS, "value_bytes": VALUE_BYTES}
        running = [
            clients.producer("java", "orders", "orders-producer", **load, **near),
            clients.producer("java", "bills", "bills-producer", **load, **lz4),
            clients.consumer("java", "orders", "orders-consumer", group="shopping", records=RECORDS, **near),
            clients.consumer("java", "bills", "bills-consumer", group="billing", records=RECORDS),
            clients.producer("librdkafka", "bills", "unowned", records=100),
        ]
        for each in running:
            each.wait_for("done")
        for each in running[:4]:
            landing.wait_for_more(each.client_id, 3)  # idle for two push intervals
        for each in running:
            each.close()
    truth = broker_bytes(zones)
    (tmp_path / "applications.yml").write_text(FILE)
    (tmp_path / "prices.yml").write_text(PRICES)
    files = [flag for name in ("aliases", "prices") for flag in (f"--{name}-file", str(tmp_path / f"{name}.yml"))]
    files[1] = str(tmp_path / "applications.yml")
    assert (
        run_command("sync", ["--lake", str(lake), "--bootstrap-servers", servers, "--no-consumer-groups", *files]) == 0
    )
    ingest(None, lake, "--bootstrap-servers", servers)

    print()
    for columns in (
        "application, owner, bytes_in, bytes_out, round(cross_zone_share, 3) AS cross_zone_share",
        "application, round(known_cost, 4) AS known_cost, cost, missing",
    ):
        write_table(run_query(str(lake), f"SELECT {columns} FROM application_cost ORDER BY 1"), sys.stdout)
    print(sorted(truth.items()))
    rows = run_query(str(lake), "FROM application_cost").read_all().to_pylist()
    assert {(row["application"], row["owner"]) for row in rows} == {
        ("shop", "team-a"), ("billing", "team-b"), (None, None)
    }  # fmt: skip

    def summed(application: str | None, column: str) -> float:
        return sum(float(row[column]) for row in rows if row["application"] == application)  # a run may cross an hour

    def counted(name: str, topic: str, brokers: tuple[int, ...] = (1, 2)) -> int:
        return sum(truth[broker, name, topic] for broker in brokers)

    assert counted("BytesInPerSec", "orders") > RECORDS * VALUE_BYTES
    assert summed("shop", "bytes_in") == pytest.approx(counted("BytesInPerSec", "orders"), rel=0.01)
    assert summed("shop", "bytes_out") == pytest.approx(counted("BytesOutPerSec", "orders"), rel=0.01)
    # Both producers of the topic are measured or said not to be.
    assert summed("billing", "bytes_in") <= counted("BytesInPerSec", "bills")
    assert summed(None, "unmeasured_instances") == 1
    # Both ways: producer and consumer are in the zone of broker 1.
    ways = ("BytesInPerSec", "BytesOutPerSec")
    far, all_bytes = (sum(counted(way, "orders", of) for way in ways) for of in ((2,), (1, 2)))
    assert summed("shop", "cross_zone_bytes") / summed("shop", "zoned_bytes") == pytest.approx(
        far / all_bytes, abs=0.01
    )
    assert summed("shop", "cost") == pytest.approx(
        sum(counted(way, "orders") / 1e9 * price for way, price in zip(ways, (50, 20), strict=True))
        + counted("BytesInPerSec", "orders") / 1e9 * 168 / 720 * 100 + far / 1e9 * 10, rel=0.01,
    )  # fmt: skip
    (billing,) = {row["missing"] for row in rows if row["application"] == "billing"}
    assert "the price list has no retention for topic bills; the price list has no price for zone zone-3" in billing
    assert {row["cost"] for row in rows if row["application"] != "shop"} == {None}
    (java,) = run_query(str(lake), "FROM client_versions WHERE library = 'java'").read_all().to_pylist()
    assert (java["software_version"], java["instances"], java["bugs"], java["works_with_brokers_4"]) == (
        zones.version, 4, ["KAFKA-20393"], True,
    )  # fmt: skip
    (unowned,) = run_query(str(lake), "FROM unowned_clients").read_all().to_pylist()
    assert (unowned["client_id"], unowned["reason"]) == ("unowned", "no alias or rule fits")
