"""Landing records for tests: the captured ones, and hand-made ones in the shape of Spark's Kafka source."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CAPTURED = Path(__file__).parents[2] / "sandbox" / "data" / "captured"
INDEX = Path(__file__).parents[1] / "data" / "captured_index.jsonl"

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
LANDED_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GOOD_ID = "jHecHqLPQj2rnaP7QRzrmg"


def captured() -> pa.Table:
    """1,415 pushes of real clients, in the order of their landing time."""
    return pq.read_table(CAPTURED / "landed.parquet")


def captured_index() -> list[dict[str, Any]]:
    """The truth of each captured push, in the same order."""
    return [json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines()]


def record(
    offset: int, value: bytes | None, key: str | None = GOOD_ID, **headers: str | bytes | None
) -> dict[str, Any]:
    """One landing record; a header of None is left out, others replace the usual ones."""
    all_headers: dict[str, str | bytes | None] = {
        "client_instance_id": key,
        "client_id": "test-client",
        "terminating": "false",
    }
    all_headers |= headers
    return {
        "key": None if key is None else key.encode(),
        "value": value,
        "topic": "client-telemetry",
        "partition": 0,
        "offset": offset,
        "timestamp": LANDED_AT,
        "timestampType": 0,
        "headers": [
            {"key": name, "value": text if isinstance(text, bytes) else text.encode()}
            for name, text in all_headers.items()
            if text is not None
        ],
    }


def write(folder: Path, name: str, records: list[dict[str, Any]] | pa.Table) -> Path:
    """Write records as one Parquet file of a files source, whole at once."""
    folder.mkdir(parents=True, exist_ok=True)
    table = records if isinstance(records, pa.Table) else pa.Table.from_pylist(records, schema=SCHEMA)
    hidden = folder / f"_{name}"  # Spark doesn't look at names with an underscore
    pq.write_table(table, hidden)
    return hidden.rename(folder / name)
