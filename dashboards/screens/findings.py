"""The page about open findings: since when, with which evidence, who looks after them; and the form to say so."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.links import client_links
from kafka_telemetry_lake.dashboards.remarks import RemarkError, changes_allowed, commands, say
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.fleet import show_finding
from kafka_telemetry_lake.dashboards.selection import FINDING_FILTERS
from kafka_telemetry_lake.dashboards.show import numbers, plain, table
from kafka_telemetry_lake.udfs.findings.remarks import ACKNOWLEDGED, MUTED, UNMUTED, time_text

COLUMNS = {
    "client_id": "about",
    "severity": "severity",
    "finding": "finding",
    "state": "state",
    "opened_at": "since (UTC)",
    "evidence": "evidence",
    "advice": "advice",
    "by": "by",
    "why": "why",
    "until": "muted until (UTC)",
    "application": "application",
    "owner": "owner",
    "open": "open",
    "cluster_id": "cluster",
}
BUTTONS = {ACKNOWLEDGED: "Acknowledge", MUTED: "Mute", UNMUTED: "Unmute"}
EVALUATED = "`telemetry-lake findings`, or `ingest --findings-minutes`, evaluates them"


def page(scene: Scene) -> None:
    linked: dict[str, Any] = st.session_state.setdefault("linked", {})
    rows = scene.ask_now("open_findings")
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
    shown = _filtered(rows, linked)
    links = client_links(shown.rename(columns={"worst_instance": "client_instance_id"}), scene)
    links["open"] = links["open"].where(links["client_instance_id"].notna(), None)
    columns = dict(COLUMNS)
    if rows["cluster_id"].nunique() <= 1:
        del columns["cluster_id"]
    none = "No finding is open." if "finding_changes" in dict(scene.versions) else f"Not evaluated yet: {EVALUATED}."
    # A selection is the number of a row: of other rows it is another table's.
    key = f"open findings {hash(tuple(shown['finding_id']))}"
    table(
        links,
        columns,
        "Open findings",
        f"Now, regardless of the time range: {EVALUATED}.",
        none if rows.empty else "No open finding matches.",
        on_select=partial(_choose, key, list(shown["finding_id"]), linked),
        selection_mode="single-row",
        key=key,
    )
    _chosen(scene, rows, linked.get("finding_id"))
    _write_link(linked)


def _filtered(rows: pd.DataFrame, linked: dict[str, Any]) -> pd.DataFrame:
    """The rows that match each of the page's filters."""
    shown = rows
    for column, (key, label) in zip(st.columns(len(FINDING_FILTERS)), FINDING_FILTERS.items(), strict=True):
        before = linked.get(key, [])
        picked = column.multiselect(
            label,
            sorted({*rows[key].dropna(), *before}),
            default=before,
            placeholder="all",
            key=f"open findings by {key}",
        )
        linked[key] = picked
        if picked:
            shown = shown[shown[key].isin(picked)]
    return shown


def _choose(key: str, finding_ids: list[str], linked: dict[str, Any]) -> None:
    """Remember which of the findings the table's selected row is."""
    st.session_state.pop("remark", None)
    rows = st.session_state[key].selection.rows
    linked["finding_id"] = finding_ids[rows[0]] if rows else None


def _write_link(linked: dict[str, Any]) -> None:
    for key in (*FINDING_FILTERS, "finding_id"):
        if linked.get(key):
            st.query_params[key] = linked[key]
        else:
            linked.pop(key, None)
            st.query_params.pop(key, None)


def _chosen(scene: Scene, rows: pd.DataFrame, finding_id: str | None) -> None:
    """Show the chosen finding, and what can be said about it."""
    about, written, line = st.session_state.get("remark", (None, False, ""))
    if about and about == finding_id:
        (st.success if written else st.error)(plain(line))
    found = rows[rows["finding_id"] == finding_id]
    if not found.empty:
        row = found.iloc[0]
        show_finding(row, with_client=True)
        if row["state"] != "open":
            until = f" until {time_text(row['until'])}" if row["state"] == MUTED else ""
            st.caption(plain(f"{row['state']}{until}, by {row['by']}: {row['why']}"))
        if changes_allowed():
            _form(scene, row)
        else:
            _commands(scene, row)
    elif finding_id:
        st.info(plain(f"Finding {finding_id} isn't open, or the filters in the sidebar exclude it."))
    elif len(rows):
        st.caption("Select a row to read its evidence and advice in full, and to acknowledge or mute it.")


def _form(scene: Scene, row: pd.Series) -> None:
    said = st.session_state.setdefault("remarks", 0)
    form = f"remark {said} {row['finding_id']}"
    with st.form(form, enter_to_submit=False):
        by, why, until = st.columns([2, 4, 2])
        by.text_input("By", st.session_state.get("remarks by", ""), key=f"{form} by")
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
    if said != st.session_state["remarks"]:  # the second click of two; the first has written it
        return
    texts = {name: st.session_state[f"{form} {name}"] for name in ("by", "why", "until")}
    try:
        line = say(lake, finding_id, change, texts, time.time_ns() // 1000)
    except RemarkError as error:
        st.session_state["remark"] = finding_id, False, f"Nothing was written: {error}"
        return
    st.session_state["remark"] = finding_id, True, line
    st.session_state["remarks"] += 1  # an empty form
    st.session_state["remarks by"] = texts["by"]


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
