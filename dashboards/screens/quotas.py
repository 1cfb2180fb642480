"""Quotas: who was throttled, by the clients' own word and by the brokers'."""

from __future__ import annotations

import streamlit as st

from dashboards.metrics import ask_over_time, by_client, largest
from dashboards.scene import Scene
from dashboards.show import every_column, lines

PRODUCE, FETCH = "producer.produce.throttle.time.max", "consumer.fetch.manager.fetch.throttle.time.max"


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
    left, right = st.columns(2)
    with left:
        lines(
            usage,
            "used_percent",
            "% of the quota",
            "Use of quotas, the entity nearest its limit",
            "quota_type",
            scene.step_s,
            "By the brokers' quota sensors.",
        )
    with right:
        lines(usage, "throttled", "entities", "Entities that brokers throttled", "quota_type", scene.step_s)
    by_client(
        scene,
        {(PRODUCE, "most"): "producer throttled up to (ms)", (FETCH, "most"): "consumer throttled up to (ms)"},
        "Throttling by client id",
        above=0,
    )
    for view, title, order in (
        ("quota_headroom", "Nearest to their limits now", "used_percent"),
        ("throttled_clients", "Throttled by brokers", "since"),
        ("quota_changes", "What changes of quotas did", "at"),
        ("quota_history", "Quotas as configured", "valid_from"),
        ("unlimited_clients", "Clients without a quota", "client_id"),
    ):
        found = scene.rows(view)
        if found is not None:
            every_column(found.sort_values(order, ascending=order == "client_id"), title)
