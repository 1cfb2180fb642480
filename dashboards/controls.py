"""The controls in the sidebar, and the link that reproduces their selection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.scene import Scene, open_scene
from kafka_telemetry_lake.dashboards.selection import (
    FILTERS,
    FINDING_FILTERS,
    RANGE_NAMES,
    REFRESH_SECONDS,
    Selection,
    parse,
)
from kafka_telemetry_lake.dashboards.show import plain

FIXED = "fixed"
MOST_OPTIONS = 2000
LABELS = {"client": "Client id", "principal": "Principal", "group": "Consumer group", "version": "Software version"}
LINKED = ("instance", "metric", "finding_id")  # parameters that only the pages of clients and findings add to the link


def link_problems() -> list[str]:
    """Problems in the link that opened this session; none after the selection changes."""
    if "selection" not in st.session_state:
        query = {key: st.query_params.get_all(key) for key in st.query_params}
        selection, problems = parse(query)
        st.session_state["selection"], st.session_state["problems"] = selection, problems
        linked = {key: query[key] for key in FINDING_FILTERS if query.get(key)}
        st.session_state["linked"] = linked | {key: query[key][-1] for key in LINKED if query.get(key)}
    return cast(list[str], st.session_state["problems"])


def controls(uri: str) -> Selection:
    """Show the controls and return their selection.

    Raises:
        LakeError: the lake can't be read.
    """
    before: Selection = st.session_state["selection"]
    scene = open_scene(uri, before)
    with st.sidebar:
        selection = _range(before, scene)
        selection = Selection(
            selection.span, selection.start, selection.stop, _filters(before, scene), _refresh(before)
        )
    if selection != before:
        st.session_state["selection"], st.session_state["problems"] = selection, []
        st.rerun()
    return selection


def write_link(selection: Selection) -> None:
    """Write the selection into the page's address."""
    st.query_params.from_dict({**selection.query(), **st.session_state.get("linked", {})})


def _range(before: Selection, scene: Scene | None) -> Selection:
    options = [*RANGE_NAMES, FIXED]
    now = FIXED if before.start else before.span
    span = st.selectbox(
        "Time range",
        options,
        index=options.index(now),
        format_func=lambda key: RANGE_NAMES.get(key, "from ... to ... (UTC)"),
        help="The latest ranges end at the lake's newest push. A link with a fixed range shows the same data tomorrow.",
    )
    if span != FIXED:
        return Selection(span)
    start = before.start or (scene.start if scene else datetime.now(UTC) - timedelta(hours=1))
    stop = before.stop or (scene.stop if scene else datetime.now(UTC))
    begin = _moment("From (UTC)", start)
    end = _moment("To (UTC)", stop)
    if begin >= end:
        st.warning("From must be earlier than To. The range is unchanged.")
        begin, end = start, stop
    return Selection(before.span).fixed(begin, end)


def _moment(label: str, at: datetime) -> datetime:
    text = st.text_input(label, at.replace(tzinfo=None).isoformat(sep=" "))
    try:
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        st.warning(plain(f"{text} is not a time such as 2026-11-21 12:00:00. The time is unchanged."))
        return at


def _filters(before: Selection, scene: Scene | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    filters = []
    for key, column in FILTERS.items():
        chosen = list(before.chosen(key))
        options: list[str] = []
        if scene is not None:
            counted = pc.value_counts(scene.instances[column].drop_null().combine_chunks())
            order = pc.sort_indices(counted.field("counts"), sort_keys=[("", "descending")])
            options = sorted(counted.field("values").take(order[:MOST_OPTIONS]).to_pylist())
        picked = st.multiselect(
            LABELS[key],
            [*options, *(value for value in chosen if value not in set(options))],
            default=chosen,
            placeholder="all",
            accept_new_options=True,
        )
        if picked:
            filters.append((key, tuple(picked)))
    return tuple(filters)


def _refresh(before: Selection) -> int:
    return st.selectbox(
        "Follow new data",
        REFRESH_SECONDS,
        index=REFRESH_SECONDS.index(before.refresh),
        format_func=lambda seconds: f"every {seconds} s" if seconds else "off",
    )
