"""A view's answer over a few rows, in DuckDB, as ``telemetry-lake query`` asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.findings.overrides import Overrides
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG

Rows = Sequence[Mapping[str, Any]]
# To make a database and its views takes longer than most answers: they are made once.
DATABASE = duckdb.connect()


@cache
def opened(view: str, overrides: Overrides, closing: bool) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """A connection with a view, those below it and their empty tables; and the names of the tables."""
    views, below = needed([view], overrides, closing)
    connection = DATABASE.cursor()
    connection.execute("SET TimeZone = 'UTC'")
    for name in below:
        connection.register(name, CATALOG[name].empty_table())
    for each in views:
        connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
    return connection, below


def answer(
    view: str,
    tables: Mapping[str, Rows],
    sql: str | None = None,
    overrides: Overrides = (),
    closing: bool = False,
) -> list[dict[str, Any]]:
    """Rows of a view, or of `sql` over it, in the order of all columns.

    Args:
        tables: rows of the tables below the view; what a row leaves out is NULL, a table left out is empty.
        overrides, closing: by what findings are judged; see ``finding_values``.
    """
    connection, below = opened(view, overrides, closing)
    assert tables.keys() <= set(below), f"{view} doesn't read {sorted(tables.keys() - set(below))}"
    for name in below:
        rows = list(tables.get(name, ()))
        assert all(row.keys() <= set(CATALOG[name].names) for row in rows), name
        connection.register(name, pa.Table.from_pylist(rows, CATALOG[name]))
    return list(connection.sql(sql or f'SELECT * FROM "{view}" ORDER BY ALL').to_arrow_table().to_pylist())
