"""The page about the fleet: the clients that push, their software and volume, and the findings about them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.links import client_links
from kafka_telemetry_lake.dashboards.plots import bars, lines
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import numbers, plain, table

CLIENT_COLUMNS = {
    "client_id": "client id",
    "open": "open",
    "client_instance_id": "client instance",
    "software": "software",
    "principal": "principal",
    "group_id": "consumer group",
    "pushes": "pushes",
    "first_push": "first push (UTC)",
    "last_push": "last push (UTC)",
    "terminated": "terminated",
}
MOST_ROWS = 1000


def page(scene: Scene) -> None:
    clients = scene.chosen.to_pandas()
    activity = scene.ask("activity")
    read = activity[activity["outcome"] == "points"]
    numbers(
        {
            "Instances": (len(clients), "Client instances that pushed in the time range."),
            "Client ids": (clients["client_id"].nunique(), "Distinct values of client.id."),
            "Principals": (clients["principal"].nunique(), "Distinct authenticated principals."),
            "Pushes": (activity["pushes"].sum(), "PushTelemetry requests that landed, with any outcome."),
            "Data points": (read["points"].sum(), "Data points decoded from the pushes."),
            "Versions": (clients["software"].nunique(), "Distinct software names and versions."),
        }
    )
    left, right = st.columns(2)
    with left:
        lines(
            scene.whole(scene.ask("clients_over_time").fillna({"client_software_name": "unknown"}), 0.95),
            "clients",
            "client instances",
            "Client instances that pushed",
            "client_software_name",
            scene.step_s,
        )
    with right:
        by_version = clients.groupby("software").size().sort_values(ascending=False).rename("instances").reset_index()
        bars(by_version, "instances", "software", "client instances", "Software versions")
    left, right = st.columns(2)
    with left:
        lines(
            scene.per_second(read, "points"),
            "points",
            "data points per second",
            "Data points",
            None,
            scene.step_s,
        )
    with right:
        lines(
            scene.per_second(read, "bytes"),
            "bytes",
            "bytes per second",
            "Telemetry, decompressed",
            None,
            scene.step_s,
        )
    findings(scene)
    newest = clients.sort_values("last_push", ascending=False).head(MOST_ROWS)
    table(client_links(newest, scene), CLIENT_COLUMNS, f"Clients: the {len(newest):,} with the latest pushes")


def findings(scene: Scene, top: int = 200) -> None:
    """Show the findings, and the selected one's evidence and advice in full."""
    rows = scene.ask("findings", top=top)
    columns = {
        "client_id": "about",
        "severity": "severity",
        "finding": "finding",
        "evidence": "evidence of the last such hour",
        "hours": "hours seen",
        "advice": "advice",
        "last_window": "last seen in the hour from (UTC)",
    }
    note = "Results of the rules in docs/findings.md for the hours of the time range."
    chosen = table(rows, columns, "Findings", note, on_select="rerun", selection_mode="single-row", key="findings")
    if chosen is not None and chosen.selection.rows:
        show_finding(rows.iloc[chosen.selection.rows[0]], with_client=True)
    elif len(rows):
        st.caption("Select a row to read its evidence and advice in full.")


def show_finding(row: pd.Series, with_client: bool = False) -> None:
    """Show a finding's evidence and advice, in the colour of its severity."""
    box = {"error": st.error, "warning": st.warning}.get(row["severity"], st.info)
    client = f"{row['client_id']}, " if with_client else ""
    box(plain(f"{client}{row['finding']}: {row['evidence']}. {row['advice']}"))
