"""A lake with the rollups of an application's clients, minute by minute around noon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    PUSH_OUTCOMES,
    PUSHES,
    TABLES,
)
from kafka_telemetry_lake.pipelines.tables.table import Table

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SENT, LATENCY = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.producer.request.latency.avg"
Minutes = npt.NDArray[np.float64]
"""A value per minute, NaN: none. The first is that of minute `first` from noon on."""


def put(lake: Path, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a table; what they leave out is NULL, what it has no columns for is left out."""
    stored = pa.Table.from_pylist([dict(row) for row in rows], table.stored)
    write_deltalake(table.create(str(lake)), stored, mode="append")


def application_lake(
    lake: Path,
    measures: Mapping[str, Minutes],
    first: int,
    client_id: str = "orders",
    application: str = "shop",
    keys: Mapping[str, str] | None = None,
    covered_s: float = 60.0,
) -> Path:
    """Record measures of a client id that an application has; may be called again for another client id.

    Args:
        measures: metric to its minutes. One whose name ends with `.total` is a counter with so much increase a minute.
        keys: names of the attributes of some metrics.
        covered_s: seconds that an increase covers.
    """
    for table in TABLES:
        table.create(str(lake))
    for table, minutes in ((METRIC_ROLLUPS_1M, 1), (METRIC_ROLLUPS_1H, 60)):
        parts = [
            _rollups(metric, values, first, minutes, client_id, (keys or {}).get(metric, ""), covered_s)
            for metric, values in measures.items()
        ]
        write_deltalake(table.uri(str(lake)), pa.concat_tables(parts), mode="append")
    begin, count = NOON + timedelta(minutes=first), len(next(iter(measures.values())))
    put(lake, CLIENT_CHANGES, [client(client_id, begin, begin + timedelta(minutes=count))])
    put(lake, CLIENT_ALIASES, [
        {"cluster_id": "c", "client_id": client_id, "application": application, "valid_from": begin}
    ])  # fmt: skip
    times = [begin + timedelta(minutes=minute) for minute in range(0, count, 5)]
    pushes = [
        {
            "cluster_id": "c", "client_instance_id": f"i-{client_id}", "client_id": client_id, "landed_at": at,
            "landed_date": at.date(), "push_interval_ms": 60_000, "client_software_name": "apache-kafka-java",
            "client_software_version": "4.1.0",
        }
        for at in times
    ]  # fmt: skip
    outcomes = [{name: row[name] for name in row if name in PUSH_OUTCOMES.stored.names} for row in pushes]
    put(lake, PUSHES, pushes)
    put(lake, PUSH_OUTCOMES, outcomes)
    return lake


def client(client_id: str, first: datetime, last: datetime, **more: Any) -> dict[str, Any]:
    return {
        "cluster_id": "c", "client_instance_id": f"i-{client_id}", "client_id": client_id, "step": 1,
        "client_software_name": "apache-kafka-java", "client_software_version": "4.1.0", "state": "active",
        "first_seen": first, "last_seen": last,
    } | more  # fmt: skip


def _rollups(
    metric: str, values: Minutes, first: int, minutes: int, client_id: str, keys: str, covered_s: float
) -> pa.Table:
    """A measure's rows of a rollup of so many minutes; the table of hours is made of the same minutes."""
    numbers = np.flatnonzero(~np.isnan(values))
    given, starts = values[numbers], (first + numbers) // minutes * minutes
    starts, of = np.unique(starts, return_inverse=True)
    sums, counts = np.bincount(of, given), np.bincount(of)
    micros = pa.array((round(NOON.timestamp()) + 60 * starts) * 1_000_000, pa.int64())
    at = micros.cast(METRIC_ROLLUPS_1M.schema.field("window_start").type)
    is_counter = metric.endswith(".total")
    whole = bool((sums % 1 == 0).all())
    columns: dict[str, Any] = {
        "cluster_id": ["c"] * len(at), "window_start": at, "client_id": [client_id] * len(at),
        "metric": [metric] * len(at), "kind": ["sum" if is_counter else "gauge"] * len(at),
        "temporality": ["cumulative" if is_counter else None] * len(at), "attribute_keys": [keys] * len(at),
        "points": counts, "value_count": counts, "value_sum": sums, "landed_at": at,
        "landed_date": at.cast(pa.date32()),
    }  # fmt: skip
    if is_counter:
        columns |= {"increase": sums, "covered_s": counts * covered_s}
        columns |= {"increase_int": sums.astype(np.int64)} if whole else {}
    stored = METRIC_ROLLUPS_1M.stored
    arrays = [
        pa.array(columns[name], kind) if name in columns else pa.nulls(len(at), kind)
        for name, kind in zip(stored.names, stored.types, strict=True)
    ]
    return pa.table(arrays, schema=stored)
