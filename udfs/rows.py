"""The rows that the operator takes and gives, as Arrow schemas, and the columns of all tables, each with its meaning.

They are defined in `tables/*.yml`: type and meaning by name. Times are UTC microseconds. ``pipelines.tables`` makes the
Delta tables of these schemas.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa

from kafka_telemetry_lake.udfs.yaml_text import from_yaml

TIMESTAMP = pa.timestamp("us", "UTC")
TEXT_LIST = pa.list_(pa.string())
TEXT_MAP = pa.map_(pa.string(), pa.string())
DOUBLES = pa.list_(pa.float64())
BIGINTS = pa.list_(pa.int64())
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
    "list<string>": TEXT_LIST,
    "list<double>": DOUBLES,
    "list<bigint>": BIGINTS,
    "list<int>": pa.list_(pa.int32()),
    "map<string, string>": TEXT_MAP,
    "map<string, int>": pa.map_(pa.string(), pa.int32()),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
    "map<double, double>": pa.map_(pa.float64(), pa.float64()),
}


def column(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    """A column of a table, with what it means: docs/schema.md is made of that."""
    return pa.field(name, kind, metadata={"comment": meaning})


@cache
def definition(name: str) -> dict[str, Any]:
    """What `tables/*.yml` say of a table: its meaning, its columns and what else `pipelines.tables.table` knows."""
    found: dict[str, Any] = _definitions()[name]
    return found


@cache
def _definitions() -> dict[str, Any]:
    folder = files("kafka_telemetry_lake.udfs") / "tables"
    texts = (file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".yml"))
    return {name: table for text in texts for name, table in from_yaml(text).items()}


def columns(name: str) -> list[pa.Field]:
    """The columns of a table, those of the entry that it begins with first, without the partition."""
    of = definition(name)
    first = columns(of["begins"]) if "begins" in of else []
    return [*first, *(column(key, _TYPES[kind], meaning) for key, (kind, meaning) in of.get("columns", {}).items())]


PUSH_KEY = columns("push_key")
PUSH_COLUMNS = [*(field.name for field in PUSH_KEY), "client_instance_id", "client_id"]
"""The columns that every row of a push, and of its points, has of it."""

PUSHES = pa.schema(columns("pushes"))
METRIC_POINTS = pa.schema(columns("metric_points"))
QUARANTINE = pa.schema(columns("quarantine"))
PUSH_OUTCOMES = pa.schema(columns("push_outcomes"))
CLIENT_EVENTS = pa.schema(columns("client_events"))
METRIC_ROLLUPS = pa.schema(columns("metric_rollups"))

# What the operator reads of table `pushes`, the payload last.
_UNREAD = (*definition("pushes")["unread"], "payload")
PUSHES_IN = pa.schema([*(field for field in PUSHES if field.name not in _UNREAD), PUSHES.field("payload")])
# Connection metrics of a push (udfs.conversion.push_rows.push_signals); NULL when it has no such metric.
CONNECTION_SIGNALS = pa.schema(list(PUSH_OUTCOMES)[PUSH_OUTCOMES.get_field_index("client_port") :])
