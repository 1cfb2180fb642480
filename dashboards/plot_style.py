"""The look of the plots: colours and dashes that differ for every reader, units that people use, axes one can read."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

# The Okabe-Ito palette for colour-blind readers, without its two colours that are invisible on white or on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3])
GREY = "#8A8F99"  # 3:1 on white and on Streamlit's dark background
HEIGHT = 260
LONGEST_LABEL_PX = 260
PADDING_PX = 8  # right of a plot
# Of a legend, as Streamlit draws it: a line with its gaps, the gap of the next column, a character of a name.
_SYMBOL_PX, _GAP_PX, _CHARACTER_PX = 46, 20, 6.3
# Text and lines of the axes: at least 4.5:1 and 3:1 on the background.
AXIS = {"light": ("#404654", "#808495", "#e6e9ef"), "dark": ("#d5d9e2", "#8d93a3", "#31343f")}
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
_MS = (
    "abs(datum.value) >= 3600000 ? format(datum.value / 3600000, ',.3~g') + ' h' : "
    "abs(datum.value) >= 60000 ? format(datum.value / 60000, ',.3~g') + ' min' : "
    "abs(datum.value) >= 1000 ? format(datum.value / 1000, ',.3~g') + ' s' : format(datum.value, ',.3~g') + ' ms'"
)
_SPACED = "replace(format(datum.value, '.3~s'), regexp('([a-zA-Zµ]?)$'), ' $1')"  # 300 k
_LABELS = {
    "ms": (_MS, "time"),
    "s": (_MS.replace("datum.value", "(1000 * datum.value)"), "time"),
    "bytes": (f"datum.value == 0 ? '0' : {_SPACED} + 'B'", "bytes"),
    "bytes per second": (f"datum.value == 0 ? '0' : {_SPACED} + 'B/s'", "bytes per second"),
    "ratio": ("format(datum.value, '.3~%')", "share"),
}
_IN_MS = {"ms": 1, "s": 1000}
_LONG_STEPS_MS = [minutes * 60_000 for minutes in (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440)]
_PLAIN = "abs(datum.value) >= 10000 ? format(datum.value, '.3~s') : format(datum.value, ',.4~g')"


def axis_labels(unit: str) -> tuple[dict[str, Any], str]:
    """How the labels of an axis in this unit are written, and the axis' title: 3 s rather than 3000 ms."""
    labels, title = _LABELS.get(unit, (_PLAIN, unit))
    return {"labelExpr": labels}, title


def time_ticks(most: float, unit: str) -> dict[str, Any]:
    """Where an axis of durations up to `most` has ticks, from a minute on: at 2 min rather than at 1.67 min."""
    most_ms = most * _IN_MS.get(unit, 0)
    if most_ms < 60_000:
        return {}
    day = _LONG_STEPS_MS[-1]
    step = next((step for step in _LONG_STEPS_MS if 5 * step >= most_ms), day * math.ceil(most_ms / (5 * day)))
    return {"values": [count * step / _IN_MS[unit] for count in range(int(most_ms // step) + 2)]}


def legend_columns(named: list[str], most: int) -> str:
    """How many columns of a legend fit into a plot, at most so many: an expression of Vega, which knows its width."""
    fits = ""
    for count in range(most, 1, -1):
        longest = [max(map(len, named[column::count]), default=0) for column in range(count)]
        need = sum(_SYMBOL_PX + min(LONGEST_LABEL_PX, _CHARACTER_PX * length) for length in longest) - _GAP_PX
        fits += f"width + {PADDING_PX} >= {need:.0f} ? {count} : "
    return f"{fits}1"


def styles(named: list[str], before: str) -> tuple[list[str], list[list[int]]]:
    """A colour and dash for each line, no two alike up to 36; lines that end with `before` are grey.

    An earlier line has the dash of the line that it is to be compared with.
    """
    own = [name for name in named if not name.endswith(before)]
    place = {name: index for index, name in enumerate(own)}
    colors, dashes = [], []
    for name in named:
        index = place.get(name.removesuffix(before), len(place))
        colors.append(GREY if name.endswith(before) else PALETTE[index % len(PALETTE)])
        dashes.append(DASHES[(index + index // len(PALETTE)) % len(DASHES)])
    return colors, dashes


def config() -> dict[str, Any]:
    """Colours of the axes that are readable on the page's background."""
    text, line, grid = AXIS["dark" if st.context.theme.type == "dark" else "light"]
    axis = {"labelColor": text, "titleColor": text, "domainColor": line, "tickColor": line, "gridColor": grid}
    return {"axis": axis, "legend": {"labelColor": text, "titleColor": text}}
