"""Questions to a lake about the pushes of its client instances, and the points and payloads of these.

Their places: ``days`` and ``between`` (conditions on landed dates and times), ``cluster`` (its id as a literal),
``keys``, ``library``, ``epochs`` (rows of when each state of the subscriptions began, and its number).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlglot

from kafka_telemetry_lake.pipelines.libraries.views import library_columns
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.sql_text import filled, sql_file

KEYS = 'source, topic, "partition", "offset", landed_at'
LIBRARY = sqlglot.transpile(
    library_columns("client_software_name", "client_software_version")["library"][0], read="spark", write="duckdb"
)[0]
PUSHED = sql_file("subscriptions", "_pushed") + "\n"
PUSHES_OF = sql_file("subscriptions", "pushes")
POINTS_OF = sql_file("subscriptions", "points")
GAPS = sql_file("subscriptions", "gaps")
SAMPLES = sql_file("subscriptions", "samples")
SLOTS = sql_file("subscriptions", "slots")
NEWEST = sql_file("subscriptions", "newest")


def ask(lake: str, sql: str, parts: dict[str, Any]) -> pa.Table:
    """The answer to one of these questions."""
    return run_query(lake, of(sql, parts)).read_all()


def of(sql: str, parts: dict[str, Any]) -> str:
    """The text of one of these questions."""
    return filled(sql, {name: str(part) for name, part in parts.items()})
