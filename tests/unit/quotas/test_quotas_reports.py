"""What clients tell of quotas, picked out of their points; the metrics' names are those of captured clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.udfs.quotas.reports import BYTES, DELAYS, POINTS_IN, REPORTS, quota_reports

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SENT, RECEIVED = BYTES
BROKER_1 = {"node_id": "1", "node_role": "broker"}


def point(metric: str, **fields: Any) -> dict[str, Any]:
    place = {"source": "s", "cluster_id": "c", "topic": "t", "partition": 0, "offset": 7, "landed_at": NOON}
    of = {"client_instance_id": "id", "client_id": "app", "attributes": list(BROKER_1.items())}
    times = {"delta_start": NOON - timedelta(seconds=10), "time": NOON}
    return place | of | times | {"metric": metric} | fields


def reports(points: list[dict[str, Any]], principal: str | None = "User:alice") -> list[dict[str, Any]]:
    found = quota_reports(
        pa.Table.from_pylist(points, POINTS_IN), pa.chunked_array([[principal] * len(points)], pa.string())
    )
    assert found.schema == REPORTS
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_q11_bytes_to_and_from_a_broker() -> None:
    found = reports([point(SENT, delta=100.0, value=900.0), point(RECEIVED, delta=50.0)])
    of_both = [(row["quota_type"], row["bytes"], row["broker_id"]) for row in found]
    assert of_both == [("produce", 100.0, 1), ("fetch", 50.0, 1)]
    assert found[0] == found[0] | {"user": "alice", "client_id": "app", "throttle_ms": None, "offset": 7}
    assert (found[0]["delta_start"], found[0]["time"]) == (NOON - timedelta(seconds=10), NOON)


@pytest.mark.parametrize("metric", DELAYS)
def test_q11_a_delay_is_reported_without_a_broker(metric: str) -> None:
    (row,) = reports([point(metric, value=12.0, attributes=None, delta_start=None), point(metric, value=0.0)])
    assert (row["quota_type"], row["throttle_ms"], row["broker_id"], row["bytes"], row["delta_start"]) == (
        "produce" if "produce" in metric else "fetch", 12.0, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"delta": None, "value": 5.0},  # a baseline
        {"delta": 0.0},
        {"delta": -1.0},
        {"attributes": [("node_id", "-1"), ("node_role", "bootstrap")]},
        {"attributes": [("node_id", "1"), ("node_role", "coordinator")]},
        {"attributes": [("node_id", "one"), ("node_role", "broker")]},
        {"attributes": [("node_id", "99999999999"), ("node_role", "broker")]},
        {"attributes": [("node_role", "broker")]},
        {"attributes": None},
        {"metric": "org.apache.kafka.producer.outgoing.byte.total"},
    ],
)
def test_q11_what_tells_of_no_produce_or_fetch_bytes_of_a_broker_is_left_out(fields: dict[str, Any]) -> None:
    assert reports([point(SENT, delta=1.0) | fields]) == []


@pytest.mark.parametrize(
    ("principal", "user"), [("User:a:b", "a:b"), ("User:", ""), ("plain", "plain"), (None, None), ("User:Ä %", "Ä %")]
)
def test_the_user_is_the_principals_name(principal: str | None, user: str | None) -> None:
    assert reports([point(SENT, delta=1.0)], principal)[0]["user"] == user
