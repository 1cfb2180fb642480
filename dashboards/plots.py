"""Plots with units on their axes, as Vega-Lite JSON: Altair's validation took longer than the queries.

Below each plot stand what it shows in words, and its rows as a table. Dragging over a plot makes what is dragged over
the page's time range. Lines upon it mark changes: see `scene.Scene.marks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plot_layers import MOMENT, Spec, bars_between, marked
from kafka_telemetry_lake.dashboards.plot_style import (
    HEIGHT,
    LONGEST_LABEL_PX,
    NUMBER,
    PADDING_PX,
    PALETTE,
    TIME_FORMAT,
    axis_labels,
    config,
    legend_columns,
    styles,
    time_ticks,
)
from kafka_telemetry_lake.dashboards.show import element, heading, nothing, page_state, readable, table_data

MOST_BARS = 15
MOST_SERIES = 11
OTHER, BEFORE = "all others", "before"
SHORTEST_ZOOM_MS = 1000
SECONDS = {"tickMinStep": 1000}  # of an axis of time: parts of a second have no label


def lines(
    rows: pd.DataFrame,
    y: str,
    unit: str,
    title: str,
    by: str | None = None,
    step_s: int = 0,
    note: str = "",
    order: Sequence[str] = (),
    *,
    height: int = HEIGHT,
    domain: tuple[datetime, datetime] | None = None,
    rest: bool = False,
    none: str = "",
    band: tuple[str, ...] = (),
    marks: pd.DataFrame | None = None,
    words: str = "",
) -> None:
    """Plot a line per value of column `by` over `at_ms`; a window without data is a gap in its line.

    Rows with a true column `before` are those of an earlier time, drawn thin and grey behind the others.

    Args:
        order: values of `by` that come first in the legend; others follow in row order.
        domain: ends of the time axis, for plots that stand below each other.
        rest: whether the smallest series may be added up to one, if there are many.
        none: the reason if there are no rows.
        band: two values of `by` between which a grey bar stands in each window, in place of their lines.
        marks: changes to mark, other than those of the page.
        words: what the plot shows, for everybody to read; without them `in_words`, for who can't see it.
    """
    with st.container(border=True):
        heading(title, note)
        sql = rows.attrs.get("sql", "")
        rows = rows.dropna(subset=[y]) if len(rows) else rows
        if rows.empty:
            nothing(none)
            return
        name = by or "series"
        rows = rows.assign(series=title) if by is None else rows
        rows = _few(rows, y, name) if rest else rows
        if "before" in rows.columns:
            rows[name] = rows[name].astype(str) + rows["before"].map({True: f" ({BEFORE})", False: ""})
        shown = rows
        between, rows = rows[rows[name].isin(band)], rows[~rows[name].isin(band)]
        present = set(rows[name])
        named = list(dict.fromkeys([*(each for each in order if each in present), *rows[name]]))
        if step_s:
            rows = with_gaps(rows, y, name, step_s)
        # Dashed lines are drawn over solid ones, so that both are visible if their values are equal.
        rows = rows.sort_values(name, key=lambda names: names.map(named.index), kind="stable")
        changes = marked(rows, domain, step_s, page_state().marks if marks is None else marks)
        spec, height = _line_spec(rows, y, unit, name, named, height, domain, changes)
        spec["layer"][:0] = bars_between(between, y, spec["layer"][0]["encoding"])
        draw(rows, spec, height, title)
        said = words or in_words(shown, y, name, unit)
        _foot(shown[["at_ms", name, y]], y, unit, title, said, sql, seen=bool(words))


def _line_spec(
    rows: pd.DataFrame, y: str, unit: str, name: str, named: list[str], height: int, domain: Any, marks: list[Spec]
) -> tuple[Spec, int]:
    # If all values were 0, the axis would have no length. Whole numbers need no fractional ticks.
    scale = {"domain": [0, 1]} if not rows[y].fillna(0).any() else {}
    whole = {"tickMinStep": 1} if (rows[y].dropna() % 1 == 0).all() else {}
    labels, unit_title = axis_labels(unit)
    time_scale: Spec = {"type": "utc"} | ({"domain": [_date(end) for end in domain]} if domain else {})
    y_axis = {"title": unit_title, "tickCount": 5, "minExtent": 60 if domain else 0} | labels | whole
    y_axis |= time_ticks(rows[y].max(), unit)
    encoding: Spec = {
        "x": {
            "field": "at_ms",
            "type": "temporal",
            "scale": time_scale,
            "axis": {"format": TIME_FORMAT, "title": "time (UTC)", "titlePadding": 4, "labelFlush": False} | SECONDS,
        },
        "y": {"field": y, "type": "quantitative", "scale": scale, "axis": y_axis},
        "tooltip": [
            {"field": "at_ms"} | MOMENT,
            {"field": name, "type": "nominal", "title": " "},
            {"field": y, "type": "quantitative", "title": unit, "format": NUMBER},
        ],
    }
    line: Spec = {"mark": {"type": "line", "strokeWidth": 2, "invalid": "break-paths-show-domains"}}
    dots: Spec = {"mark": {"type": "circle", "size": 18, "opacity": 1}}
    line["params"] = [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}}]
    if len(named) == 1:
        line["mark"]["color"] = dots["mark"]["color"] = PALETTE[0]
    else:
        columns = 3 if len(named) <= 3 else 2  # as many as fit
        height += 18 * (-(-len(named) // columns) - 1)
        # Colours and dashes share a legend, so that dashes identify a line too.
        legend = {
            "orient": "top", "title": None, "labelLimit": LONGEST_LABEL_PX, "symbolType": "stroke",
            "symbolSize": 400, "columns": {"expr": legend_columns(named, columns)}, "offset": 4, "padding": 0,
        }  # fmt: skip
        colors, dashes = styles(named, f" ({BEFORE})")
        channel = {"field": name, "type": "nominal", "legend": legend}
        encoding["color"] = channel | {"scale": {"domain": named, "range": colors}}
        line["encoding"] = {"strokeDash": channel | {"scale": {"domain": named, "range": dashes}}}
    for layer in (line, dots):
        layer["encoding"] = encoding | layer.get("encoding", {})
    return {"layer": [line, dots, *marks]}, height


def _few(rows: pd.DataFrame, y: str, name: str) -> pd.DataFrame:
    """The largest series, and all others added up."""
    sizes = rows.groupby(name)[y].sum().sort_values(ascending=False)
    if len(sizes) <= MOST_SERIES:
        return rows
    large = set(sizes.index[: MOST_SERIES - 1])
    others = rows[~rows[name].isin(large)].groupby("at_ms")[y].sum().reset_index().assign(**{name: OTHER})
    return pd.concat([rows[rows[name].isin(large)], others])


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
        words = f"Most: {rows[y].iloc[0]}, {readable(rows[x].iloc[0])} {unit}."
        spec: Spec = {
            "mark": {"type": "bar", "color": PALETTE[0], "height": {"band": 0.6}},
            "encoding": {
                "x": {"field": x, "type": "quantitative", "axis": axis},
                "y": {
                    "field": y,
                    "type": "nominal",
                    "sort": None,
                    "axis": {"title": None, "labelLimit": LONGEST_LABEL_PX, "labelOverlap": False},
                },
                "tooltip": [
                    {"field": y, "type": "nominal", "title": " "},
                    {"field": x, "type": "quantitative", "title": unit, "format": NUMBER},
                ],
            },
        }
        draw(rows, spec, max(HEIGHT, 22 * len(rows) + 60))
        table_foot(rows[[y, x]], {y: y.replace("_", " "), x: unit}, title, words, rows.attrs.get("sql", ""))


def heat(
    rows: pd.DataFrame, y: str, amount: str, unit: str, title: str, step_s: int, note: str = "", none: str = ""
) -> None:
    """Plot a cell for each value of column `y` and window: what differs from its neighbours shows among many."""
    with st.container(border=True):
        heading(title, note)
        if rows.empty:
            nothing(none)
            return
        count = rows[y].nunique()
        most = rows.iloc[int(rows[amount].argmax())] if rows[amount].notna().any() else None
        words = f"{count:,} rows." + ("" if most is None else f" Most: {most[y]}, {readable(most[amount])} {unit}.")
        spec: Spec = {
            "mark": {"type": "rect"},
            "encoding": {
                "x": {"field": "at_ms", "type": "temporal", "scale": {"type": "utc"},
                      "axis": {"format": TIME_FORMAT, "title": "time (UTC)", "labelFlush": False} | SECONDS},
                "x2": {"field": "until_ms"},
                "y": {"field": y, "type": "nominal", "sort": None,
                      "axis": {"title": None, "labelLimit": LONGEST_LABEL_PX, "labelOverlap": False}},
                "color": {"field": amount, "type": "quantitative", "scale": {"scheme": "viridis"},
                          "legend": {"title": unit, "orient": "top", "gradientLength": 180}},
                "tooltip": [
                    {"field": "at_ms"} | MOMENT,
                    {"field": y, "type": "nominal", "title": " "},
                    {"field": amount, "type": "quantitative", "title": unit, "format": NUMBER},
                ],
            },
        }  # fmt: skip
        drawn = rows.assign(until_ms=rows["at_ms"] + step_s * 1000)
        draw(drawn, spec, 16 * count + 160)  # a line of text a row; the legend and the axis of time take the rest
        _foot(rows[["at_ms", y, amount]], amount, unit, title, words, rows.attrs.get("sql", ""))


def with_gaps(rows: pd.DataFrame, y: str, name: str, step_s: int) -> pd.DataFrame:
    """The rows, with a row of value NaN wherever the next window of a line is missing."""
    rows = rows.sort_values([name, "at_ms"])
    follower = rows.groupby(name, sort=False)["at_ms"].shift(-1)
    breaks = rows[follower.notna() & (follower - rows["at_ms"] > 1.5 * step_s * 1000)]
    holes = breaks.assign(at_ms=breaks["at_ms"] + step_s * 1000)
    holes[y] = float("nan")
    return pd.concat([rows, holes]).sort_values([name, "at_ms"], kind="stable")


def in_words(rows: pd.DataFrame, y: str, name: str, unit: str) -> str:
    """What a plot shows, for who can't see it: of each line the last, the least and the greatest value."""
    said = []
    for each, own in list(rows.groupby(name, sort=False))[:3]:
        last, most = own.iloc[int(own["at_ms"].argmax())], own.iloc[int(own[y].argmax())]
        at = datetime.fromtimestamp(most["at_ms"] / 1000, UTC)
        said.append(
            f"{each}: last {readable(last[y], unit)}, least {readable(own[y].min(), unit)}, "
            f"most {readable(most[y], unit)} at {at:%Y-%m-%d %H:%M} UTC"
        )
    more = rows[name].nunique() - len(said)
    return "; ".join(said) + (f"; and {more} more lines." if more > 0 else ".")


def _foot(rows: pd.DataFrame, y: str, unit: str, title: str, words: str, sql: str, *, seen: bool = False) -> None:
    at = pd.to_datetime(rows["at_ms"], unit="ms", utc=True)
    name = next(column for column in rows.columns if column not in ("at_ms", y))
    latest_first = rows.assign(at=at).sort_values("at_ms", ascending=False)
    columns = {"at": "from (UTC)", name: name.replace("_", " "), y: unit}
    table_foot(latest_first, columns, title, words, sql, seen=seen)


def table_foot(
    rows: pd.DataFrame, columns: dict[str, str], title: str, words: str, sql: str, *, seen: bool = False
) -> None:
    """What stands below a plot: its words, for everybody if `seen`, and its rows as a table, CSV and SQL."""
    rows.attrs["sql"] = sql
    element("foot", {"words": words, "seen": seen, "table": table_data(rows, columns, title) | {"unheaded": True}})


def draw(rows: pd.DataFrame, spec: Spec, height: int, zoom: str | None = None) -> None:
    """Draw a plot; `zoom` names one of which dragging sets the page's time range."""
    drawn = [field for field in _fields(spec) if field in rows.columns]
    whole = spec | {
        "height": height,
        "padding": {"left": 0, "right": PADDING_PX, "top": 2, "bottom": 2},
        "config": config(),
    }
    if zoom is None:
        st.vega_lite_chart(rows[drawn], whole, width="stretch", height=height)
        return
    key = f"plot {zoom} {hash(page_state().selection)}"
    st.vega_lite_chart(
        rows[drawn], whole, width="stretch", height=height, key=key, on_select=lambda: _zoom(key), selection_mode="zoom"
    )


def _zoom(key: str) -> None:
    """Make what was dragged over the page's time range."""
    ends = st.session_state[key].selection.get("zoom", {}).get("at_ms")
    if not ends or abs(ends[1] - ends[0]) < SHORTEST_ZOOM_MS:
        return
    start, stop = (datetime.fromtimestamp(end / 1000, UTC).replace(microsecond=0) for end in sorted(ends))
    query = {name: st.query_params.get_all(name) for name in st.query_params if name not in ("range", "refresh")}
    st.query_params.from_dict({**query, **page_state().selection.fixed(start, stop).query()})


def _fields(spec: Any) -> list[str]:
    """The columns that a spec refers to."""
    if isinstance(spec, list):
        return list(dict.fromkeys(field for part in spec for field in _fields(part)))
    if not isinstance(spec, dict):
        return []
    own = [spec["field"]] if "field" in spec else []
    return list(dict.fromkeys([*own, *_fields(list(spec.values()))]))


def _date(time: datetime) -> dict[str, int | bool]:
    """A moment as Vega-Lite's scales take it."""
    at = time.astimezone(UTC)
    return {
        "year": at.year,
        "month": at.month,
        "date": at.day,
        "hours": at.hour,
        "minutes": at.minute,
        "seconds": at.second,
        "utc": True,
    }
