"""The first page: what is wrong, whose it is, what changed in the last hour, and whether the pages can be believed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.address import address
from kafka_telemetry_lake.dashboards.frame import age_text, freshness
from kafka_telemetry_lake.dashboards.problems import current, current_table, is_evaluated, is_looked_for, offer_to_look
from kafka_telemetry_lake.dashboards.questions import PREFIX, Consumer, Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.fleet import clients_over_time, points_over_time
from kafka_telemetry_lake.dashboards.show import element, numbers, table

# How to read the events, those first that somebody should look at.
EVENTS = {
    "mass_silence": "many clients fell silent at once",
    "mass_restart": "many clients restarted at once",
    "data_path_dead": "lost their way to all brokers",
    "rebootstrap": "went back to their bootstrap servers",
    "throttled": "were throttled",
    "went_silent": "fell silent",
    "software_changed": "changed their version",
    "duplicate_instance": "share an instance id",
    "offset_rewound": "had offsets put back",
    "restarted": "restarted",
    "first_seen": "are new",
    "terminated": "ended",
    "resumed": "came back",
    "data_path_restored": "found their brokers again",
    "temporality_flip": "changed their temporality",
    "lost_interval": "collected telemetry that never landed",
    "lost_interval_closed": "delivered telemetry that was missing",
    "too_late": "pushed too late to be counted",
}


def page(scene: Scene) -> None:
    if not is_evaluated(scene):
        offer_to_look(scene)
    rows = current(scene)
    unheeded = rows[rows["state"] == "open"]["severity"].value_counts()
    known = is_evaluated(scene) or is_looked_for(scene)

    def count(severity: str) -> int | None:
        return int(unheeded.get(severity, 0)) if known else None

    numbers(
        {
            "Errors": (count("error"), "Open findings that nobody looks after."),
            "Warnings": (count("warning"), "Open findings that nobody looks after."),
            "Info": (count("info"), "Open findings that nobody looks after."),
            "Acknowledged": (int((rows["state"] == "acknowledged").sum()), "Somebody looks after them."),
            "Client instances": (scene.totals.instances, "That pushed in the time range."),
        }
    )
    active = rows[rows["state"] != "muted"]
    current_table(active, scene, "What is wrong now")
    # A finding has an owner once it is evaluated. Before that the table of changes has all of the width.
    places = st.columns(2 if "owner" in active.columns else 1)
    with places[0]:
        _changes(scene)
    if "owner" in active.columns:
        with places[1]:
            _by_owner(active, scene)
    lights(scene)
    left, right = st.columns(2)
    with left:
        clients_over_time(scene)
    with right:
        points_over_time(scene)


def _by_owner(rows: pd.DataFrame, scene: Scene) -> None:
    """Open findings by the owner of their clients."""
    owners = (
        rows.assign(owner=rows["owner"].fillna("")).groupby("owner")["severity"].value_counts().unstack(fill_value=0)
    )
    owners = owners.reindex(columns=["error", "warning", "info"], fill_value=0).reset_index()
    owners = owners.sort_values(["error", "warning", "info"], ascending=False)
    owners["owner link"] = [
        address("findings", scene.selection, owner=name) if name else address("application", scene.selection)
        for name in owners["owner"]
    ]
    owners["owner"] = owners["owner"].replace("", "nobody's")
    table(
        owners,
        {"owner": "owner", "error": "errors", "warning": "warnings", "info": "info"},
        "Whose",
        none="No finding is open.",
    )


def changes(scene: Scene) -> pd.DataFrame:
    """What happened in the hour before the newest push: rows of question `changes`."""
    return scene.ask("changes", metrics=[PREFIX + metric for metric in (Producer.THROTTLE, Consumer.THROTTLE)])


def _changes(scene: Scene) -> None:
    """What happened in the hour before the newest push."""
    rows = changes(scene)
    order = {event: place for place, event in enumerate(EVENTS)}
    rows = rows.sort_values("event", key=lambda names: names.map(order).fillna(len(order)), kind="stable")
    where = {"throttled": "quotas", "rebootstrap": "connections", "data_path_dead": "connections"}
    shown = rows.assign(
        what=[EVENTS.get(event, event.replace("_", " ")) for event in rows["event"]],
        **{"what link": [address(where.get(event, "lifecycle"), scene.selection) for event in rows["event"]]},
    )
    whole = shown["client_id"].isna()  # of the whole fleet: nobody is counted
    shown[["client_ids", "instances"]] = shown[["client_ids", "instances"]].mask(whole)
    shown.attrs = rows.attrs
    table(
        shown,
        {
            "what": "clients that ...",
            "client_ids": "client ids",
            "instances": "instances",
            "client_id": "such as",
            "latest": "latest (UTC)",
        },
        "What changed in the last hour",
        none="Nothing: no client is new, gone, silent, restarted or throttled.",
    )


# Coverage: pushes that landed of those that were due. Below: what the light shows.
GOOD_COVERAGE, FAIR_COVERAGE = 0.99, 0.95
GOOD_REJECTED, FAIR_REJECTED = 0.0, 0.001


def lights(scene: Scene) -> None:
    """Traffic lights: may one believe what the pages show?"""
    element("lights", {"title": "Can this be believed?", "lights": _readings(scene)}, key="lights")


def _readings(scene: Scene) -> list[dict[str, Any]]:
    """The traffic lights; each has a bound that its meaning names."""
    level, age_s = freshness(scene)
    activity = scene.ask("activity")
    counted = activity.groupby("outcome")["pushes"].sum()
    pushes = int(counted.sum())
    rejected = int(counted.get("quarantined", 0)) / pushes if pushes else 0.0
    covered = _coverage(scene)
    dropped = int(counted.get("dropped", 0))

    def to(page: str) -> str:
        return address(page, scene.selection)

    evaluated = is_evaluated(scene)
    return [
        _light(
            "Freshness",
            level,
            f"{age_text(age_s)} old",
            "Age of the newest push: green up to two push intervals.",
            to("pipeline"),
        ),
        _light(
            "Coverage",
            "unknown"
            if covered is None
            else "good"
            if covered >= GOOD_COVERAGE
            else "fair"
            if covered >= FAIR_COVERAGE
            else "bad",
            "unknown" if covered is None else f"{covered:.1%}",
            "Pushes that landed of those that were due: green from 99 %.",
            to("lifecycle"),
        ),
        _light(
            "Readable",
            "good" if rejected <= GOOD_REJECTED else "fair" if rejected <= FAIR_REJECTED else "bad",
            f"{1 - rejected:.2%}",
            "Pushes that weren't quarantined: green if all, red below 99.9 %.",
            to("pipeline"),
        ),
        _light(
            "Receivers",
            "bad" if dropped else "good",
            f"{dropped:,} dropped",
            "Pushes whose payload a broker's receiver dropped: green if none.",
            to("pipeline"),
        ),
        _light(
            "Findings",
            "good" if evaluated else "unknown",
            "evaluated" if evaluated else "never evaluated",
            "telemetry-lake findings, or ingest --findings-minutes, looks for them.",
            to("findings"),
        ),
    ]


def _coverage(scene: Scene) -> float | None:
    """Pushes that landed of those that were due between each instance's first and last push; None: none was due."""
    return scene.totals.landed / scene.totals.due if scene.totals.due else None


def _light(name: str, level: str, text: str, meaning: str, where: str) -> dict[str, str]:
    return {"name": name, "level": level, "text": text, "meaning": meaning, "address": where}
