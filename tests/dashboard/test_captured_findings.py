"""Findings of what real clients pushed: those that something happened to, and none of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.dashboard.captured_lake import push_row, write_lake
from tests.support.landing_records import CAPTURED, captured


def found(lake: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Severity and evidence by finding and client id."""
    rows = run_query(str(lake), "SELECT * FROM findings").read_all().to_pylist()
    return {(row["finding"], row["client_id"]): (row["severity"], row["evidence"]) for row in rows}


def test_captured_clients(lake: Path) -> None:
    """Of 129 client ids; `producer_stop` lost its cluster for seven minutes."""
    hour = ", in the hour from 2026-11-21 12:00 UTC"
    lost = ("info", f"1 intervals were collected by the client but never landed{hour}")
    assert found(lake) == {
        ("failed_records", "java-none-producer_stop"): ("error", f"395 records could not be sent (112 were){hour}"),
        ("stale_metadata", "java-none-producer_stop"): ("error", f"the metadata of the producer is 408 s old{hour}"),
        ("lost_telemetry", "java-none-producer_stop"): lost,
        ("lost_telemetry", "java-rebootstrap-producer_stop"): lost,
        ("one_record_per_request", "java-producer-busyclose_lz4-delta"): (
            "warning",
            f"1.4 records per request at 72.8 records/s per instance{hour}",
        ),
        ("uncompressed_records", "java-producer-busyclose_zstd-cumulative"): (
            "info",
            f"1.4 MB were sent at 100.0 % of their size{hour}",
        ),
    }


def test_damaged_and_large_pushes(tmp_path: Path) -> None:
    """The demo's damaged pushes, and a captured push's metrics over and over until they are near what is allowed."""
    damaged = pq.read_table(CAPTURED.parent / "damaged.parquet").to_pylist()
    one = next(record for record in captured().to_pylist() if header(record, "compression_type") == b"none")
    renamed = [each for each in one["headers"] if each["key"] != "client_id"] + [
        {"key": "client_id", "value": b"large"}
    ]
    large = one | {"headers": renamed, "offset": 10**6, "value": one["value"] * (900_000 // len(one["value"]))}
    rows = [push_row(record) for record in (*damaged, large)]
    detected = found(write_lake(tmp_path / "lake", pa.Table.from_pylist(rows, PUSHES.schema)))
    assert detected["unreadable_telemetry", "damaged-client"][0] == "error"
    assert detected["large_telemetry", "large"][0] == "warning"


def header(record: dict[str, Any], key: str) -> bytes | None:
    return next((each["value"] for each in record["headers"] if each["key"] == key), None)
