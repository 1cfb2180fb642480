"""Plots with units on their axes, as Vega-Lite JSON: Altair's validation took longer than the queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.show import heading, nothing

# The Okabe-Ito palette for colour-blind readers, without its two colours that are invisible on white or on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3])
HEIGHT = 260
MOST_BARS = 15
LONGEST_LABEL_PX = 260
# Vega's default is a 12-hour clock without AM or PM.
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
NUMBER = ",.4~g"

Spec = dict[str, Any]


def lines(
    rows: pd.DataFrame,
    y: str,
    unit: str,
    title: str,
    by: str | None = None,
    step_s: int = 0,
    note: str = "",
    order: Sequence[str] = (),
) -> None:
    """Plot a line per value of column `by` over `at_ms`; a window without data is a gap in its line.

    Args:
        order: values of `by` that come first in the legend; others follow in row order.
    """
    with st.container(border=True):
        heading(title, note)
        rows = rows.dropna(subset=[y]) if len(rows) else rows
        if rows.empty:
            nothing()
            return
        name = by or "series"
        if by is None:
            rows = rows.assign(series=title)
        named = list(dict.fromkeys([*order, *rows[name]]))
        if step_s:
            rows = with_gaps(rows, y, name, step_s)
        # Dashed lines are drawn over solid ones, so that both are visible if their values are equal.
        rows = rows.sort_values(name, key=lambda names: names.map(named.index), kind="stable")
        # If all values were 0, the axis would have no length. Whole numbers need no fractional ticks.
        scale = {"domain": [0, 1]} if not rows[y].fillna(0).any() else {}
        whole = {"tickMinStep": 1} if (rows[y].dropna() % 1 == 0).all() else {}
        encoding: Spec = {
            "x": {
                "field": "at_ms", "type": "temporal", "scale": {"type": "utc"},
                "axis": {"format": TIME_FORMAT, "title": "time (UTC)", "titlePadding": 4, "labelFlush": False},
            },
            "y": {"field": y, "type": "quantitative", "scale": scale, "axis": {"title": unit, "tickCount": 5} | whole},
            "tooltip": [
                {"field": "at_ms", "type": "temporal", "title": "time (UTC)", "format": "%Y-%m-%d %H:%M:%S",
                 "formatType": "utc"},
                {"field": name, "type": "nominal", "title": " "},
                {"field": y, "type": "quantitative", "title": unit, "format": NUMBER},
            ],
        }  # fmt: skip
        line: Spec = {"mark": {"type": "line", "strokeWidth": 2, "invalid": "break-paths-show-domains"}}
        dots: Spec = {"mark": {"type": "circle", "size": 18, "opacity": 1}}
        height = HEIGHT
        if by is None:
            line["mark"]["color"] = dots["mark"]["color"] = PALETTE[0]
        else:
            columns = 3 if len(named) <= 3 else 2
            height += 18 * (-(-len(named) // columns) - 1)
            # Colours and dashes share a legend, so that dashes identify a line too.
            legend = {
                "orient": "top", "title": None, "labelLimit": LONGEST_LABEL_PX, "symbolType": "stroke",
                "symbolSize": 400, "columns": columns, "offset": 4, "padding": 0,
            }  # fmt: skip
            channel = {"field": name, "type": "nominal", "legend": legend}
            encoding["color"] = channel | {"scale": {"domain": named, "range": _repeat(PALETTE, named)}}
            line["encoding"] = {"strokeDash": channel | {"scale": {"domain": named, "range": _repeat(DASHES, named)}}}
        _draw(rows, {"layer": [line, dots], "encoding": encoding}, height)


def bars(rows: pd.DataFrame, x: str, y: str, unit: str, title: str, note: str = "") -> None:
    """Plot a horizontal bar for each of the first `MOST_BARS` rows."""
    with st.container(border=True):
        heading(title, note)
        rows = rows.dropna(subset=[x]).head(MOST_BARS) if len(rows) else rows
        if rows.empty:
            nothing()
            return
        axis: Spec = {"title": unit, "titlePadding": 4, "tickCount": 5}
        if (rows[x] % 1 == 0).all():
            axis |= {"tickMinStep": 1, "format": ",d"}
        spec: Spec = {
            "mark": {"type": "bar", "color": PALETTE[0], "height": {"band": 0.6}},
            "encoding": {
                "x": {"field": x, "type": "quantitative", "axis": axis},
                "y": {"field": y, "type": "nominal", "sort": None,
                      "axis": {"title": None, "labelLimit": LONGEST_LABEL_PX, "labelOverlap": False}},
                "tooltip": [
                    {"field": y, "type": "nominal", "title": " "},
                    {"field": x, "type": "quantitative", "title": unit, "format": NUMBER},
                ],
            },
        }  # fmt: skip
        _draw(rows, spec, max(HEIGHT, 22 * len(rows) + 60))


def with_gaps(rows: pd.DataFrame, y: str, name: str, step_s: int) -> pd.DataFrame:
    """The rows, with a row of value NaN wherever the next window of a line is missing."""
    rows = rows.sort_values([name, "at_ms"])
    follower = rows.groupby(name, sort=False)["at_ms"].shift(-1)
    breaks = rows[follower.notna() & (follower - rows["at_ms"] > 1.5 * step_s * 1000)]
    holes = breaks.assign(at_ms=breaks["at_ms"] + step_s * 1000)
    holes[y] = float("nan")
    return pd.concat([rows, holes]).sort_values([name, "at_ms"], kind="stable")


def _draw(rows: pd.DataFrame, spec: Spec, height: int) -> None:
    drawn = [field for field in _fields(spec) if field in rows.columns]
    whole = spec | {"height": height, "padding": {"left": 0, "right": 8, "top": 2, "bottom": 2}}
    st.vega_lite_chart(rows[drawn], whole, width="stretch", height=height)


def _fields(spec: Any) -> list[str]:
    """The columns that a spec refers to."""
    if isinstance(spec, list):
        return list(dict.fromkeys(field for part in spec for field in _fields(part)))
    if not isinstance(spec, dict):
        return []
    own = [spec["field"]] if "field" in spec else []
    return list(dict.fromkeys([*own, *_fields(list(spec.values()))]))


def _repeat(values: tuple[Any, ...], named: list[str]) -> list[Any]:
    return [values[index % len(values)] for index in range(len(named))]
