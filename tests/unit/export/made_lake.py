"""Lakes with a few points, for exports: rows are written as the job commits them, without the job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
K = "org.apache.kafka."
SENT, SENT_TO, BYTES_TO = "producer.record.send.total", "producer.topic.record.send.total", "producer.topic.byte.total"
READ = "consumer.fetch.manager.records.consumed.total"
LATENCY, LATENCY_MAX = "producer.node.request.latency.avg", "producer.node.request.latency.max"
HOSTILE = ['quo"te', "back\\slash", "new\nline", "ümläut-日本", "other", "", "{}=,", "x" * 5000, "tab\there\r"]
OPENED: list[Counting] = []
Row = dict[str, Any]


def point(
    client: str, metric: str, *, delta: float | None = None, value: float | None = None, second: float = 0,
    status: str = "delta", instance: str | None = None, **attributes: str,
) -> Row:  # fmt: skip
    """A row of metric_points; `client` is the client id, and the instance unless that is given."""
    at = NOW + timedelta(seconds=second)
    return {
        "source": "kafka", "cluster_id": "c", "topic": "client-telemetry", "partition": 0, "offset": int(second),
        "client_instance_id": instance or client, "client_id": client, "metric": K + metric,
        "series_id": xxhash.xxh3_64_intdigest(f"{metric} {attributes}".encode()) >> 1,
        "delta": delta, "delta_int": None if delta is None or delta % 1 else int(delta), "value": value,
        "kind": "gauge" if delta is None else "sum", "is_monotonic": None if delta is None else True,
        "temporality": None if delta is None else "delta", "delta_status": status if delta is not None else "value",
        "delta_start": at - timedelta(seconds=10), "time": at, "landed_at": at, "attributes": list(attributes.items()),
    }  # fmt: skip


def client(name: str, version: str = "4.3.0", **columns: Any) -> Row:
    """A row of client_changes: the client instance is known."""
    return {
        "cluster_id": "c", "client_instance_id": name, "client_id": name, "state": "active", "step": 1,
        "client_software_name": "apache-kafka-java", "client_software_version": version, "landed_at": NOW,
        "labels": [],
    } | columns  # fmt: skip


def put(lake: str, table: Table, rows: Sequence[Row]) -> None:
    """Append rows in one commit."""
    table.create(lake)
    found = pa.Table.from_pylist(list(rows), table.schema)
    write_deltalake(table.uri(lake), table.with_partition(found), mode="append")


def make_lake(folder: Path, *points: Row, clients: Sequence[Row] | None = None) -> str:
    """A lake with points, whose client instances are known unless other clients are given."""
    lake = str(folder / "lake")
    for table in (PUSHES, METRIC_POINTS, CLIENT_CHANGES, CLIENT_EVENTS):
        table.create(lake)
    known = [client(name) for name in dict.fromkeys(row["client_instance_id"] for row in points)]
    put(lake, CLIENT_CHANGES, known if clients is None else clients)
    if points:  # after the clients: an exporter that starts in between counts what is there, and waits for nobody
        put(lake, METRIC_POINTS, points)
    return lake


def ask(lake: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of an answer of `telemetry-lake query`."""
    return [tuple(row.values()) for row in run_query(lake, sql).read_all().to_pylist()]


def counting(
    lake: str, *, now: float = NOW.timestamp(), by: Sequence[str] = DEFAULT_DIMENSIONS, **selection: Any
) -> Counting:
    """What counts a lake, at a time. conftest.py closes it."""
    OPENED.append(Counting(lake, "prometheus", Selection(by, **selection), lambda: now))
    return OPENED[-1]


def shown(counted: Counting, dimension: str, measure: str) -> dict[tuple[str, ...] | None, float]:
    """The series of a counter; None: all others together."""
    return dict(counted.families[dimension, measure].exported())


def note_of(lake: str, name: str = "prometheus") -> Path:
    """The file with an exporter's position."""
    return Path(lake) / "metric_points" / f"_export-{name}-e000000000000.json"


def read_note(lake: str, name: str = "prometheus") -> dict[str, Any]:
    """Its content."""
    content: dict[str, Any] = json.loads(note_of(lake, name).read_text("utf-8"))
    return content
