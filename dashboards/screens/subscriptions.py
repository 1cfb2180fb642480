"""The page about subscriptions: the metrics that the cluster requests, since when, and at what cost."""

from __future__ import annotations

import streamlit as st

from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import every_column, table


def page(scene: Scene) -> None:
    known = scene.rows("subscriptions")
    if known is None or known.empty:
        st.info("This lake has no client metrics subscriptions of the cluster yet: `telemetry-lake sync` stores them.")
    columns = {
        "name": "subscription",
        "interval_ms": "push interval (ms)",
        "metrics": "metric prefixes",
        "match": "matches",
        "valid_from": "since (UTC)",
        "cluster_id": "cluster",
    }
    now = None if known is None else known[known["valid_to"].isna()].sort_values("name")
    table(now, columns, "Subscriptions in force", none="None known.")
    every_column(scene.rows("subscription_changes"), "Changes", none="None known.")
    if on_demand("Cost and coverage", "These read every data point of the lake and may take a while."):
        every_column(scene.rows("subscription_cost"), "Cost per subscription and client id (bytes)")
        every_column(scene.rows("subscription_coverage"), "Clients that can't deliver the requested metrics")
