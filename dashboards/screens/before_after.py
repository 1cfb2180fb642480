"""The panel of an application's page that asks what changed at a moment, beyond its noise: docs/applications.md."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import streamlit as st

from kafka_telemetry_lake.dashboards.address import (
    DEFAULT_WINDOW,
    address,
    read_time,
    time_text,
)
from kafka_telemetry_lake.dashboards.answers import Asked, LakeError, answer
from kafka_telemetry_lake.dashboards.frame import page_value, preset
from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.questions import PREFIX
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import halves, page_state, plain, table
from kafka_telemetry_lake.pipelines.applications.before_after import Comparison, before_and_after
from kafka_telemetry_lake.pipelines.applications.compared_windows import WINDOWS_S
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.udfs.before_after import UNCHANGED
from kafka_telemetry_lake.udfs.errors import CannotRunError

TITLE = "Before and after"
NOTE = (
    "What changed of this application at a moment, beyond its noise. This reads a day of its rollups and more, and may "
    "take a while."
)
KEYS = {"moment": "chosen moment", "window": "chosen window"}
MOST_PLOTS = 4
MAY_BE_EMPTY = ("attribute_keys", "why")
SAID = b"said"  # of an answer's metadata
COLUMNS = {
    "status": "status",
    "metric": "metric",
    "attribute_keys": "by",
    "unit": "unit",
    "before": "before",
    "after": "after",
    "ratio": "ratio",
    "effect": "change by noise",
    "why": "why",
}


def before_and_after_panel(scene: Scene, application: str) -> None:
    """Ask for a moment, and show each measure of the application before and after it, what changed first."""
    wanted = read_time(page_value("moment") or "")
    shown = f"show {TITLE}"
    if wanted is not None and shown not in st.session_state:
        st.session_state[shown] = True  # a link leads to what it says
    if not on_demand(TITLE, NOTE):
        return
    left, right = st.columns((3, 1))
    with left:
        at = _moment(scene, wanted)
    with right:
        window = _window()
    if at is None:
        st.info("Choose a moment: something that changed in this time range, or any time, such as 2026-11-21T12:00Z.")
        return
    try:
        found = _compared(scene, application, at, WINDOWS_S[window])
    except CannotRunError as error:
        st.info(plain(error))
        return
    except QueryError as error:
        raise LakeError(str(error)) from error
    _show(scene, application, at, found)


def _show(scene: Scene, application: str, at: datetime, found: Comparison) -> None:
    rows = named(found.rows.to_pandas())
    around = scene.selection.fixed(found.start, found.stop)
    rows["metric link"] = [
        address("client", around, application=application, metric=PREFIX + metric if short else metric)
        for metric, short in zip(rows["metric"], rows["short"], strict=True)
    ]
    unchanged = rows["status"] == UNCHANGED
    st.caption("  \n".join(plain(f"{remark[0].upper()}{remark[1:]}.") for remark in found.remarks))
    changed = rows[~unchanged]
    told = {name: heading for name, heading in COLUMNS.items() if name not in MAY_BE_EMPTY or changed[name].any()}
    table(
        changed,
        told,
        "What changed beyond its noise",
        "Change by noise: how many times as much as windows before differ from each other.",
        "No measure changed beyond its noise.",
    )
    marks = page_state().marks
    page_state().marks = with_moment(marks, at)
    steps = named(found.steps.to_pandas())
    places = halves()
    for name in list(dict.fromkeys(steps["name"]))[:MOST_PLOTS]:
        with next(places):
            own = parts(steps[steps["name"] == name], at)
            unit = str(rows["unit"][rows["name"] == name].iloc[0])
            lines(own, "amount", unit, name, "part", found.step_s, order=["before", "after"],
                  domain=(found.start, found.stop))  # fmt: skip
    page_state().marks = marks
    if unchanged.any():
        with st.expander(f"{int(unchanged.sum()):,} measures did not change beyond their noise"):
            shown = {name: heading for name, heading in COLUMNS.items() if name not in ("status", "why")}
            table(rows[unchanged], shown, "What did not change beyond its noise")


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, with metrics without their common prefix (`short`: it had one), and a name of each measure."""
    short = rows["metric"].str.startswith(PREFIX)
    metric = rows["metric"].str.removeprefix(PREFIX)
    by = rows["attribute_keys"].where(rows["attribute_keys"] == "", " by " + rows["attribute_keys"])
    return rows.assign(metric=metric, short=short, name=metric + by)


def parts(steps: pd.DataFrame, at: datetime) -> pd.DataFrame:
    """The steps of one measure as two lines: before the moment and after it."""
    at_ms = steps["at"].dt.as_unit("ms").astype("int64")
    part = (steps["at"] >= pd.Timestamp(at)).map({True: "after", False: "before"})
    return steps.assign(at_ms=at_ms, part=part)[["at_ms", "part", "amount"]].reset_index(drop=True)


def with_moment(marks: pd.DataFrame | None, at: datetime) -> pd.DataFrame:
    """The marks of a page, and the moment, unless it is one of them."""
    mark_ms = int(at.timestamp() * 1000)
    own = pd.DataFrame({"mark_ms": [mark_ms], "what": ["the moment"]})
    if marks is None or marks.empty:
        return own
    return marks if mark_ms in set(marks["mark_ms"]) else pd.concat([marks, own], ignore_index=True)


def _moment(scene: Scene, wanted: datetime | None) -> datetime | None:
    """The moment of the address; a control shows it, and offers what changed in the time range."""
    key = KEYS["moment"]
    offered = moments(scene.marks())
    text = None if wanted is None else time_text(wanted)
    options = list(offered) if text is None or text in offered else [text, *offered]
    preset(key, text)

    def changed() -> None:
        given = st.session_state[key]
        time = None if given is None else read_time(given)
        if time is not None:
            st.query_params["moment"] = time_text(time)
        elif given is None:
            st.query_params.pop("moment", None)
        else:
            st.session_state[f"wrong {key}"] = given

    st.selectbox(
        "Moment (UTC)",
        options,
        index=None,
        key=key,
        on_change=changed,
        format_func=lambda time: f"{time} {offered.get(time, '')}".strip(),
        accept_new_options=True,
        placeholder="what changed, or a time",
    )
    if (wrong := st.session_state.pop(f"wrong {key}", None)) is not None:
        st.warning(plain(f"{wrong} is not a time such as 2026-11-21T12:00Z. The moment is unchanged."))
    return wanted


def moments(marks: pd.DataFrame) -> dict[str, str]:
    """Times that an address may have, the latest first, to what changed then."""
    latest = marks.sort_values("mark_ms", ascending=False)
    times = [time_text(datetime.fromtimestamp(int(at) / 1000, UTC)) for at in latest["mark_ms"]]
    return dict(zip(times, latest["what"], strict=True))


def _window() -> str:
    key = KEYS["window"]
    wanted = page_value("window")
    preset(key, wanted if wanted in WINDOWS_S else DEFAULT_WINDOW)

    def changed() -> None:
        st.query_params["window"] = st.session_state[key]

    st.selectbox("Before and after it", list(WINDOWS_S), key=key, on_change=changed)
    return str(st.session_state[key])


def _compared(scene: Scene, application: str, at: datetime, window_s: int) -> Comparison:
    computed: list[Comparison] = []

    def ask(part: str) -> pa.Table:
        def of(asked: Asked) -> pa.Table:
            if not computed:
                uri = scene.lake.uri
                computed.append(before_and_after(uri, application, at, window_s, lambda runs, _: asked.runs_on(runs)))
            found = computed[0]
            said = {"remarks": found.remarks, "step_s": found.step_s}
            said |= {"start": found.start.isoformat(), "stop": found.stop.isoformat()}
            return getattr(found, part).replace_schema_metadata({SAID: json.dumps(said)})

        key = (scene.lake.uri, scene.versions, "before_and_after", part, application, at, window_s)
        return answer(key, lambda: "What changed of this application at this moment?", of)

    rows = ask("rows")
    said = json.loads(rows.schema.metadata[SAID])
    ends = (datetime.fromisoformat(said[end]) for end in ("start", "stop"))
    return Comparison(rows, ask("steps"), said["step_s"], said["remarks"], *ends)
