"""Landing records as the job's query hands them to the task that stores them, from raw records or rows of `pushes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kafka_telemetry_lake.pipelines.ingest.landing_rows import LANDED, OTHERS
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.landing.contract import HEADERS

RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
COLUMNS = pa.unify_schemas([PUSHES.schema, RAW])
LANDED_SCHEMA = pa.schema([COLUMNS.field(name) for name in LANDED])


def landed(records: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Columns `LANDED` of records of source "test" that have a time."""
    rows = []
    for record in records:
        headers = {item["key"]: item["value"] for item in record["headers"]}
        cluster_id = headers.get("cluster_id")
        identity = {"source": "test", "cluster_id": cluster_id and cluster_id.decode()}
        rows.append({**record, **identity, "landed_at": record["timestamp"]})
    return pa.RecordBatch.from_pylist(rows, LANDED_SCHEMA)


def as_landed(rows: pa.Table) -> pa.Table:
    """Columns `LANDED`, and those of `OTHERS` that the rows have; a column that they lack is NULL.

    Args:
        rows: some columns of ``PUSHES.schema``, and of `OTHERS`.
    """
    names = [name for name in HEADERS if name in rows.column_names and name not in LANDED]
    texts = [[_bytes(value) for value in rows[name].to_pylist()] for name in names]
    headers = [
        [{"key": name, "value": value} for name, value in zip(names, values, strict=True) if value is not None]
        for values in (zip(*texts, strict=True) if names else [()] * rows.num_rows)
    ]
    ids = rows["client_instance_id"].cast(pa.binary()) if "client_instance_id" in rows.column_names else None
    raw = {
        "key": ids,
        "value": rows["payload"] if "payload" in rows.column_names else None,
        "headers": pa.array(headers, RAW.field("headers").type),
    }

    def column(name: str) -> Any:
        given = raw.get(name) if name in raw else rows[name] if name in rows.column_names else None
        return (
            pa.nulls(rows.num_rows, COLUMNS.field(name).type) if given is None else given.cast(COLUMNS.field(name).type)
        )

    landed = pa.table({name: column(name) for name in LANDED})
    for name in OTHERS:
        if name in rows.column_names:
            landed = landed.append_column(name, rows[name])
    return landed


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return ("true" if value else "false").encode() if isinstance(value, bool) else str(value).encode()
