"""The page about open findings: since when, with which evidence, who looks after them; and the form to say so."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.address import FINDING_FILTERS, OWNED, Selection, with_query
from kafka_telemetry_lake.dashboards.finding_measure import finding_measure
from kafka_telemetry_lake.dashboards.frame import page_value
from kafka_telemetry_lake.dashboards.problems import EVALUATED, SHORT_COLUMNS, card, is_evaluated, linked
from kafka_telemetry_lake.dashboards.remarks import RemarkError, changes_allowed, commands, say
from kafka_telemetry_lake.dashboards.scene import Scene, open_lake
from kafka_telemetry_lake.dashboards.show import numbers, page_state, plain, table
from kafka_telemetry_lake.dashboards.users import user
from kafka_telemetry_lake.udfs.findings.remarks import ACKNOWLEDGED, MUTED, UNMUTED, time_text

COLUMNS = {
    **{name: label for name, label in SHORT_COLUMNS.items() if name != "state"},
    "advice": "advice",
    "state": "state",
    "handle": "who looks after it",
    "by": "by",
    "why": "why",
    "until": "muted until (UTC)",
    "cluster_id": "cluster",
}
BUTTONS = {ACKNOWLEDGED: "Acknowledge", MUTED: "Mute", UNMUTED: "Unmute"}


def page(scene: Scene) -> None:
    rows = _of_owners(scene)
    unheeded = rows[rows["state"] == "open"]["severity"].value_counts()
    states = rows["state"].value_counts()
    numbers(
        {
            "Errors": (int(unheeded.get("error", 0)), "Open, neither acknowledged nor muted."),
            "Warnings": (int(unheeded.get("warning", 0)), "Open, neither acknowledged nor muted."),
            "Info": (int(unheeded.get("info", 0)), "Open, neither acknowledged nor muted."),
            "Acknowledged": (int(states.get(ACKNOWLEDGED, 0)), "Somebody looks after them until they are resolved."),
            "Muted": (int(states.get(MUTED, 0)), "Quiet until a time."),
        }
    )
    _chosen(scene, rows, page_value("finding_id"))
    shown = linked(_filtered(rows), scene.selection)
    shown["handle"] = shown["state"].map({"open": "nobody yet"}).fillna("see")
    shown["handle link"] = [_here(finding_id=finding_id) for finding_id in shown["finding_id"]]
    columns = dict(COLUMNS)
    if rows["cluster_id"].nunique() <= 1:
        del columns["cluster_id"]
    none = "No finding is open." if is_evaluated(scene) else f"Not evaluated yet: {EVALUATED}."
    table(
        shown,
        columns,
        "Open findings",
        f"Now, regardless of the time range: {EVALUATED}. Follow the link in *who looks after it* to acknowledge or "
        "mute a finding.".replace("`", "").replace("*", ""),
        none.replace("`", "") if rows.empty else "No open finding matches.",
        key="open findings",
    )


def _of_owners(scene: Scene) -> pd.DataFrame:
    """The open findings of the filters; of an owner's or application's by what the finding says, as it names both."""
    selection = scene.selection
    wanted = {key: selection.chosen(key) for key in OWNED if selection.chosen(key)}
    others: Selection = selection
    for key in wanted:
        others = others.without(key)
    if wanted and not others.filters:
        scene = scene.selecting(others)
    rows = scene.open_findings()
    for key, names in wanted.items():
        rows = rows[rows[key].isin(names)]
    return rows


def _here(**changes: str) -> str:
    """The address of this page with other parameters."""
    kept = {key: st.query_params.get_all(key) for key in st.query_params if key not in changes}
    return with_query("findings", {**kept, **changes})


def _filtered(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that match each of the page's filters, which are in its address."""
    shown = rows
    for column, (key, label) in zip(st.columns(len(FINDING_FILTERS)), FINDING_FILTERS.items(), strict=True):
        before = st.query_params.get_all(key)
        state = f"open findings by {key}"
        st.session_state[state] = before

        def changed(key: str = key, state: str = state) -> None:
            st.query_params[key] = st.session_state[state]

        picked = column.multiselect(
            label, sorted({*rows[key].dropna(), *before}), placeholder="all", key=state, on_change=changed
        )
        if picked:
            shown = shown[shown[key].isin(picked)]
    return shown


def _chosen(scene: Scene, rows: pd.DataFrame, finding_id: str | None) -> None:
    """Show the chosen finding, and what can be said about it."""
    about, written, line = page_state().remark or (None, False, "")
    if about and about == finding_id:
        (st.success if written else st.error)(plain(line))
    found = rows[rows["finding_id"] == finding_id]
    if not found.empty:
        row = found.iloc[0]
        card(row, scene.selection)
        if row["state"] != "open":
            until = f" until {time_text(row['until'])}" if row["state"] == MUTED else ""
            st.caption(plain(f"{row['state']}{until}, by {row['by']}: {row['why']}"))
        if changes_allowed():
            _form(scene, row)
        else:
            _commands(scene, row)
        finding_measure(scene, row)
    elif finding_id:
        st.info(plain(f"Finding {finding_id} isn't open, or the filters in the sidebar exclude it."))


def _form(scene: Scene, row: pd.Series) -> None:
    said = page_state().remarks
    form = f"remark {said} {row['finding_id']}"
    with st.form(form, enter_to_submit=False):
        by, why, until = st.columns([2, 4, 2])
        known = user()
        by.text_input("By", known or page_state().remarks_by, key=f"{form} by", disabled=known is not None)
        why.text_input("Why", key=f"{form} why")
        until.text_input("Mute until (UTC)", _tomorrow(), key=f"{form} until")
        with st.container(horizontal=True):
            for change, label in BUTTONS.items():
                if change != UNMUTED or row["state"] == MUTED:
                    st.form_submit_button(
                        label, on_click=_say, args=(scene.lake.uri, row["finding_id"], change, form, said)
                    )


def _say(lake: str, finding_id: str, change: str, form: str, said: int) -> None:
    """Write what the form says, before the page is drawn again."""
    if said != page_state().remarks:  # the second click of two; the first has written it
        return
    texts = {name: st.session_state[f"{form} {name}"] for name in ("by", "why", "until")}
    texts["by"] = user() or texts["by"]  # whom a proxy names can't be somebody else
    try:
        line = say(lake, finding_id, change, texts, time.time_ns() // 1000)
    except RemarkError as error:
        page_state().remark = finding_id, False, f"Nothing was written: {error}"
        return
    finally:
        open_lake(lake).look_again()  # at what is written now, or was meanwhile, which is why nothing could be
    state = page_state()
    state.remark, state.remarks_by = (finding_id, True, line), texts["by"]
    state.remarks += 1  # an empty form


def _commands(scene: Scene, row: pd.Series) -> None:
    lake = scene.lake.uri
    st.caption(
        "This dashboard only reads. Start it with `--allow-changes` to acknowledge and mute findings here, or copy one "
        "of these commands and write the reason between its last quotes:"
    )
    for command in commands(lake, row["finding_id"], row["state"], _tomorrow()):
        st.code(command, "bash", wrap_lines=True)


def _tomorrow() -> str:
    return f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:00}Z"
