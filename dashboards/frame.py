"""What is around every page: header, navigation, and the sidebar's controls of time range and filters.

The page's address is the state: controls show what it says, and a change writes it, so the browser's Back undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.address import (
    COMPARISONS,
    FILTERS,
    FINDING_FILTERS,
    LABELS,
    RANGE_NAMES,
    REFRESH_SECONDS,
    SUBJECTS,
    Selection,
    address,
    parse,
    with_query,
)
from kafka_telemetry_lake.dashboards.answers import CancelledError, LakeError, show_cancelled
from kafka_telemetry_lake.dashboards.pages import PAGES
from kafka_telemetry_lake.dashboards.questions import MOST_INSTANCES
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import element, page_state, plain

LEAST_S = 120  # a lake that is asked so soon after its newest push is current
# Of the push interval of the median client: with all clients on one interval a push is due in each.
CURRENT, OLD = 2, 6


def lake_name(uri: str) -> str:
    """The last part of a lake's address, which is what people call it."""
    return uri.rstrip("/").rsplit("/", 1)[-1] or uri


def freshness(scene: Scene, now: datetime | None = None) -> tuple[str, float]:
    """How current the lake is (good, fair, bad), and the age of its newest push in seconds, by this machine's clock."""
    age_s = ((now or datetime.now(UTC)) - scene.last).total_seconds()
    patience_s = max(LEAST_S, scene.clients.known.push_interval_ms / 1000)
    return "good" if age_s <= CURRENT * patience_s else "fair" if age_s <= OLD * patience_s else "bad", age_s


def age_text(seconds: float) -> str:
    """A duration in its largest unit: 40 s, 12 minutes, 3 days."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return f"{max(0, int(seconds))} s"


def header(scene: Scene, page: str, query: dict[str, list[str]]) -> None:
    """Show the header of a page; `query` is that of its address."""
    level, age_s = freshness(scene)
    selection = scene.selection
    named = scene.clients.known.clusters
    fixed = selection.fixed(scene.start, scene.stop).query()
    permalink = {key: values for key, values in query.items() if key not in ("range", "refresh")} | fixed
    element(
        "header",
        {
            "level": level,
            "light": {"good": "current", "fair": "late", "bad": "old"}[level],
            "old": ""
            if level != "bad"
            else f"The newest push landed {age_text(age_s)} ago: what you see isn't what clients do now. "
            "Is telemetry-lake ingest running, do the clients push?",
            "facts": [
                {"name": "lake", "text": lake_name(scene.lake.uri), "title": scene.lake.uri},
                {"name": "cluster" if len(named) < 2 else "clusters", "text": ", ".join(named) or "unnamed"},
                {"name": "newest push", "text": f"{scene.last:%Y-%m-%d %H:%M:%S} UTC, {age_text(age_s)} ago"},
                {"name": "shown", "text": _shown(scene)},
            ],
            "chips": _chips(selection, page, query),
            "clear": with_query(page, {key: value for key, value in query.items() if key not in LABELS}),
            "permalink": with_query(page, permalink),
        },
    )


def _shown(scene: Scene) -> str:
    shown, known = scene.totals.instances, scene.clients.known.instances
    noun = "client instance" if shown == known == 1 else "client instances"
    clients = f"{shown:,} {noun}" if shown == known else f"{shown:,} of {known:,} {noun}"
    if known > MOST_INSTANCES:
        clients += f" (lists have the latest {MOST_INSTANCES:,})"
    return (
        f"{clients}, {scene.start:%Y-%m-%d %H:%M:%S} to {scene.stop:%Y-%m-%d %H:%M:%S} UTC, "
        f"in windows of {age_text(scene.step_s)}"
    )


def _chips(selection: Selection, page: str, query: dict[str, list[str]]) -> list[dict[str, str]]:
    """Each value of a filter, with the address of the page without it."""
    chips = []
    for key, values in selection.filters:
        for value in values:
            left = {**query, key: [other for other in values if other != value]}
            where = with_query(page, {name: each for name, each in left.items() if each})
            chips.append({"name": LABELS[key].lower(), "value": value, "address": where})
    return chips


def navigation(here: str, selection: Selection, query: dict[str, list[str]], errors: int) -> None:
    """Show the navigation; `errors` is the number of open findings of that severity."""
    kept = {key: value for key, value in query.items() if key not in (*SUBJECTS, *FINDING_FILTERS)}
    groups = [
        {
            "title": group,
            "pages": [
                {
                    "title": page.title,
                    "address": with_query(page.path, kept),
                    "here": page.path == here,
                    "count": f"{errors:,}" if errors and page.path == "findings" else "",
                    "meaning": "open errors that nobody looks after",
                }
                for page in pages
            ],
        }
        for group, pages in groupby(PAGES, lambda page: page.group)
    ]
    searched = (query.get("q") or [""])[-1]
    element("nav", {"groups": groups, "search": {"address": address("search", selection), "q": searched}}, key="nav")


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
            write(selection.fixed(*(page_state().shown or (now - timedelta(hours=1), now))))

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
