"""A view's answer over a few rows, in DuckDB, as ``telemetry-lake query`` asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG

Rows = Sequence[Mapping[str, Any]]
# One thread: for a few rows more threads cost more than they save.
DATABASE = duckdb.connect(config={"threads": 1})


class Views:
    """A connection with the views that were asked for, each made once: that takes longer than most answers."""

    def __init__(self, overrides: Overrides, closing: bool) -> None:
        self._judged = overrides, closing
        self.connection = DATABASE.cursor()
        self.connection.execute("SET TimeZone = 'UTC'")
        self._made: set[str] = set()

    def tables_below(self, view: str) -> list[str]:
        """Make a view and those below it; returns the names of the tables that they read."""
        views, tables = needed([view], *self._judged)
        for name in {*tables} - self._made:
            self.connection.register(name, CATALOG[name].empty_table())
        for each in views:
            if each.name not in self._made:
                self.connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
        self._made |= {*tables, *(each.name for each in views)}
        return tables


views_judged_by = cache(Views)


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
    views = views_judged_by(overrides, closing)
    below = views.tables_below(view)
    assert tables.keys() <= set(below), f"{view} doesn't read {sorted(tables.keys() - set(below))}"
    for name in below:
        rows = list(tables.get(name, ()))
        assert all(row.keys() <= set(CATALOG[name].names) for row in rows), name
        views.connection.register(name, pa.Table.from_pylist(rows, CATALOG[name]))
    asked = views.connection.sql(sql or f'SELECT * FROM "{view}" ORDER BY ALL')
    return list(asked.to_arrow_table().to_pylist())


def told(
    view: str, tables: Mapping[str, Rows], columns: str, where: str = "TRUE", order: str = "ALL"
) -> list[tuple[Any, ...]]:
    """These columns of a view's rows."""
    rows = answer(view, tables, f"SELECT {columns} FROM {view} WHERE {where} ORDER BY {order}")
    return [tuple(row.values()) for row in rows]
