"""The page about quotas: throttling as reported by clients and by brokers."""

from __future__ import annotations

import streamlit as st

from kafka_telemetry_lake.dashboards.address import address
from kafka_telemetry_lake.dashboards.panels import ask_over_time, by_client, largest
from kafka_telemetry_lake.dashboards.plots import MOST_SERIES, heat, lines
from kafka_telemetry_lake.dashboards.questions import Consumer, Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import every_column, table
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT

MOST_ENTITIES = 40  # of the heat map and the table
USAGE_WINDOW_S = 10  # of table quota_usage
HEADROOM_COLUMNS = {
    "principal": "user",
    "client_id": "client id",
    "quota_type": "quota",
    "broker_id": "broker",
    "used_percent": "used (%)",
    "observed_rate": "rate (per second)",
    "quota_limit": "limit (per second)",
    "headroom": "headroom (per second)",
    "throttled": "throttled",
    "delay_s": "delay (s)",
    "application": "application",
    "owner": "owner",
    "window_start": "measured from (UTC)",
    "source": "source",
}
THROTTLED_COLUMNS = {
    "client_id": "client id",
    "user": "user",
    "quota_type": "quota",
    "since": "since (UTC)",
    "until": "until (UTC)",
    "ongoing": "ongoing",
    "throttled_s": "throttled for (s)",
    "max_delay_s": "longest delay (s)",
    "max_usage_ratio": "most used (ratio)",
    "brokers": "brokers",
    "application": "application",
    "owner": "owner",
}
NO_SAMPLES = "No samples of brokers' quota sensors. docs/quotas.md explains how brokers send them."


def page(scene: Scene) -> None:
    rows = ask_over_time(scene, (Producer.THROTTLE, Consumer.THROTTLE))
    largest(
        rows,
        scene,
        {Producer.THROTTLE: "producers", Consumer.THROTTLE: "consumers"},
        "ms",
        "Longest throttling reported by clients",
        "Clients report throttle times only; librdkafka consumers don't report them.",
    )
    usage = scene.ask("quota_use")
    step_s = max(scene.step_s, USAGE_WINDOW_S)
    left, right = st.columns(2)
    with left:
        lines(
            usage,
            "used_percent",
            "% of the quota",
            "Quota use of the entity nearest its limit",
            "quota_type",
            step_s,
            "From the brokers' quota sensors.",
            none=NO_SAMPLES,
        )
    with right:
        lines(usage, "throttled", "entities", "Entities that brokers throttled", "quota_type", step_s, none=NO_SAMPLES)
    timeline(scene, step_s)
    by_client(
        scene,
        {(Producer.THROTTLE, "most"): "longest, producer (ms)", (Consumer.THROTTLE, "most"): "longest, consumer (ms)"},
        "Throttling by client id",
        above=0,
        none="No client reported that it was throttled.",
    )
    for view, title, order, none in (
        ("quota_headroom", "Nearest to their limits now", "used_percent", NO_SAMPLES),
        ("throttled_clients", "Throttled by brokers", "since", "No client was throttled."),
        ("quota_changes", "Effects of quota changes", "at", "No quota changed."),
        ("quota_history", "Quotas as configured", "valid_from", "None known: `telemetry-lake sync` stores them."),
        (
            "unlimited_clients",
            "Clients without a quota",
            "client_id",
            "None known.",
        ),
    ):
        shown = scene.rows(view)
        if shown is not None:
            shown = shown.sort_values(order, ascending=order == "client_id")
            every_column(shown, title, "For the whole lake, regardless of the time range.", none)


def timeline(scene: Scene, step_s: int) -> None:
    """Share of the quota and throttle time of each client id and user over time; the page marks changes of quotas."""
    rows = scene.ask("throttling", entities=MOST_ENTITIES)
    nearest = rows[rows["place"] <= MOST_SERIES]
    ends = scene.start, scene.stop
    for column, unit, title, note in (
        (
            "used_percent",
            "% of the quota",
            "Share of the quota, by user and client id",
            "Of the windows of 10 s the fullest. Vertical lines mark where a quota changed.",
        ),
        ("throttle_ms", "ms", "Throttle time, by user and client id", "Of the windows of 10 s the longest."),
    ):
        lines(nearest, column, unit, title, "entity", step_s, note, domain=ends, none=NO_SAMPLES)
    none = "Nobody was throttled." if len(rows) else NO_SAMPLES
    heat(rows[rows["throttle_ms"] > 0], "entity", "throttle_ms", "ms", "When each was throttled", step_s, none=none)
    entities = rows.groupby(["quota_type", "user", "client_id"], sort=False)
    summed = entities.agg(
        used_percent=("used_percent", "max"),
        throttle_ms=("throttle_ms", "max"),
        throttled_s=("throttled_s", "sum"),
        quota_limit=("quota_limit", "last"),
    ).reset_index()
    summed = summed.rename(columns={"user": "principal"})
    summed["principal link"] = [
        address("principal", scene.selection, principal=f"User:{user}") if user not in ("", DEFAULT) else None
        for user in summed["principal"]
    ]
    summed.attrs = rows.attrs
    table(
        summed,
        {
            "quota_type": "quota",
            "principal": "user",
            "client_id": "client id",
            "used_percent": "most used (%)",
            "throttle_ms": "longest throttling (ms)",
            "throttled_s": "throttled for (s)",
            "quota_limit": "limit (per second)",
        },
        "Who was delayed, and who came near",
        "An empty user or client id stands for all.",
        NO_SAMPLES,
    )
