"""The page about one client instance: its details, its pushes, and each metric's points with their deltas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.scene import PREFIX, Scene
from kafka_telemetry_lake.dashboards.screens.fleet import CLIENT_COLUMNS, show_finding
from kafka_telemetry_lake.dashboards.show import numbers, plain, table

PREFERRED = ("record.send.total", "records.consumed.total", "request.latency.avg", "connection.creation.total")
MOST_POINTS = 20_000


def page(scene: Scene) -> None:
    linked: dict[str, str] = st.session_state.setdefault("linked", {})
    clients = scene.chosen.to_pandas().sort_values(["client_id", "client_instance_id"]).head(5000)
    if clients.empty:
        return
    busiest = clients.loc[clients["pushes"].idxmax(), "client_instance_id"]
    names = dict(zip(clients["client_instance_id"], clients["client_id"], strict=True))
    options = list(names)
    wanted = linked.get("instance")
    if wanted and wanted not in names:
        st.warning(plain(f"Client instance {wanted} didn't push in this time range, or the filters exclude it."))
    instance = st.selectbox(
        "Client instance",
        options,
        index=options.index(wanted if wanted in names else busiest),
        format_func=lambda key: f"{names[key]}  ({key})",
    )
    _set_link(linked, "instance", instance)
    _about(clients[clients["client_instance_id"] == instance], scene)
    metrics = scene.ask("client_metrics", instance=instance)
    if metrics.empty:
        st.info("Its pushes contain no data points in this time range.")
        return
    offered = list(metrics["metric"])
    wanted = linked.get("metric")
    first = next((name for end in PREFERRED for name in offered if name.endswith(end)), offered[0])
    metric = st.selectbox(
        "Metric",
        offered,
        index=offered.index(wanted if wanted in offered else first),
        format_func=lambda name: name.removeprefix(PREFIX),
    )
    _set_link(linked, "metric", metric)
    _points(scene, instance, metric, str(metrics.set_index("metric")["kind"][metric]))
    metrics["metric"] = metrics["metric"].str.removeprefix(PREFIX)
    table(
        metrics,
        {
            "metric": "metric",
            "kind": "kind",
            "series": "series",
            "points": "points",
            "increase": "increase",
            "least": "least value",
            "most": "largest value",
        },
        "All its metrics",
    )
    table(
        scene.ask("client_pushes", instance=instance, top=1000),
        {
            "landed_at": "landed (UTC)",
            "outcome": "outcome",
            "points": "points",
            "temporality": "temporality",
            "terminating": "terminating",
            "compression_type": "compression",
            "payload_bytes": "bytes",
            "broker_id": "broker",
            "lost_start": "lost from (UTC)",
            "lost_end": "lost to (UTC)",
        },
        "Pushes",
    )
    events = scene.ask("events", top=1000)
    table(
        events[events["client_instance_id"] == instance],
        {"at": "at (UTC)", "event": "event", "detail": "detail"},
        "Events",
    )


def _about(client: pd.DataFrame, scene: Scene) -> None:
    row = client.iloc[0]
    numbers(
        {
            "Pushes": (row["pushes"], "In the time range."),
            "Push interval (s)": (row["push_interval_ms"] / 1000, "As requested by its subscriptions."),
            "Silent for (s)": (
                (scene.last - row["last_push"]).total_seconds(),
                "From its last push to the lake's newest push.",
            ),
        }
    )
    shown = {name: heading for name, heading in CLIENT_COLUMNS.items() if name not in ("open", "pushes")}
    known = client.rename(columns={**shown, "client_address": "address"})[[*shown.values(), "address"]]
    details = known.T.set_axis(["value"], axis=1).rename_axis("name").reset_index()
    details["value"] = details["value"].map(_as_text)
    table(details, {"name": "name", "value": "value"}, "Details")
    for _, finding in scene.ask("instance_findings", instance=row["client_instance_id"]).iterrows():
        show_finding(finding)


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return None if pd.isna(value) else str(value)


def _points(scene: Scene, instance: str, metric: str, kind: str) -> None:
    points = scene.ask("client_points", instance=instance, metric=metric, top=MOST_POINTS)
    points["at_ms"] = points["time"].astype("int64") // 1000
    attributes = points["attributes"].fillna("")
    points["series"] = attributes.map(lambda text: text.strip("{}").replace('"', "") or "the client")
    busiest = points["series"].value_counts().head(12).index
    drawn = points[points["series"].isin(busiest)]
    name = metric.removeprefix(PREFIX)
    column, unit = ("value", "value") if kind == "gauge" else ("delta", "increase since the previous push")
    note = "" if len(busiest) == points["series"].nunique() else "Only the twelve series with the most points."
    lines(drawn, column, unit, name, "series" if len(busiest) > 1 else None, 0, note)
    columns = {
        "time": "time (UTC)",
        "series": "attributes",
        "value": "value",
        "delta": "delta",
        "delta_start": "delta since (UTC)",
        "delta_status": "status",
    }
    with st.expander(f"{len(points):,} points"):
        table(points, columns, "Points")


def _set_link(linked: dict[str, str], key: str, value: Any) -> None:
    linked[key] = value
    st.query_params[key] = value
