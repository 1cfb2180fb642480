"""A view's answer over a few rows, in DuckDB, as ``telemetry-lake query`` asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.query.finding_overrides import Overrides
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG

Rows = Sequence[Mapping[str, Any]]


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
        overrides, closing: by what findings are judged; see `finding_views`.
    """
    views, below = needed([view], overrides, closing)
    assert tables.keys() <= set(below), f"{view} doesn't read {sorted(tables.keys() - set(below))}"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in below:
            assert all(row.keys() <= set(CATALOG[name].names) for row in tables.get(name, ())), name
            connection.register(name, pa.Table.from_pylist(list(tables.get(name, ())), CATALOG[name]))
        for each in views:
            connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
        rows = connection.sql(sql or f'SELECT * FROM "{view}" ORDER BY ALL').to_arrow_table()
        return list(rows.to_pylist())
