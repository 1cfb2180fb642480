"""The page about the pipeline's health: landed pushes, their outcomes, losses and delays."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.problems import lights
from kafka_telemetry_lake.dashboards.show import every_column, numbers, table


def page(scene: Scene) -> None:
    activity = scene.ask("activity")
    counted = activity.groupby("outcome")["pushes"].sum()
    quarantined = int(counted.get("quarantined", 0))
    numbers(
        {
            "Pushes": (activity["pushes"].sum(), "Landed in the time range."),
            "Heartbeats": (int(counted.get("heartbeat", 0)), "Pushes without data points."),
            "Duplicates": (int(counted.get("duplicate", 0)), "The same bytes again: stored, but not counted."),
            "Quarantined": (quarantined, "Rejected; table quarantine has the reasons."),
            "Lost intervals": (activity["lost_intervals"].sum(), "Collected by a client, but the push never landed."),
            "Dropped": (int(counted.get("dropped", 0)), "The receiver landed headers only."),
        }
    )
    lights(scene)
    left, right = st.columns(2)
    with left:
        lines(
            scene.per_second(activity, "pushes"),
            "pushes",
            "pushes per second",
            "Pushes by outcome",
            "outcome",
            scene.step_s,
        )
    with right:
        late = scene.ask("freshness").melt("at_ms", ["typical_ms", "high_ms"], "name", "ms")
        late["name"] = late["name"].map({"typical_ms": "median", "high_ms": "95th percentile"})
        note = "Measured between two clocks."
        lines(late, "ms", "ms", "Delay from the broker's receiver to the topic", "name", scene.step_s, note)
    table(
        scene.ask("quarantined", top=500),
        {
            "scope": "scope",
            "reason": "reason",
            "client_id": "client id",
            "rows": "rows",
            "last": "last (UTC)",
            "detail": "latest detail",
        },
        "Quarantine",
    )
    receivers(scene)
    health = scene.rows("pipeline_health")
    if health is not None:
        every_column(health, "The job's micro-batches")
    table(
        pd.DataFrame(scene.lake.sizes()),
        {"table": "table", "version": "version", "files": "files", "bytes": "size (bytes)", "rows": "rows"},
        "Tables of the lake",
    )


def receivers(scene: Scene, broker: int | None = None) -> None:
    """A table of the receivers' latest statuses, of all brokers or one."""
    rows = scene.ask("receivers", top=100)
    table(
        rows if broker is None else rows[rows["broker_id"] == broker],
        {
            "broker_id": "broker",
            "started_at": "started (UTC)",
            "reported_at": "reported (UTC)",
            "received": "received",
            "landed": "landed",
            "dropped": "dropped",
            "waiting": "waiting",
        },
        "Receivers: received = landed + dropped + waiting",
        none="No receiver has reported: docs/receiver.md.",
    )
