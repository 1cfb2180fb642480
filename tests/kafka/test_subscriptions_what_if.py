"""A subscription is recorded, another one predicted and then set on the broker: what real clients push of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.subscriptions.what_if import SubscriptionChange, SubscriptionProposal, what_if
from kafka_telemetry_lake.sandbox.clients import Library, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest

from .landing import Landing

pytestmark = [pytest.mark.slow, pytest.mark.soak]  # minutes of waiting; the unit tests predict real captured payloads

PRODUCER = "org.apache.kafka.producer."
LIBRARIES: tuple[Library, ...] = ("java", "librdkafka")
BEFORE = ([PRODUCER], 500)
AFTER = ([f"{PRODUCER}node.", f"{PRODUCER}record."], 1000)
PUSHES = 40
MEASURED = """
    SELECT p.client_id, count(*) AS pushes, sum(p.payload_bytes) AS bytes, sum(o.points) AS points
    FROM pushes AS p JOIN push_outcomes AS o USING (source, topic, "partition", "offset", landed_at)
    WHERE p.landed_at BETWEEN TIMESTAMPTZ '{start}' AND TIMESTAMPTZ '{end}' GROUP BY p.client_id"""


def test_m13_m15_what_was_predicted_is_pushed(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str, ingest: Ingest, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    flags = ["--bootstrap-servers", cluster.bootstrap_servers]
    polls = ["--lake", str(lake), *flags]
    names = [f"what-if-{library}" for library in LIBRARIES]

    def record(metrics: list[str], interval_ms: int) -> tuple[datetime, datetime]:
        """Subscribe, wait until it has reached the clients, and record them."""
        cluster.subscribe("what-if", metrics, interval_ms, ["client_id=what-if-.*"])
        assert run_command("sync", polls) == 0
        if not started:
            started.extend(
                clients.producer(library, topic, name, rate=20) for library, name in zip(LIBRARIES, names, strict=True)
            )
        for name in names:
            landing.wait_for_more(name, 3)
        start = datetime.now(UTC)
        for name in names:
            landing.wait_for_more(name, PUSHES)
        end = datetime.now(UTC)
        assert run_command("sync", polls) == 0  # sure until here
        return start, end

    started: list[object] = []
    try:
        recorded = record(*BEFORE)
        changed = record(*AFTER)
    finally:
        cluster.unsubscribe("what-if")
    ingest(None, lake, *flags)
    predicted = {
        row["client_id"]: row
        for row in what_if(
            str(lake), SubscriptionProposal(SubscriptionChange("what-if", *AFTER)), *recorded
        ).clients.to_pylist()
    }
    start, end = changed
    sql = MEASURED.format(start=start.isoformat(), end=end.isoformat())
    measured = {row["client_id"]: row for row in run_query(str(lake), sql).read_all().to_pylist()}
    assert predicted.keys() == set(names)
    errors = {}
    for name in names:
        for what in ("pushes", "bytes", "points"):
            truth = float(measured[name][what]) / (end - start).total_seconds()
            errors[name, what] = predicted[name][f"{what}_s_after"] / truth - 1
    print(errors)
    assert all(abs(error) < 0.10 for error in errors.values()), errors
