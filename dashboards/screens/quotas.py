"""Quotas: who was throttled, by the clients' own word and by the brokers'."""

from __future__ import annotations

import streamlit as st

from dashboards.metrics import ask_over_time, by_client, largest
from dashboards.plots import lines
from dashboards.scene import Scene
from dashboards.show import every_column

PRODUCE, FETCH = "producer.produce.throttle.time.max", "consumer.fetch.manager.fetch.throttle.time.max"

USAGE_WINDOW_S = 10  # of table quota_usage
NO_SAMPLES = "No samples of brokers' quota sensors: see docs/quotas.md for how brokers send them."


def page(scene: Scene) -> None:
    rows = ask_over_time(scene, (PRODUCE, FETCH))
    largest(
        rows,
        scene,
        {PRODUCE: "producers", FETCH: "consumers"},
        "ms",
        "Longest throttling that clients saw",
        "Clients tell times only. librdkafka consumers tell none.",
    )
    usage = scene.ask("quota_use")
    step_s = max(scene.step_s, USAGE_WINDOW_S)
    left, right = st.columns(2)
    with left:
        lines(
            usage,
            "used_percent",
            "% of the quota",
            "Use of quotas, the entity nearest its limit",
            "quota_type",
            step_s,
            "By the brokers' quota sensors.",
        )
    with right:
        lines(usage, "throttled", "entities", "Entities that brokers throttled", "quota_type", step_s)
    by_client(
        scene,
        {(PRODUCE, "most"): "producer throttled up to (ms)", (FETCH, "most"): "consumer throttled up to (ms)"},
        "Throttling by client id",
        above=0,
    )
    for view, title, order, none in (
        ("quota_headroom", "Nearest to their limits now", "used_percent", NO_SAMPLES),
        ("throttled_clients", "Throttled by brokers", "since", "Nobody was."),
        ("quota_changes", "What changes of quotas did", "at", "No quota changed."),
        ("quota_history", "Quotas as configured", "valid_from", "None known: `telemetry-lake sync` keeps them."),
        (
            "unlimited_clients",
            "Clients without a quota",
            "client_id",
            "None known.",
        ),
    ):
        found = scene.rows(view)
        if found is not None:
            rows = found.sort_values(order, ascending=order == "client_id")
            every_column(rows, title, "Of the whole lake, whatever the time range.", none)
