"""How things are shown: plots with units on their axes, tables, numbers. Text of clients is shown, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

# Okabe and Ito's colours, told apart by the colour-blind, less the two that vanish on white or black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3])
HEIGHT = 250
# Vega's own has twelve hours, without saying which half of the day.
TIME_FORMAT = {
    "seconds": "%H:%M:%S",
    "minutes": "%H:%M",
    "hours": "%H:%M",
    "day": "%b %d",
    "date": "%b %d",
    "week": "%b %d",
    "month": "%b %Y",
    "year": "%Y",
}
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])")


def plain(text: object) -> str:
    """Text for places that read Markdown, shown as it stands."""
    return MARKDOWN.sub(r"\\\1", str(text).replace("\n", " "))


def halves() -> Iterator[Any]:
    """Places for plots, two side by side, as many as are asked for."""
    while True:
        yield from st.columns(2)


def lines(
    rows: pd.DataFrame, y: str, unit: str, title: str, by: str | None = None, step_s: int = 0, note: str = ""
) -> None:
    """A line per value of column `by`, over `at_ms`; a window without data is a gap, not a line across it."""
    with st.container(border=True):
        heading(title, note)
        rows = rows.dropna(subset=[y]) if len(rows) else rows
        if rows.empty:
            nothing()
            return
        name = by or "series"
        if by is None:
            rows = rows.assign(series=title)
        order = list(dict.fromkeys(rows[name]))
        if step_s:
            rows = with_gaps(rows, y, name, step_s)
        x = alt.X("at_ms:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=alt.Axis(format=TIME_FORMAT))
        encoded: dict[str, Any] = {
            "x": x,
            "y": alt.Y(f"{y}:Q", title=unit, scale=alt.Scale(domain=[0, 1]) if not rows[y].any() else alt.Undefined),
            "tooltip": [
                alt.Tooltip("at_ms:T", title="time (UTC)", format="%Y-%m-%d %H:%M:%S", formatType="utc"),
                alt.Tooltip(f"{name}:N", title=" "),
                alt.Tooltip(f"{y}:Q", title=unit, format=",.4~g"),
            ],
        }
        if by is not None:
            legend = alt.Legend(
                orient="bottom", title=None, columns=2, labelLimit=260, symbolType="stroke", symbolSize=400
            )
            colors = alt.Scale(domain=order, range=_repeat(PALETTE, order))
            encoded["color"] = alt.Color(f"{name}:N", scale=colors, legend=legend)
        line = alt.Chart(rows).encode(**encoded)
        drawn = line.mark_line(strokeWidth=2, invalid="break-paths-show-domains", **_one_color(by))
        if by is not None:
            dashes = alt.Scale(domain=order, range=_repeat(DASHES, order))
            drawn = drawn.encode(strokeDash=alt.StrokeDash(f"{name}:N", scale=dashes, legend=legend))
        chart = drawn + line.mark_circle(size=18, opacity=1, **_one_color(by))
        st.altair_chart(chart.properties(height=HEIGHT), width="stretch")


def bars(rows: pd.DataFrame, x: str, y: str, unit: str, title: str, note: str = "") -> None:
    """A horizontal bar per row, largest first."""
    with st.container(border=True):
        heading(title, note)
        rows = rows.dropna(subset=[x])
        if rows.empty:
            nothing()
            return
        chart = (
            alt.Chart(rows.head(15))
            .mark_bar(color=PALETTE[0])
            .encode(
                x=alt.X(f"{x}:Q", title=unit),
                y=alt.Y(f"{y}:N", sort=None, title=None, axis=alt.Axis(labelLimit=260, labelOverlap=False)),
                tooltip=[alt.Tooltip(f"{y}:N", title=" "), alt.Tooltip(f"{x}:Q", title=unit, format=",.4~g")],
            )
        )
        st.altair_chart(chart.properties(height=max(HEIGHT, 22 * min(len(rows), 15) + 60)), width="stretch")


def with_gaps(rows: pd.DataFrame, y: str, name: str, step_s: int) -> pd.DataFrame:
    """The rows with one of no value after each that isn't followed by the next window."""
    rows = rows.sort_values([name, "at_ms"])
    follower = rows.groupby(name, sort=False)["at_ms"].shift(-1)
    breaks = rows[follower.notna() & (follower - rows["at_ms"] > 1.5 * step_s * 1000)]
    holes = breaks.assign(at_ms=breaks["at_ms"] + step_s * 1000)
    holes[y] = float("nan")
    return pd.concat([rows, holes]).sort_values([name, "at_ms"], kind="stable")


def table(rows: pd.DataFrame | None, columns: Mapping[str, str], title: str, note: str = "", **options: Any) -> Any:
    """A table of these columns, with their headings; `rows` of None: what it needs isn't in this installation."""
    with st.container(border=True):
        heading(title, note)
        if rows is None or rows.empty:
            nothing()
            return None
        kept = [name for name in columns if name in rows.columns]
        texts: dict[str, Any] = {name: rows[name].map(_as_text) for name in kept if rows[name].map(_is_nested).any()}
        rows = rows.assign(**texts)
        config: dict[str, Any] = {name: _column(rows[name], columns[name]) for name in kept}
        return st.dataframe(
            rows[kept],
            column_config=config,
            hide_index=True,
            width="stretch",
            height=min(420, 38 + 35 * len(rows)),
            placeholder="–",
            **options,
        )


def every_column(rows: pd.DataFrame | None, title: str, note: str = "") -> None:
    """A table of all columns, headed by their names."""
    names = {} if rows is None else {name: name.replace("_", " ") for name in rows.columns}
    table(rows, names, title, note)


def numbers(values: Mapping[str, tuple[Any, str]]) -> None:
    """Large numbers side by side: label to value and explanation."""
    for column, (label, (value, meaning)) in zip(st.columns(len(values)), values.items(), strict=True):
        column.metric(label, short(value), help=meaning, border=True)


def short(value: Any) -> str:
    """A number in few characters: 1,234, 56.7 k, 8.9 M."""
    if value is None or pd.isna(value):
        return "–"
    number = float(value)
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(number) >= size:
            return f"{number / (1e3 if letter == ' k' else size):,.3g}{letter}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:,.3g}"


def heading(title: str, note: str = "") -> None:
    st.markdown(f"**{plain(title)}**", help=note or None)


def nothing() -> None:
    st.caption("Nothing in this time range for these filters.")


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


def _one_color(by: str | None) -> dict[str, Any]:
    return {} if by is not None else {"color": PALETTE[0]}


def _repeat(values: tuple[Any, ...], order: list[str]) -> list[Any]:
    return [values[index % len(values)] for index in range(len(order))]
