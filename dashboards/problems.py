"""Findings on the pages: where each leads, and its card with evidence, advice and the setting to copy."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.address import Selection, address, of_value
from kafka_telemetry_lake.dashboards.finding_measure import finding_measure
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import element, table
from kafka_telemetry_lake.pipelines.findings.model import LIBRARIES, Rule
from kafka_telemetry_lake.pipelines.findings.rules import rules

# What a finding may be about, and the parameter of that thing's page.
SCOPES = {
    "client_id": ("client-id", "client"),
    "instance": ("client-id", "client"),
    "principal": ("principal", "principal"),
    "group": ("group", "group"),
    "topic": ("topic", "topic"),
    "broker": ("broker", "broker"),
}
COLUMNS = ("client_id", "scope", "subject", "finding", "severity", "hours", "evidence", "advice", "last_window",
           "worst_instance")  # fmt: skip
MOST_FOUND = 500
MOST_JUDGED = 20_000  # pushes: the rules take 5 CPU-s for 100,000
LOOKED_FOR = "judge all rules"
TOPIC_SETTINGS = ("retention.ms", "message.timestamp.type")
SETTING = re.compile(r"\b[a-z]+(?:\.[a-z]+)+=\w+")
BROKER_SETTINGS = ("telemetry.max.bytes",)
EVALUATED = "`telemetry-lake findings`, or `ingest --findings-minutes`, evaluates them"
SHORT_COLUMNS = {
    "severity": "severity",
    "client_id": "about",
    "finding": "finding",
    "evidence": "evidence",
    "affected": "instances",
    "opened_at": "since (UTC)",
    "owner": "owner",
    "application": "application",
    "state": "state",
}


def subject_address(row: Any, selection: Selection) -> str:
    """The address that a finding leads to: the page about what has it, which shows the finding too."""
    page, key = SCOPES.get(row["scope"], ("quotas", None))
    about = {key: str(row["subject"])} if key else {}
    return address(page, selection, **about, finding=row["finding"])


def linked(rows: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """Open findings with the addresses of their subjects, and how many instances have them."""
    attrs = rows.attrs
    addresses = [subject_address(row, selection) for _, row in rows.iterrows()]
    rows = rows.assign(**{"client_id link": addresses, "finding link": addresses})
    if "instances" in rows.columns:
        rows["affected"] = [_of(row["instances_affected"], row["instances"]) for _, row in rows.iterrows()]
    rows.attrs = attrs
    return rows


def _of(affected: float, instances: float) -> str:
    return "" if pd.isna(affected) or pd.isna(instances) else f"{int(affected):,} of {int(instances):,}"


def current_table(rows: pd.DataFrame, scene: Scene, title: str) -> None:
    """A table of rows of `current`, the worst first."""
    evaluated = is_evaluated(scene)
    note = "" if evaluated else f"Of the hours of the time range; {EVALUATED} and keeps who looks after them."
    none = "Nothing is wrong." if evaluated else "Nothing was wrong in the hours of the time range."
    if not evaluated and not is_looked_for(scene):
        none = f"Not looked for yet: {EVALUATED}."
    table(linked(rows, scene.selection), SHORT_COLUMNS, title, note, none)


def of_subject(scene: Scene, scopes: tuple[str, ...], subject: str) -> pd.DataFrame:
    """The open findings about this, that of the page's address first; before any evaluation those of the time range."""
    rows = current(scene)
    rows = rows[rows["scope"].isin(scopes) & (rows["subject"] == subject)]
    return asked_first(rows)


def asked_first(findings: pd.DataFrame) -> pd.DataFrame:
    """Findings, that of the page's address first."""
    first = st.query_params.get("finding")
    return findings.sort_values("finding", key=lambda names: names != first, kind="stable")


def is_evaluated(scene: Scene) -> bool:
    """Whether anybody has ever looked for open findings."""
    return "finding_changes" in dict(scene.versions)


def cards(scene: Scene, scopes: tuple[str, ...], subject: str) -> pd.DataFrame:
    """Show what is wrong with a page's subject; returns the findings."""
    rows = of_subject(scene, scopes, subject)
    in_full(rows, scene.selection, "All that is wrong with it")
    if not rows.empty:
        finding_measure(scene, rows.iloc[0])
    return rows


def in_full(rows: pd.DataFrame, selection: Selection, title: str) -> None:
    """Show the first of some findings in full, and if there are more, all as a table."""
    if not rows.empty:
        card(rows.iloc[0], selection)
    if len(rows) > 1:
        table(linked(rows, selection), {**SHORT_COLUMNS, "hours": "hours"}, title)


def current(scene: Scene) -> pd.DataFrame:
    """What is wrong now: the open findings; before any evaluation those of the hours of the time range, all as open."""
    return scene.open_findings() if is_evaluated(scene) else in_range(scene).assign(state="open")


def in_range(scene: Scene) -> pd.DataFrame:
    """Findings of the hours of the time range; none while they aren't looked for."""
    rows = scene.ask("findings", top=MOST_FOUND) if is_looked_for(scene) else None
    return pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS}) if rows is None else rows


def is_looked_for(scene: Scene) -> bool:
    """Whether all rules are judged now: of many pushes that takes longer than a page should, so only if asked for."""
    return not _is_long(scene) or bool(st.session_state.get(LOOKED_FOR))


def offer_to_look(scene: Scene) -> None:
    """A switch that has all rules judged for the time range, if that isn't done anyway."""
    if _is_long(scene):
        st.toggle("Judge all rules for this time range, which may take a while", key=LOOKED_FOR)


def _is_long(scene: Scene) -> bool:
    # Of whichever clients: the rules are judged for all of them before the filters count.
    return scene.clients.known.pushes > MOST_JUDGED


def card(row: Any, selection: Selection) -> None:
    """Show a finding: cause, evidence, advice and setting.

    Args:
        row: a finding with its severity, evidence and advice; of open findings also since when and who has it.
    """
    rule = rules().get(row["finding"])
    facts: list[dict[str, Any]] = []

    def fact(name: str, value: Any, where: str | None = None) -> None:
        if not pd.isna(value) and value != "":
            facts.append({"name": name, "text": str(value), "address": where})

    if "opened_at" in row:
        fact("about", row["client_id"], subject_address(row, selection))
        fact("since", f"{row['opened_at']:%Y-%m-%d %H:%M} UTC")
        fact("measured in the hour from", f"{row['window_start']:%Y-%m-%d %H:%M} UTC")
        fact("instances", _of(row["instances_affected"], row["instances"]))
        fact("worst instance", row["worst_instance"], of_value("worst_instance", row["worst_instance"], selection))
        fact("application", row["application"], of_value("application", row["application"], selection))
        fact("owner", row["owner"], of_value("owner", row["owner"], selection))
        fact("state", row["state"])
    elif "last_window" in row:
        fact("last seen in the hour from", f"{row['last_window']:%Y-%m-%d %H:%M} UTC")
        fact("hours", row["hours"])
    name = row["finding"]
    fact("rule", name, address("findings", selection, finding=name))
    with st.container(border=True):
        element(
            "finding",
            {
                "severity": row["severity"],
                "title": rule.title if rule else name,
                "evidence": f"{row['evidence']}.",
                "advice": row["advice"],
                "setting": setting(row["advice"], rule) if rule else None,
                "facts": facts,
                "why": _why(rule) if rule else "",
            },
        )


def setting(advice: str, rule: Rule) -> dict[str, str] | None:
    """What to set, to be copied: the values that the advice computed, or those of the rule; None: no setting helps."""
    text = "\n".join(match[0] for match in SETTING.finditer(advice)) or rule.config
    if text is None:
        return None
    name = text.split("=")[0]
    of = "topic" if name in TOPIC_SETTINGS else "brokers" if name in BROKER_SETTINGS else "client"
    return {"of": f"Setting of the {of}:", "text": text}


def _why(rule: Rule) -> str:
    """What the rule compares, and whom it can't judge."""
    bounds = "; ".join(f"{name} {bound.value} {bound.unit}: {bound.reason}" for name, bound in rule.bounds.items())
    blind = [
        f"{name}: {getattr(rule.libraries, key)}"
        for key, name in LIBRARIES.items()
        if isinstance(getattr(rule.libraries, key), str)
    ]
    text = f"It holds if {rule.sql(rule.condition)}" + (f" ({bounds})" if bounds else "") + "."
    return text + (f" Not judged: {'; '.join(blind)}." if blind else "")
