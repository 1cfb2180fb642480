"""Queries on stored pushes for replay and maintenance, in DuckDB instead of Spark."""

from __future__ import annotations

from typing import Any

import duckdb

from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY

# The application id in table `pushes` whose version is the first retained day, as days since 1970. A transaction of
# the table outlives its log.
DROPPED_BEFORE = "kafka-telemetry-lake:dropped-before"


def same_push(left: str, right: str) -> str:
    """SQL condition on two relations, given by name: their rows are of the same push."""
    return " AND ".join(f'{left}."{name}" IS NOT DISTINCT FROM {right}."{name}"' for name in IDENTITY)


def ask(query: str, **tables: Any) -> list[tuple[Any, ...]]:
    """Run a DuckDB query on Arrow tables, datasets or scanners, given by name, and return its rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows
