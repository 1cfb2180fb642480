"""Subscriptions: what the cluster asks clients for, since when, and at what cost."""

from __future__ import annotations

import streamlit as st

from dashboards.scene import Scene
from dashboards.show import every_column, table


def page(scene: Scene) -> None:
    known = scene.rows("subscriptions")
    if known is None or known.empty:
        st.info(
            "This lake doesn't know the cluster's client metrics subscriptions yet: `telemetry-lake sync` keeps them."
        )
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
    with st.container(border=True):
        st.markdown("**Cost and coverage**")
        st.caption("These read every data point of the lake, whatever the time range: that may take a while.")
        if st.toggle("Compute them"):
            every_column(scene.rows("subscription_cost"), "Cost per subscription and client id (bytes)")
            every_column(scene.rows("subscription_coverage"), "Who can't deliver what was asked")
        else:
            st.caption("Not computed.")
