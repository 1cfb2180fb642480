"""Where links lead: every name that a page shows has a page of its own, and every state of a page is an address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import pandas as pd

from kafka_telemetry_lake.dashboards.pages import OF_COLUMN
from kafka_telemetry_lake.dashboards.selection import Selection

TIMES = ("range", "from", "to", "refresh", "compare")
MANY = ", "  # how views list several names in a text


def address(page: str, selection: Selection, /, **query: str | None) -> str:
    """The address of a page in the same time range, without the filters; parameters that are None are left out."""
    kept = {key: value for key, value in selection.query().items() if key in TIMES}
    return with_query(page, kept | {key: value for key, value in query.items() if value is not None})


def with_query(page: str, query: Mapping[str, object]) -> str:
    """A page with a query."""
    return f"{page or '.'}?{urlencode(query, doseq=True)}" if query else page or "."


def of_value(column: str, value: object, selection: Selection) -> str | None:
    """The address of the page about a value of a column; None: there is no page about it."""
    if column not in OF_COLUMN or not isinstance(value, str | int) or value in ("", "<default>"):
        return None
    text = str(value)
    if column in ("application", "owner") and MANY in text:
        return None  # of several: the row's other links lead there
    page, key = OF_COLUMN[column]
    return address(page, selection, **{key: text})


def of_column(rows: pd.DataFrame, column: str, selection: Selection) -> list[str | None] | None:
    """The addresses of a column's values; None: its values have no pages."""
    if f"{column} link" in rows.columns:  # the caller knows better, as for a finding's subject
        return [None if pd.isna(value) else str(value) for value in rows[f"{column} link"]]
    if column not in OF_COLUMN:
        return None
    known = dict[object, str | None]()
    return [_known(known, column, value, selection) for value in rows[column]]


def _known(known: dict[object, str | None], column: str, value: object, selection: Selection) -> str | None:
    """The address of a value, made once: thousands of rows have a few principals, groups and versions."""
    if not isinstance(value, str | int):  # a missing value, or a list
        return None
    if value not in known:
        known[value] = of_value(column, value, selection)
    return known[value]
