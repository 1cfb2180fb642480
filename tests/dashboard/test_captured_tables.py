"""Every table of the captured lake, read by DuckDB alone and through delta-rs."""

from __future__ import annotations

from pathlib import Path

import duckdb
from deltalake import DeltaTable

from tests.unit.query.test_duckdb_tables import count, tables_of


def test_both_ways_to_read_give_the_same_rows(lake: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = {table.name: count(connection, DeltaTable(table)) for table in tables_of(lake)}
    assert (rows["pushes"], rows["push_outcomes"], rows["quarantine"]) == (1415, 1415, 0)
    assert rows["metric_points"] > 30_000
