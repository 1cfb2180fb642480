"""Lifecycle: who came, who went, who said goodbye, who fell silent."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboards.links import client_links
from dashboards.plots import bars, lines
from dashboards.scene import Scene
from dashboards.screens.fleet import CLIENT_COLUMNS
from dashboards.show import every_column, numbers, table

SILENT_INTERVALS = 3  # a broker forgets a client after so many push intervals, and no less than a minute
LEAST_S = 60
NONE_YET = "Nothing here yet: the job's lifecycle stage fills this as it follows the clients."
EVENT_COLUMNS = {
    "at": "at (UTC)",
    "event": "event",
    "client_id": "client id",
    "client_instance_id": "client instance",
    "detail": "detail",
}


def page(scene: Scene) -> None:
    clients = scene.chosen.to_pandas()
    gap = (scene.stop - clients["last_push"]).dt.total_seconds()
    patience = (clients["push_interval_ms"].fillna(0) / 1000 * SILENT_INTERVALS).clip(lower=LEAST_S)
    silent = (gap > patience) & ~clients["said_goodbye"]
    numbers(
        {
            "Pushing": (int((~silent & ~clients["said_goodbye"]).sum()), "Pushed within three intervals of the end."),
            "Said goodbye": (int(clients["said_goodbye"].sum()), "The last push was terminating."),
            "Silent": (int(silent.sum()), "No push for three intervals and a minute, and no goodbye."),
        }
    )
    events = scene.ask("events_over_time")
    left, right = st.columns(2)
    with left:
        lines(events, "events", "events per window", "Events", "event", scene.step_s)
    with right:
        counted = events.groupby("event")["events"].sum().sort_values(ascending=False).reset_index()
        bars(counted, "events", "event", "events", "Events by kind")
    table(
        scene.ask("events", top=500),
        EVENT_COLUMNS,
        "Latest events",
    )
    gone = clients[silent].assign(silent_s=gap[silent]).sort_values("silent_s", ascending=False).head(500)
    shown = {**CLIENT_COLUMNS, "silent_s": "silent for (s)"}
    table(client_links(gone, scene) if len(gone) else pd.DataFrame(), shown, "Silent clients")
    for view, title in (
        ("client_liveness", "Liveness of all clients"),
        ("coverage", "Coverage: what is missing of whom"),
    ):
        found = scene.rows(view)
        if found is not None:
            every_column(found, title, "Of the whole lake, whatever the time range.", NONE_YET)
