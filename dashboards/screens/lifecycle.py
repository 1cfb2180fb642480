"""The page about the lifecycle of clients: which are active, which terminated, which went silent."""

from __future__ import annotations

import streamlit as st

from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import bars, lines
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.fleet import CLIENT_COLUMNS
from kafka_telemetry_lake.dashboards.show import every_column, numbers, table

SILENT_INTERVALS = 3  # a broker evicts a client after this many push intervals, but not within a minute
LEAST_S = 60
MOST_INSTANCES = 100_000  # what is known of each is read on demand if there are more: 7 CPU-s of a million
NONE_YET = "No rows yet: the job's lifecycle stage has not written any."
EVENT_COLUMNS = {
    "at": "at (UTC)",
    "event": "event",
    "client_id": "client id",
    "client_instance_id": "client instance",
    "detail": "detail",
}


def page(scene: Scene) -> None:
    clients = scene.chosen.select(["last_push", "push_interval_ms", "terminated"]).to_pandas()
    gap = (scene.stop - clients["last_push"]).dt.total_seconds()
    patience = (clients["push_interval_ms"].fillna(0) / 1000 * SILENT_INTERVALS).clip(lower=LEAST_S)
    silent = (gap > patience) & ~clients["terminated"]
    numbers(
        {
            "Active": (int((~silent & ~clients["terminated"]).sum()), "Pushed within three intervals before the end."),
            "Terminated": (int(clients["terminated"].sum()), "The last push was terminating."),
            "Silent": (
                int(silent.sum()),
                "No push for three intervals and a minute, and no terminating push.",
            ),
        }
    )
    events = scene.ask("events_over_time")
    rarest = list(events.groupby("event")["events"].sum().sort_values().index)  # they matter more than the usual ones
    left, right = st.columns(2)
    with left:
        lines(events, "events", "events per window", "Events", "event", scene.step_s, order=rarest)
    with right:
        counted = events.groupby("event")["events"].sum().sort_values().reset_index()
        bars(counted, "events", "event", "events", "Events by kind")
    table(
        scene.ask("events", top=500),
        EVENT_COLUMNS,
        "Latest events",
    )
    longest = gap[silent].sort_values(ascending=False, kind="stable").head(500)
    gone = scene.chosen.take(longest.index.to_numpy()).to_pandas().assign(silent_s=longest.to_numpy())
    shown = {**CLIENT_COLUMNS, "silent_s": "silent for (s)"}
    table(gone, shown, "Silent clients", none="No client is silent.")
    many = scene.clients.known.instances > MOST_INSTANCES
    if many and not on_demand("Liveness and coverage", "This reads all clients of the lake and may take a while."):
        return
    for view, title in (
        ("client_liveness", "Liveness of all clients"),
        ("coverage", "Coverage: missing data of each client"),
    ):
        rows = scene.rows(view)
        if rows is not None:
            every_column(rows, title, "For the whole lake, regardless of the time range.", NONE_YET)
