"""From living clients to the lake: what a client counted itself is what the lake says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest

from .landing import Landing
from .test_clients_java import own_totals, record_totals


def test_own_counts_equal_the_sums_of_deltas_in_the_lake(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, ingest: Ingest, topic: str, tmp_path: Path
) -> None:
    names = ("telemetry-e2e-producer", "telemetry-e2e-consumer")
    producer = clients.producer("java", topic, names[0], records=800, rate=800)
    consumer = clients.consumer("java", topic, names[1], group="e2e", records=800)
    cluster.create_topic("crashing", partitions=1)
    crashing = clients.producer("librdkafka", "crashing", "telemetry-e2e-crashing", rate=50)
    producer.wait_for("done")
    consumer.wait_for("done")
    landing.wait_for_more("telemetry-e2e-crashing", 2)
    crashing.kill()
    for name in names:
        landing.wait_for_more(name, 3)  # idle for two push intervals
    counted = {client.client_id: client.close() for client in (producer, consumer)}
    landing.wait(names[1], lambda pushes: pushes[-1].terminating)

    lake = tmp_path / "lake"
    ingest(None, lake, "--bootstrap-servers", cluster.bootstrap_servers)
    for name in names:
        assert record_totals(_totals(lake, name)) == own_totals(counted[name])
    sent, consumed = (_totals(lake, name) for name in names)
    assert sent["org.apache.kafka.producer.record.send.total", frozenset()] == 800
    assert consumed["org.apache.kafka.consumer.fetch.manager.records.consumed.total", frozenset()] == 800

    ends = {row["client_id"]: row for row in _ask(lake, """
        SELECT client_id, bool_or(terminating) AS goodbye, count(*) AS pushes, count(DISTINCT client_instance_id) AS n
        FROM pushes WHERE client_id LIKE 'telemetry-e2e-%' GROUP BY client_id""")}  # fmt: skip
    assert ends["telemetry-e2e-consumer"]["goodbye"] is True
    assert ends["telemetry-e2e-crashing"]["goodbye"] is False
    assert {row["n"] for row in ends.values()} == {1}
    # Every push that landed has its outcome, and none of these clients lost an interval between two pushes.
    outcomes = {row["client_id"]: row for row in _ask(lake, """
        SELECT client_id, count(*) AS pushes, count(lost_start) AS lost FROM push_outcomes
        WHERE client_id LIKE 'telemetry-e2e-%' GROUP BY client_id""")}  # fmt: skip
    for name, row in ends.items():
        assert (outcomes[name]["pushes"], outcomes[name]["lost"]) == (row["pushes"], 0)


def _totals(lake: Path, client_id: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    rows = _ask(lake, f"""
        SELECT metric, to_json(attributes) AS attributes, sum(delta) AS total FROM metric_points
        WHERE client_id = '{client_id}' AND kind = 'sum' GROUP BY ALL""")  # fmt: skip
    return {(row["metric"], frozenset(json.loads(row["attributes"] or "{}").items())): row["total"] for row in rows}


def _ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(str(lake), sql).read_all().to_pylist()
    return rows
