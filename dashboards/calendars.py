"""Calendars: a cell for each hour, the hours of the day (UTC) across and the days downwards.

What comes at the same hour each day, such as a nightly job, shows as a column; an outage as a run of cells. An hour of
which the lake has nothing has no cell, and a day an empty line: nothing is filled in, and nothing is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plot_style import NUMBER
from kafka_telemetry_lake.dashboards.plots import draw, table_foot
from kafka_telemetry_lake.dashboards.show import heading, nothing, readable

HOUR_MS = 3_600_000
CELL_PX = 18  # a line of text for each day
AROUND_PX = 170  # legend and axis


def calendar(rows: pd.DataFrame, amount: str, unit: str, title: str, note: str = "", none: str = "") -> None:
    """Plot a number by hour and day.

    Args:
        rows: column `at_ms`, the start of an hour, and the number; an hour without a row has no cell.
        none: what to say if there are no rows, or all of them are 0.
    """
    with st.container(border=True):
        heading(title, note)
        if rows.empty or not rows[amount].any():
            nothing(none)
            return
        at = pd.to_datetime(rows["at_ms"], unit="ms", utc=True)
        cells = rows[["at_ms", amount]].assign(day=at.dt.strftime("%Y-%m-%d"), hour=at.dt.hour)
        days = pd.date_range(at.min().normalize(), at.max()).strftime("%Y-%m-%d").tolist()
        spec: dict[str, Any] = {
            "mark": {"type": "rect"},
            "encoding": {
                "x": {"field": "hour", "type": "ordinal", "scale": {"domain": list(range(24))},
                      "axis": {"title": "hour of the day (UTC)", "labelAngle": 0, "labelOverlap": True}},
                "y": {"field": "day", "type": "ordinal", "scale": {"domain": days}, "axis": {"title": None}},
                "color": {"field": amount, "type": "quantitative", "scale": {"scheme": "viridis", "domainMin": 0},
                          "legend": {"title": unit, "orient": "top", "gradientLength": 180}},
                "tooltip": [
                    {"field": "day", "type": "nominal", "title": "day"},
                    {"field": "hour", "type": "nominal", "title": "hour (UTC)"},
                    {"field": amount, "type": "quantitative", "title": unit, "format": NUMBER},
                ],
            },
        }  # fmt: skip
        draw(cells, spec, CELL_PX * len(days) + AROUND_PX)
        newest = rows.assign(at=at).sort_values("at_ms", ascending=False)
        columns = {"at": "hour from (UTC)", amount: unit}
        table_foot(newest[["at", amount]], columns, title, in_words(rows, amount, unit), rows.attrs.get("sql", ""))


def in_words(rows: pd.DataFrame, amount: str, unit: str) -> str:
    """What a calendar shows, for who can't see it: the greatest hour, and which hour of the day has most."""
    most = rows.iloc[int(rows[amount].argmax())]
    said = f"Most: {readable(most[amount])} {unit} in the hour from {_time(most['at_ms']):%Y-%m-%d %H:%M} UTC."
    if len(rows) > 24:
        of_day = rows.groupby(rows["at_ms"] // HOUR_MS % 24)[amount].mean().reset_index()
        hour, mean = of_day.iloc[int(of_day[amount].argmax())]
        said += f" By hour of the day: most from {int(hour):02d}:00, {readable(mean)} on average."
    return said + f" {len(rows):,} hours, {int((rows[amount] > 0).sum()):,} of them with any."


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
