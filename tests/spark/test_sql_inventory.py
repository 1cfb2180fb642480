"""The inventory's views have the same rows in Spark as in DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_views
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_LAG_SAMPLES, GROUP_MEMBERS, GROUP_OFFSETS
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.quick_session import quick_session

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
K = "org.apache.kafka."
VIEWS = ("metric_catalog", "client_measures", "topic_clients", "topic_flows", "group_lag")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def point(client: str, metric: str, delta: float | None, value: float | None, **attributes: str) -> dict[str, Any]:
    return {
        "cluster_id": "c", "client_instance_id": client, "metric": K + metric, "delta": delta, "value": value,
        "kind": "gauge" if delta is None else "sum", "temporality": None if delta is None else "delta",
        "delta_status": "delta", "delta_start": at(0), "time": at(10), "landed_at": at(11),
        "attributes": list(attributes.items()),
    }  # fmt: skip


POINTS = [
    point("w", "producer.record.send.total", 10, None), point("w", "producer.topic.byte.total", 55, None, topic="a.b"),
    point("w", "producer.topic.record.send.total", 10, None, topic="a.b"),
    point("w", "producer.topic.compression.rate", None, 0.5, topic="a.b"),
    point("r", "consumer.fetch.manager.records.consumed.total", 8, None),
    point("r", "consumer.fetch.manager.records.consumed.total", 8, None, topic="a_b"),
    point("r", "consumer.node.request.latency.avg", None, 3, node_id="1", node_role="broker"),
    point("rd", "producer.connection.creation.total", 1, None), point("rd", "own.carts", None, 1, shop="x"),
]  # fmt: skip
CLIENTS = [
    {"cluster_id": "c", "client_instance_id": name, "client_id": name, "state": "active", "step": 1,
     "client_software_name": software, "client_software_version": "1", "landed_at": at(11), "principal": "User:x",
     "labels": [("group_id", "g")] if name == "r" else None}
    for name, software in (("w", "apache-kafka-java"), ("r", "apache-kafka-java"), ("rd", "librdkafka"))
]  # fmt: skip
MEMBER = {"cluster_id": "c", "group_id": "mute", "member_id": "m", "client_id": "m-id", "assignment": ["a.b-0", "t-1"]}
OFFSET = {"cluster_id": "c", "group_id": "gone", "topic": "t", "partition": 0, "seen_at": at(5), "step": 1}
USAGE = {
    "cluster_id": "c", "broker_id": 1, "quota_type": "produce", "user": "", "client_id": "hidden",
    "window_start": at(0), "window_seconds": 60, "observed_rate": 10.0, "source": "broker",
}  # fmt: skip
SAMPLES = [
    {"cluster_id": "c", "group_id": group, "topic": "t", "partition": 0, "sampled_at": at(10 * poll),
     "committed_offset": committed, "log_start_offset": start, "end_offset": end, "retention_ms": 60_000}
    for group, committed_by_poll in (("g", (100, 130, 170, 4, 6)), ("h", (40, 40, 40, 40, 8)))
    for poll, (committed, start, end) in enumerate(
        zip(committed_by_poll, (0, 0, 50, 0, 0), (100, 200, 250, 3, 9), strict=True)
    )
]  # fmt: skip


def store(lake: str, table: Table, rows: list[dict[str, Any]]) -> None:
    write_deltalake(table.create(lake), table.with_partition(pa.Table.from_pylist(rows, table.schema)), mode="append")


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in one order. A sum of floats may differ in its last digits, and UTC has several classes."""

    def text(value: Any) -> str:
        return str(round(value, 6)) if isinstance(value, float) else str(value)

    return sorted(str({name: text(value) for name, value in row.items()}) for row in rows)


@pytest.mark.slow
@pytest.mark.soak
def test_spark_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path)
    PUSHES.create(lake)
    for table, rows in (
        (METRIC_POINTS, POINTS), (CLIENT_CHANGES, CLIENTS), (GROUP_MEMBERS, [MEMBER | {"valid_from": at(1)}]),
        (GROUP_OFFSETS, [OFFSET]), (QUOTA_USAGE, [USAGE]), (GROUP_LAG_SAMPLES, SAMPLES),
    ):  # fmt: skip
        store(lake, table, rows)
    session = quick_session(spark)
    create_views(session, lake)
    for view in VIEWS:
        expected = run_query(lake, f"SELECT * FROM {view}").read_all().to_pylist()
        assert len(expected) > 1, view
        found = session.table(view).toArrow().to_pylist()
        assert comparable(found) == comparable(expected), view
