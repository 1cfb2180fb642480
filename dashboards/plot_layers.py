"""Layers of a plot besides its lines: where something changed, and bars between two lines, as Vega-Lite JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pandas as pd

from kafka_telemetry_lake.dashboards.plot_style import GREY

# How what is pointed at says its time.
MOMENT = {"type": "temporal", "title": "time (UTC)", "format": "%Y-%m-%d %H:%M:%S", "formatType": "utc"}

Spec = dict[str, Any]


def bars_between(rows: pd.DataFrame, y: str, encoding: Spec) -> list[Spec]:
    """A layer with a bar in each window, from the least of these rows to the greatest."""
    if rows.empty:
        return []
    ends = rows.groupby("at_ms")[y].agg(low="min", high="max").reset_index()
    return [
        {
            "data": {"values": ends.to_dict("records")},
            "mark": {"type": "rule", "strokeWidth": 6, "color": GREY, "opacity": 0.4},
            "encoding": {"x": encoding["x"], "y": encoding["y"] | {"field": "low"}, "y2": {"field": "high"}},
        }
    ]


def marked(rows: pd.DataFrame, domain: Any, step_s: int, marks: pd.DataFrame | None) -> list[Spec]:
    """A layer of vertical lines where something changed, and what it was when pointed at.

    If `domain` is None, those of the windows that are drawn, and of one more at each end: the newest isn't drawn while
    it is less than half over, but what has just changed is what one looks for.
    """
    if marks is None or marks.empty:
        return []
    step = step_s * 1000
    ends = [_ms(end) for end in domain] if domain else [rows["at_ms"].min() - step, rows["at_ms"].max() + 2 * step]
    inside = marks[(marks["mark_ms"] >= ends[0]) & (marks["mark_ms"] < ends[1])]
    if inside.empty:
        return []
    return [
        {
            "data": {"values": inside.to_dict("records")},
            "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5, "color": "#CC79A7"},
            "encoding": {
                "x": {"field": "mark_ms", "type": "temporal"},
                "tooltip": [
                    {"field": "mark_ms"} | MOMENT,
                    {"field": "what", "type": "nominal", "title": "change"},
                ],
            },
        }
    ]


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
