"""Shows tables, numbers and text. Names that clients chose are escaped, so that they can't act as Markdown.

What Streamlit lacks are elements of our own: components of the files in `browser/`, plain JavaScript that sets texts,
never HTML. What a visitor's session keeps between two runs of a page's script is `PageState`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.address import Selection, of_column, of_value
from kafka_telemetry_lake.pipelines.query.printable import printable

FOLDER = files("kafka_telemetry_lake.dashboards") / "browser"
ROWS = ("table", "foot")  # elements that draw tables


def element(kind: str, data: Mapping[str, Any], key: str | None = None) -> None:
    """Show one of the elements, a file of `browser/`, with its data (JSON)."""
    _component(kind)(data=dict(data), key=key)


@cache
def _component(kind: str) -> Any:
    parts = ("common", "rows", kind) if kind in ROWS else ("common", kind)
    script = "\n".join((FOLDER / f"{name}.js").read_text("utf-8") for name in parts)
    return st.components.v2.component(
        f"telemetry_lake_{kind}", js=script, css=(FOLDER / "style.css").read_text("utf-8")
    )


@cache
def page_style() -> str:
    """CSS for what Streamlit itself draws."""
    return (FOLDER / "page.css").read_text("utf-8")


MOST_NAMES = 12  # of a fact
MOST_SHOWN = 1000  # rows of a table
WIDE = ("evidence", "advice", "detail", "why", "reason", "bugs", "meaning", "missing", "match", "metrics")
NAMES = ("broker_id",)  # numbers that are names
TOLD = ("broker_id", "client_address")  # a receiver needn't tell them
# Unit in a heading: how the element `table` shows it, and what the number is multiplied with.
KINDS = {"ms": ("ms", 1), "s": ("ms", 1000), "bytes": ("bytes", 1), "%": ("percent", 1)}
UNIT = re.compile(r" \((ms|s|bytes|%)\)$")
_TIMES = ((3_600_000, "h"), (60_000, "min"), (1000, "s"), (1e-9, "ms"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_STEPS: dict[str, tuple[float, tuple[tuple[float, str], ...]]] = {
    "ms": (1, _TIMES),
    "s": (1000, _TIMES),
    "bytes": (1, _BYTES),
    "bytes per second": (1, tuple((size, f"{name}/s") for size, name in _BYTES)),
    "ratio": (100, ((1e-9, "%"),)),
}
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
    key: str | None = None,
) -> None:
    """Show these columns under their headings; `rows` is None if this installation lacks the table or view.

    Names that have a page are links to it. A heading's unit in parentheses says how its numbers are shown: (ms), (s),
    (bytes), (%) and (UTC). A column `<name> link` of the rows has other addresses for those of column `<name>`.
    """
    with st.container(border=True):
        element("table", table_data(rows, columns, title, note, none), key)


def table_data(
    rows: pd.DataFrame | None, columns: Mapping[str, str], title: str, note: str = "", none: str = ""
) -> dict[str, Any]:
    """What the element `table` draws; the arguments are those of `table`."""
    shown = [] if rows is None else [name for name in columns if name in rows.columns]
    return {
        "title": title,
        "note": note.replace("`", ""),
        "none": none.replace("`", "") or "No rows in this time range for these filters.",
        "columns": [] if rows is None else [_column(rows.head(MOST_SHOWN), name, columns[name]) for name in shown],
        "sql": "" if rows is None else rows.attrs.get("sql", ""),
        "file": re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        "more": "" if rows is None or len(rows) <= MOST_SHOWN else f"The first {MOST_SHOWN:,} of {len(rows):,} rows.",
    }


def every_column(rows: pd.DataFrame | None, title: str, note: str = "", none: str = "") -> None:
    """Show a table of all columns under their own names; `none` is the text if there are no rows."""
    names = {} if rows is None else {name: _heading(name) for name in rows.columns}
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


def readable(value: Any, unit: str = "") -> str:
    """A number with its unit, as the axes of plots have it: 3.2 s, 1.5 MB, 12 %, 56,789 records."""
    if value is None or pd.isna(value):
        return "–"
    factor, steps = _STEPS.get(unit, (1, ()))
    number = float(value) * factor
    for size, name in steps:
        if abs(number) >= size:
            return f"{number / (size if size >= 1 else 1):,.3g} {name}"
    return f"{short(value)} {unit}".strip()


def heading(title: str, note: str = "") -> None:
    st.header(plain(title), help=note or None, anchor=False)


def nothing(none: str = "") -> None:
    st.caption(none or "No rows in this time range for these filters.")


def _heading(name: str) -> str:
    """A column's name with its unit in parentheses: `commit_latency_max_ms` is *commit latency max (ms)*."""
    words = name.split("_")
    unit = {"ms": "ms", "s": "s", "bytes": "bytes", "percent": "%"}.get(words[-1])
    return f"{' '.join(words[:-1])} ({unit})" if unit and len(words) > 1 else " ".join(words)


def _column(rows: pd.DataFrame, name: str, heading: str) -> dict[str, Any]:
    """A column as the element `table` wants it: JSON values, how they are shown, and where they lead."""
    if name in NAMES:  # beside a missing one pandas has fractions
        whole = rows[name].astype("Int64").astype(object)
        rows = rows.assign(**{name: whole.where(whole.notna(), None)})
    values = rows[name]
    unit = UNIT.search(heading)
    kind, factor = "text", 1
    if name == "severity":
        kind = "severity"
    elif isinstance(values.dtype, pd.DatetimeTZDtype):
        kind = "time"
        millis = values.dt.as_unit("ms").astype("int64").astype(object)
        values = millis.where(values.notna(), None)
    elif pd.api.types.is_bool_dtype(values):
        kind = "yes"
    elif pd.api.types.is_numeric_dtype(values) and name not in NAMES:
        kind, factor = KINDS.get(unit[1] if unit else "", ("number", 1))
        values = (values * factor).replace([np.inf, -np.inf], np.nan)
    else:
        values = values.map(_as_text)
    if name in TOLD:
        values = values.where(values.notna() & (values != ""), "unknown")
    if kind in ("ms", "bytes", "percent"):
        heading = UNIT.sub("", heading)
    return {
        "name": name,
        "label": heading,
        "kind": kind,
        "wide": name in WIDE,
        "values": values.astype(object).where(values.notna(), None).tolist(),
        "links": of_column(rows, name, page_state().selection),
    }


@dataclass
class PageState:
    """What a visitor's session keeps from one run of a page's script to the next, besides its address and controls.

    Attributes:
        selection: what the page's address selects.
        shown: start and end of the time range that was shown last; None: none yet.
        marks: changes that plots mark, see `scene.Scene.marks`.
        waits_for, cancelled: keys of the question that the page waits for, and of the one that the visitor cancelled.
        remark: what was said last about a finding: its id, whether it was written, and a line about it.
        remarks: how many remarks were written, so that each begins in an empty form.
        remarks_by: who made the last one.
    """

    selection: Selection = field(default_factory=Selection)
    shown: tuple[datetime, datetime] | None = None
    marks: pd.DataFrame | None = None
    waits_for: Hashable = None
    cancelled: Hashable = None
    remark: tuple[str, bool, str] | None = None
    remarks: int = 0
    remarks_by: str = ""


def page_state() -> PageState:
    """The state of this visitor's pages. To ask for it lets Streamlit end a script that nobody waits for any more."""
    state: PageState = st.session_state.setdefault("page state", PageState())
    return state


def _is_nested(value: object) -> bool:
    return isinstance(value, list | tuple | dict | np.ndarray)


def _as_text(value: Any) -> str | None:
    """A map as `key=value, ...`, a list as its values."""
    if not _is_nested(value):
        return None if value is None or pd.isna(value) else str(value)
    pairs = value.items() if isinstance(value, dict) else value
    return ", ".join("=".join(map(str, pair)) if isinstance(pair, tuple) else str(pair) for pair in pairs)


def facts(title: str, values: Mapping[str, tuple[str, Iterable[Any]]], selection: Selection) -> None:
    """Show what is known, given as name to the column whose pages the values have, and values."""
    shown = []
    for name, (column, several) in values.items():
        known = list(dict.fromkeys(str(value) for value in several if not pd.isna(value)))
        if known:
            texts = [{"text": text, "address": of_value(column, text, selection)} for text in known[:MOST_NAMES]]
            if len(known) > MOST_NAMES:
                texts.append({"text": f"{len(known) - MOST_NAMES:,} more", "address": None})
            shown.append({"name": name, "values": texts})
    with st.container(border=True):
        element("facts", {"title": title, "facts": shown})
