"""The page about the lifecycle of clients: which are active, which terminated, which went silent."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.calendars import HOUR_MS, calendar
from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import bars, lines
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.fleet import CLIENT_COLUMNS
from kafka_telemetry_lake.dashboards.show import every_column, halves, numbers, table
from kafka_telemetry_lake.udfs.lifecycle.events import Event

MOST_SILENT = 500
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
    (states,) = scene.ask("silence").to_dict("records")
    active = states["instances"] - states["terminated"] - states["silent"]
    numbers(
        {
            "Active": (active, "Pushed within three intervals before the end."),
            "Terminated": (states["terminated"], "The last push was terminating."),
            "Silent": (
                states["silent"],
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
    gone = silent_for_longest(scene, MOST_SILENT if states["silent"] else 0)
    shown = {**CLIENT_COLUMNS, "silent_s": "silent for (s)"}
    table(gone, shown, "Silent clients", none="No client is silent.")
    many = scene.clients.known.instances > MOST_INSTANCES
    reads_all = "This reads all clients of the lake and may take a while."
    if many and not on_demand("Calendar, liveness and coverage", reads_all):
        return
    calendars(scene)
    for view, title in (
        ("client_liveness", "Liveness of all clients"),
        ("coverage", "Coverage: missing data of each client"),
    ):
        rows = scene.rows(view)
        if rows is not None:
            every_column(rows, title, "For the whole lake, regardless of the time range.", NONE_YET)


def silent_for_longest(scene: Scene, top: int) -> pd.DataFrame:
    """What is known of the instances that are silent for longest, and for how many seconds (`silent_s`)."""
    keys = ["cluster_id", "client_instance_id"]  # an instance of another cluster with an equal id may be active
    longest = scene.ask("longest_silent", top=top)[keys] if top else pd.DataFrame(columns=keys, dtype=object)
    gone = scene.listed(longest["client_instance_id"]).merge(longest, on=keys)
    gone = gone.sort_values(["last_push", *reversed(keys)])
    return gone.assign(silent_s=(scene.stop - gone["last_push"]).dt.total_seconds())


def calendars(scene: Scene) -> None:
    """Show when clients fell silent, lost the cluster, were throttled and lost telemetry: by hour and day.

    An hour in which the chosen clients pushed nothing, and nothing else happened, has no cell.
    """
    activity = scene.ask("activity", step_ms=HOUR_MS)
    events = scene.ask("events_over_time", step_ms=HOUR_MS)
    quotas = scene.ask("quota_use", step_ms=HOUR_MS)
    silent, lost = (events[events["event"] == kind.name.lower()] for kind in (Event.WENT_SILENT, Event.REBOOTSTRAP))
    intervals = "Push intervals of which nothing came, by the pushes after them."
    for column, (rows, amount, unit, title, note) in zip(
        halves(),
        (
            (silent, "events", "clients", "Fell silent, by hour", "At most 10,000 rows of an event are kept a minute."),
            (
                lost,
                "events",
                "rebootstraps",
                "Lost the cluster, by hour",
                "And bootstrapped again (KIP-1102).",
            ),
            (quotas, "throttled", "entities", "Throttled, by hour", "By brokers' quota sensors, of the whole lake."),
            (activity, "lost_intervals", "intervals", "Lost telemetry, by hour", intervals),
        ),
        strict=False,
    ):
        hours = activity if rows is not quotas else quotas
        with column:
            calendar(by_hour(rows, hours, amount), amount, unit, title, note, "None in this time range.")


def by_hour(rows: pd.DataFrame, hours: pd.DataFrame, amount: str) -> pd.DataFrame:
    """The sum of each hour that `rows` or `hours` have; 0 if only `hours` do."""
    known = sorted({*hours["at_ms"], *rows["at_ms"]})
    summed = rows.groupby("at_ms")[amount].sum().reindex(known, fill_value=0).rename_axis("at_ms").reset_index()
    summed.attrs["sql"] = rows.attrs.get("sql", "")
    return summed
