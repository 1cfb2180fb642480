"""The page about the fleet: the clients that push, their software and volume, and the findings about them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plots import bars, lines
from kafka_telemetry_lake.dashboards.problems import in_range, is_looked_for, linked, offer_to_look
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import numbers, table

CLIENT_COLUMNS = {
    "client_id": "client id",
    "client_instance_id": "client instance",
    "software": "software",
    "principal": "principal",
    "group_id": "consumer group",
    "pushes": "pushes",
    "first_push": "first push (UTC)",
    "last_push": "last push (UTC)",
    "terminated": "terminated",
}
FINDING_COLUMNS = {
    "severity": "severity",
    "client_id": "about",
    "finding": "finding",
    "evidence": "evidence of the last such hour",
    "hours": "hours seen",
    "last_window": "last seen in the hour from (UTC)",
}
MOST_ROWS = 1000


def page(scene: Scene) -> None:
    software = scene.ask("software")
    activity = scene.ask("activity")
    read = activity[activity["outcome"] == "points"]
    numbers(
        {
            "Instances": (scene.totals.instances, "Client instances that pushed in the time range."),
            "Client ids": (scene.totals.client_ids, "Distinct values of client.id."),
            "Principals": (_first(software["principals"]), "Distinct authenticated principals."),
            "Pushes": (activity["pushes"].sum(), "PushTelemetry requests that landed, with any outcome."),
            "Data points": (read["points"].sum(), "Data points decoded from the pushes."),
            "Versions": (_first(software["versions"]), "Distinct software names and versions."),
        }
    )
    left, right = st.columns(2)
    with left:
        clients_over_time(scene)
    with right:
        bars(software, "instances", "software", "client instances", "Software versions")
    left, right = st.columns(2)
    with left:
        points_over_time(scene)
    with right:
        rows = scene.per_second(read, "bytes")
        lines(rows, "bytes", "bytes per second", "Telemetry, decompressed", None, scene.step_s)
    found_in_range(scene)
    newest = scene.listed(scene.newest(MOST_ROWS)["client_instance_id"]).head(MOST_ROWS)
    table(newest, CLIENT_COLUMNS, f"Clients: the {len(newest):,} with the latest pushes")


def _first(counts: pd.Series) -> int:
    """A count that each row of an answer has; no row: 0."""
    return int(counts.iloc[0]) if len(counts) else 0


def clients_over_time(scene: Scene) -> None:
    """Plot how many client instances pushed, by software."""
    rows = scene.ask("clients_over_time").fillna({"client_software_name": "unknown"})
    lines(
        scene.whole(rows, 0.95),
        "clients",
        "client instances",
        "Client instances that pushed",
        "client_software_name",
        scene.step_s,
    )


def points_over_time(scene: Scene) -> None:
    """Plot the data points that were read."""
    activity = scene.ask("activity")
    read = scene.per_second(activity[activity["outcome"] == "points"], "points")
    lines(read, "points", "data points per second", "Data points", None, scene.step_s)


def found_in_range(scene: Scene) -> None:
    """Show the findings of the hours of the time range."""
    offer_to_look(scene)
    note = "Results of the rules in docs/findings.md for the hours of the time range."
    none = "None in this time range." if is_looked_for(scene) else "Not looked for yet."
    table(linked(in_range(scene), scene.selection), FINDING_COLUMNS, "Findings", note, none)
