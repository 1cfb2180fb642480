"""One client instance: what it is, what it pushed, each metric's points and the deltas found for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from dashboards.plots import lines
from dashboards.scene import PREFIX, Scene
from dashboards.screens.fleet import CLIENT_COLUMNS, tell_finding
from dashboards.show import numbers, plain, table

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
        st.warning(plain(f"Client instance {wanted} didn't push in this time range, or the filters leave it out."))
    instance = st.selectbox(
        "Client instance",
        options,
        index=options.index(wanted if wanted in names else busiest),
        format_func=lambda key: f"{names[key]}  ({key})",
    )
    _remember(linked, "instance", instance)
    _about(clients[clients["client_instance_id"] == instance], scene)
    metrics = scene.ask("client_metrics", instance=instance)
    if metrics.empty:
        st.info("Its pushes held no data points in this time range.")
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
    _remember(linked, "metric", metric)
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
        "Everything that it pushed",
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
            "Push interval (s)": (row["push_interval_ms"] / 1000, "What its subscription asks for."),
            "Silent for (s)": ((scene.last - row["last_push"]).total_seconds(), "Before the lake's newest push."),
        }
    )
    shown = {name: heading for name, heading in CLIENT_COLUMNS.items() if name not in ("open", "pushes")}
    known = client.rename(columns={**shown, "client_address": "address"})[[*shown.values(), "address"]]
    facts = known.T.set_axis(["value"], axis=1).rename_axis("what").reset_index()
    facts["value"] = facts["value"].map(_as_fact)
    table(facts, {"what": "what", "value": "value"}, "What is known of it")
    found = scene.ask("findings", top=1000)
    for _, finding in found[found["client_id"] == row["client_id"]].iterrows():
        tell_finding(finding)


def _as_fact(value: Any) -> str | None:
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
    what, unit = ("value", "value") if kind == "gauge" else ("delta", "increase since the push before")
    note = "" if len(busiest) == points["series"].nunique() else "The twelve series of the most points."
    lines(drawn, what, unit, f"{name}", "series" if len(busiest) > 1 else None, 0, note)
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


def _remember(linked: dict[str, str], key: str, value: Any) -> None:
    linked[key] = value
    st.query_params[key] = value
