"""Shows tables, numbers and text. Names that clients chose are escaped, so that they can't act as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from kafka_telemetry_lake.pipelines.query.printable import printable

PINNED = ("client id", "consumer group")
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])")


def plain(text: object) -> str:
    """Text escaped for places that render Markdown."""
    return MARKDOWN.sub(r"\\\1", printable(str(text).replace("\n", " ")))


def halves() -> Iterator[Any]:
    """Yield containers for plots without end, two side by side."""
    while True:
        yield from st.columns(2)


def table(
    rows: pd.DataFrame | None,
    columns: Mapping[str, str],
    title: str,
    note: str = "",
    none: str = "",
    **options: Any,
) -> Any:
    """Show these columns under their headings; `rows` is None if this installation lacks the table or view."""
    with st.container(border=True):
        heading(title, note)
        if rows is None or rows.empty:
            nothing(none)
            return None
        shown = [name for name in columns if name in rows.columns]
        texts: dict[str, Any] = {name: rows[name].map(_as_text) for name in shown if rows[name].map(_is_nested).any()}
        rows = rows.assign(**texts)
        config: dict[str, Any] = {name: _column(rows[name], columns[name]) for name in shown}
        if columns[shown[0]] in PINNED:  # stays visible while the others scroll
            config[shown[0]] = st.column_config.TextColumn(columns[shown[0]], pinned=True)
        return st.dataframe(
            rows[shown],
            column_config=config,
            hide_index=True,
            width="stretch",
            height=min(420, 38 + 35 * len(rows)),
            placeholder="–",
            **options,
        )


def every_column(rows: pd.DataFrame | None, title: str, note: str = "", none: str = "") -> None:
    """Show a table of all columns under their own names; `none` is the text if there are no rows."""
    names = {} if rows is None else {name: name.replace("_", " ") for name in rows.columns}
    if rows is not None and "cluster_id" in names and rows["cluster_id"].nunique() <= 1:
        del names["cluster_id"]  # a lake of one cluster
    if "client_id" in names:
        names = {"client_id": names["client_id"], **names}
    table(rows, names, title, note, none)


def numbers(values: Mapping[str, tuple[Any, str]]) -> None:
    """Show large numbers side by side, given as label to value and explanation."""
    for column, (label, (value, meaning)) in zip(st.columns(len(values)), values.items(), strict=True):
        column.metric(label, short(value), help=meaning, border=True)


def short(value: Any) -> str:
    """A number in few characters: 56,789, 568 k, 8.9 M."""
    if value is None or pd.isna(value):
        return "–"
    number = float(value)
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e5, " k")):
        if abs(number) >= size:
            return f"{number / (1e3 if letter == ' k' else size):,.3g}{letter}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:,.3g}"


def heading(title: str, note: str = "") -> None:
    st.markdown(f"**{plain(title)}**", help=note or None)


def nothing(none: str = "") -> None:
    st.caption(none or "No rows in this time range for these filters.")


def _column(values: pd.Series, label: str) -> Any:
    if label.endswith("open"):
        return st.column_config.LinkColumn(label, display_text="open", width="small")
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return st.column_config.DatetimeColumn(label, format="YYYY-MM-DD HH:mm:ss", timezone="UTC")
    if pd.api.types.is_bool_dtype(values):
        return st.column_config.CheckboxColumn(label)
    if pd.api.types.is_numeric_dtype(values):
        whole = pd.api.types.is_integer_dtype(values) or bool((values.dropna() % 1 == 0).all())
        large = bool((values.abs() >= 10_000).any())
        return st.column_config.NumberColumn(label, format="localized" if whole or large else "%.4g")
    return st.column_config.TextColumn(label)


def _is_nested(value: object) -> bool:
    return isinstance(value, list | tuple | dict | np.ndarray)


def _as_text(value: Any) -> str | None:
    """A map as `key=value, ...`, a list as its values."""
    if value is None or not _is_nested(value):
        return None if value is None else str(value)
    pairs = value.items() if isinstance(value, dict) else value
    return ", ".join("=".join(map(str, pair)) if isinstance(pair, tuple) else str(pair) for pair in pairs)
