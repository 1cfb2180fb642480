"""Fleet: who pushes, with which software, how much, and what is wrong with whom."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboards.links import client_links
from dashboards.plots import bars, lines
from dashboards.scene import Scene
from dashboards.show import numbers, plain, table

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
    "said_goodbye": "said goodbye",
}
MOST_ROWS = 1000


def page(scene: Scene) -> None:
    clients = scene.chosen.to_pandas()
    activity = scene.ask("activity")
    read = activity[activity["outcome"] == "points"]
    numbers(
        {
            "Instances": (len(clients), "Client instances that pushed in the time range."),
            "Client ids": (clients["client_id"].nunique(), "Different client.id among them."),
            "Principals": (clients["principal"].nunique(), "Different authenticated principals among them."),
            "Pushes": (activity["pushes"].sum(), "PushTelemetry requests that landed, whatever became of them."),
            "Data points": (read["points"].sum(), "Data points read from them."),
            "Versions": (clients["software"].nunique(), "Different software name and version."),
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
    table(client_links(newest, scene), CLIENT_COLUMNS, f"Clients: the {len(newest):,} of the latest pushes")


def findings(scene: Scene, top: int = 200) -> None:
    """What is wrong with whom, and for a chosen row what to do about it."""
    found = scene.ask("findings", top=top)
    columns = {
        "client_id": "client id",
        "severity": "severity",
        "finding": "finding",
        "evidence": "evidence",
        "hours": "hours seen",
        "advice": "advice",
        "last_window": "last seen in the hour from (UTC)",
    }
    note = "What the rules of docs/findings.md see in the hours of the time range."
    chosen = table(found, columns, "Findings", note, on_select="rerun", selection_mode="single-row", key="findings")
    if chosen is not None and chosen.selection.rows:
        tell_finding(found.iloc[chosen.selection.rows[0]], of_whom=True)
    elif len(found):
        st.caption("Choose a row to read its evidence and advice in full.")


def tell_finding(row: pd.Series, of_whom: bool = False) -> None:
    """A finding's evidence and advice, in the colour of its severity."""
    say = {"error": st.error, "warning": st.warning}.get(row["severity"], st.info)
    whose = f"{row['client_id']}, " if of_whom else ""
    say(plain(f"{whose}{row['finding']}: {row['evidence']}. {row['advice']}"))
