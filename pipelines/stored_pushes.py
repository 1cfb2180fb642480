"""What replay and upkeep ask of stored pushes: by DuckDB, without Spark."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.once import IDENTITY

SAME = " AND ".join(f'n."{name}" IS NOT DISTINCT FROM h."{name}"' for name in IDENTITY)
# Days since 1970 before which pushes have been dropped: a transaction id of table `pushes`, so it outlives the log.
DROPPED_BEFORE = "kafka-telemetry-lake:dropped-before"


def ask(query: str, **tables: Any) -> list[tuple[Any, ...]]:
    """The rows that DuckDB answers over Arrow tables, datasets or scanners, by name."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows
