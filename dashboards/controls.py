"""The controls in the sidebar. The page's address is the state: controls show what it says, and a change writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.lake import LakeError
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.selection import (
    COMPARISONS,
    FILTERS,
    LABELS,
    RANGE_NAMES,
    REFRESH_SECONDS,
    SUBJECTS,
    Selection,
    parse,
)
from kafka_telemetry_lake.dashboards.show import plain
from kafka_telemetry_lake.dashboards.waiting import CancelledError, show_cancelled

FIXED = "fixed"
MOST_OPTIONS = 2000


def read_address() -> tuple[Selection, list[str]]:
    """The selection of the page's address, and a sentence for each part that is invalid."""
    return parse({key: st.query_params.get_all(key) for key in st.query_params})


def page_value(key: str) -> str | None:
    """What the page's address says about one of `SUBJECTS`."""
    assert key in SUBJECTS
    return st.query_params.get(key)


def write(selection: Selection) -> None:
    """Change the page's address to this selection; what it says about the page's subject stays."""
    kept = {key: st.query_params.get_all(key) for key in st.query_params if key in SUBJECTS}
    st.query_params.from_dict({**selection.query(), **kept})


def preset(key: str, value: object) -> None:
    """Let a control show what the address says. If it does already, to set it again could undo a click meanwhile."""
    if st.session_state.get(key) != value or key not in st.session_state:
        st.session_state[key] = value


def controls(selection: Selection, scene: Scene | None) -> None:
    """Show the filters; each change of a control becomes an address, so the browser's Back undoes it."""
    with st.expander("Filters", expanded=bool(selection.filters), key="filters", on_change="rerun") as filters:
        if filters.open:  # what can be chosen costs a list of all clients
            options = _options(scene)
            for key in FILTERS:
                _filter(key, selection, options.get(key, []))
    _choice("compare", "Compare with", list(COMPARISONS), selection.compare, COMPARISONS.__getitem__)
    _choice("refresh", "Follow new data", list(REFRESH_SECONDS), selection.refresh, _every)


def range_control(selection: Selection) -> None:
    """Show the control of the time range. A range that is to be fixed begins as what the page has shown last."""
    key = "control range"
    preset(key, FIXED if selection.start else selection.span)

    def changed() -> None:
        span = st.session_state[key]
        if span != FIXED:
            write(replace(selection, span=span, start=None, stop=None))
        else:
            now = datetime.now(UTC)
            write(selection.fixed(*st.session_state.get("shown", (now - timedelta(hours=1), now))))

    st.selectbox(
        "Time range",
        [*RANGE_NAMES, FIXED],
        key=key,
        on_change=changed,
        format_func=lambda name: RANGE_NAMES.get(name, "from ... to ... (UTC)"),
        help="The latest ranges end at the lake's newest push. A link with a fixed range shows the same data tomorrow. "
        "Dragging over a plot zooms into it.",
    )
    if selection.start and selection.stop:
        _moments(selection, selection.start, selection.stop)


def _moments(selection: Selection, start: datetime, stop: datetime) -> None:
    """Two fields for the ends of a fixed range; a wrong one is named, and changes nothing."""
    read: dict[str, datetime] = {}
    for label, at in (("From (UTC)", start), ("To (UTC)", stop)):
        text = st.text_input(label, at.replace(tzinfo=None).isoformat(sep=" "), key=f"{label} {at}")
        try:
            time = datetime.fromisoformat(text)
            read[label] = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        except (ValueError, OverflowError):
            st.warning(plain(f"{text} is not a time such as 2026-11-21 12:00:00. The time is unchanged."))
            read[label] = at
    begin, end = read.values()
    if begin >= end:
        st.warning("From must be earlier than To. The range is unchanged.")
    elif (begin, end) != (start, stop):
        write(selection.fixed(begin, end))
        st.rerun()


def _filter(key: str, selection: Selection, options: list[str]) -> None:
    chosen = list(selection.chosen(key))
    state = f"control {key}"
    preset(state, chosen)

    def changed() -> None:
        filters = dict(selection.without(key).filters)
        if st.session_state[state]:
            filters[key] = tuple(st.session_state[state])
        write(replace(selection, filters=tuple((name, filters[name]) for name in FILTERS if name in filters)))

    st.multiselect(
        LABELS[key],
        [*options, *(value for value in chosen if value not in set(options))],
        key=state,
        on_change=changed,
        placeholder="all",
        accept_new_options=True,
    )


def _options(scene: Scene | None) -> dict[str, list[str]]:
    """What can be chosen for each filter; nothing if the lake can't be read, which the page says."""
    try:
        return {} if scene is None else {key: _most_frequent(scene, key) for key in FILTERS}
    except CancelledError as cancelled:
        show_cancelled(cancelled, "filters")
    except LakeError:
        pass
    return {}


def _most_frequent(scene: Scene, key: str) -> list[str]:
    """The most frequent values of a filter, in the order of the alphabet."""
    counted = pc.value_counts(scene.labels(key).drop_null().combine_chunks())
    order = pc.sort_indices(counted.field("counts"), sort_keys=[("", "descending")])
    return sorted(counted.field("values").take(order[:MOST_OPTIONS]).to_pylist())


def _choice(key: str, label: str, options: list[Any], now: object, shown: Callable[[Any], str]) -> None:
    state = f"control {key}"
    preset(state, now)
    selection, _ = read_address()
    st.selectbox(
        label,
        options,
        key=state,
        on_change=lambda: write(replace(selection, **{key: st.session_state[state]})),
        format_func=shown,
    )


def _every(seconds: int) -> str:
    return f"every {seconds} s" if seconds else "off"
