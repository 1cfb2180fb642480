"""Six subscriptions of a live fleet, changed while it runs: each view holds what its clients were asked for.

The subscriptions of each point are determined in three ways that share no code: by the lake's views, by a table written
here by hand, and from the broker's answers to each client in its request log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.companions import syncing
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.sandbox.clients import Client, Library, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.conftest import Ingest
from tests.support.lake_tables import table

from .landing import Landing

pytestmark = pytest.mark.slow

PRODUCER = "org.apache.kafka.producer."
CLIENTS: dict[str, Library] = {
    "orders-1": "java",
    "orders-2": "librdkafka",
    "everything": "java",
    "bills": "librdkafka",
}
RDKAFKA = r"client_software_name=(?i).*(rdkafka|confluent).*"


@dataclass(frozen=True)
class Asked:
    """A subscription, and by hand which of the clients it matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[str, ...]
    clients: frozenset[str]


def of(metrics: list[str], interval_ms: int, match: list[str], clients: str) -> Asked:
    return Asked(tuple(metrics), interval_ms, tuple(match), frozenset(clients.split()))


FIRST = {
    "prefixes": of([f"{PRODUCER}connection.", f"{PRODUCER}node."], 1000, [], " ".join(CLIENTS)),
    "regex": of([f"{PRODUCER}record."], 60_000, [r"client_id=orders-\d+"], "orders-1 orders-2"),
    "software": of([f"{PRODUCER}request.latency"], 60_000, [RDKAFKA], "orders-2 bills"),
    "address": of([f"{PRODUCER}batch."], 60_000, [r"client_source_address=127\.0\.0\..*"], " ".join(CLIENTS)),
    "all": of(["*"], 1200, ["client_id=everything"], "everything"),
    "none": of([], 900, ["client_id=bills"], "bills"),
}
# Another prefix, another match, one deleted, one created.
SECOND = FIRST | {
    "regex": of([f"{PRODUCER}record.queue"], 60_000, [r"client_id=orders-\d+"], "orders-1 orders-2"),
    "software": of(
        [f"{PRODUCER}request.latency"], 60_000, ["client_software_name=apache-kafka-java"], "orders-1 everything"
    ),
    "late": of([f"{PRODUCER}produce."], 800, ["client_id=bills", r"client_source_port=\d+"], "bills"),
}
del SECOND["address"]
THIRD = {name: asked for name, asked in SECOND.items() if name not in ("all", "software")}
PHASES = (FIRST, SECOND, THIRD)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(plugin=receiver_jar(), log_requests=True) as cluster:
        yield cluster


def test_each_view_holds_what_its_clients_were_asked_for(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, ingest: Ingest, spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    polls = ["--lake", str(lake), "--bootstrap-servers", cluster.bootstrap_servers]
    cluster.create_topic("orders", partitions=1)
    assert run_command("sync", polls) == 0
    before: dict[str, Asked] = {}
    running: list[Client] = []
    for after in PHASES:
        change(cluster, before, after)
        assert run_command("sync", polls) == 0
        if not running:
            running = [clients.producer(library, "orders", name, rate=20) for name, library in CLIENTS.items()]
        for name in CLIENTS:
            landing.wait_for_more(name, 3)
        assert run_command("sync", polls) == 0  # sure until here
        before = after
    for client in running:
        client.close()

    flags = ["--bootstrap-servers", cluster.bootstrap_servers]
    argv = ["--source", "kafka", "--lake", str(lake), *flags, "--sync-seconds", "1"]
    polled = (lake / "subscriptions" / "_polled.json").read_text()
    with supervised("", [syncing(parse(IngestSettings, argv, "test"), spark)]):
        ingest(None, lake, *flags)
    assert (lake / "subscriptions" / "_polled.json").read_text() > polled

    changes = sorted((row["valid_from"], row["name"]) for row in table(lake, "subscriptions").to_pylist())
    starts = sorted({at for at, _ in changes})
    assert [sum(at == start for at, _ in changes) for start in starts] == [6, 3]
    ends = sorted({row["valid_to"] for row in table(lake, "subscriptions").to_pylist()} - {None})
    begins = [*starts, ends[-1]]
    sure = {row["offset_key"]: row for row in pushes(lake) if not row["subscription_uncertain"]}
    phase = {key: max(i for i, at in enumerate(begins) if at <= row["landed_at"]) for key, row in sure.items()}
    assert {(phase[key], row["client_id"]) for key, row in sure.items()} >= {
        (number, client_id) for number in range(3) for client_id in CLIENTS
    }
    points = [(key(row), row["client_id"], row["metric"]) for row in table(lake, "metric_points").to_pylist()]
    points = [point for point in points if point[0] in sure]

    # By hand.
    expected = sorted(
        (name, push, metric)
        for push, client_id, metric in points
        for name, asked in PHASES[phase[push]].items()
        if client_id in asked.clients and any(prefix == "*" or metric.startswith(prefix) for prefix in asked.metrics)
    )
    assert len(expected) > 100
    rows = ask(lake, "SELECT * FROM subscription_metrics WHERE NOT subscription_uncertain")
    assert sorted((row["subscription"], key(row), row["metric"]) for row in rows) == expected
    assert {name for name, _, _ in expected} == (FIRST.keys() | SECOND.keys()) - {"none"}
    for name in THIRD:
        own = ask(lake, f"SELECT * FROM subscription_{name} WHERE NOT subscription_uncertain")
        assert sorted((key(row), row["metric"]) for row in own) == [each[1:] for each in expected if each[0] == name]
    for gone in ("address", "all", "software"):
        with pytest.raises(QueryError, match=gone):
            ask(lake, f"SELECT * FROM subscription_{gone}")
    # Nobody pushed what it wasn't asked for.
    unasked = {key(row) for row in ask(lake, "SELECT * FROM unsubscribed_metrics")}
    assert not unasked & sure.keys()

    # As the broker requested.
    requested, pushed_with = broker_answers(cluster)
    matched = ask(lake, "SELECT * FROM push_subscriptions WHERE matches")
    for push_key, row in sure.items():
        mine = [each for each in matched if key(each) == push_key]
        prefixes = {prefix for each in mine for prefix in each["prefixes"]}
        metrics, interval_ms = requested[
            row["client_instance_id"], pushed_with[row["client_instance_id"], row["correlation_id"]]
        ]
        assert metrics == ({"*"} if "*" in prefixes else prefixes)
        assert interval_ms == min([300_000, *(each["interval_ms"] for each in mine)]) == row["push_interval_ms"]


def change(cluster: LocalCluster, before: dict[str, Asked], after: dict[str, Asked]) -> None:
    for name in before.keys() - after.keys():
        cluster.unsubscribe(name)
    for name, asked in after.items():
        if before.get(name) != asked:
            cluster.subscribe(name, asked.metrics, asked.interval_ms, asked.match)


def key(row: dict[str, Any]) -> tuple[int, int]:
    return row["partition"], row["offset"]


def pushes(lake: Path) -> list[dict[str, Any]]:
    rows = ask(
        lake,
        "SELECT p.*, t.subscription_uncertain FROM pushes p JOIN push_subscription_times t "
        'ON t."partition" = p."partition" AND t."offset" = p."offset"',
    )
    return [row | {"offset_key": key(row)} for row in rows]


def ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(str(lake), sql).read_all().to_pylist()
    return rows


Requested = dict[tuple[str, int], tuple[set[str], int]]


def broker_answers(cluster: LocalCluster) -> tuple[Requested, dict[tuple[str, int], int]]:
    """What was requested, and how often, by instance and SubscriptionId; and each push's SubscriptionId, by request."""
    requested: Requested = {}
    pushed: dict[tuple[str, int], int] = {}
    for line in cluster.broker(1).log_file.read_text().splitlines():
        if "_TELEMETRY" in line and (logged := re.search(r"Completed request:(\{.*\}) \(", line)):
            entry = json.loads(logged[1])
            request, response = entry["request"], entry["response"]
            if entry["requestHeader"]["requestApiKeyName"] == "PUSH_TELEMETRY":
                pushed[request["clientInstanceId"], entry["requestHeader"]["correlationId"]] = request["subscriptionId"]
            else:
                answer = set(response["requestedMetrics"]), response["pushIntervalMs"]
                requested[response["clientInstanceId"], response["subscriptionId"]] = answer
    return requested, pushed
