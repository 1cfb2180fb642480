"""The page about one client instance: what is wrong with it, and all that it did on one time axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd
import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.finding_measure import finding_measure
from kafka_telemetry_lake.dashboards.frame import page_value, preset
from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.problems import asked_first, in_full
from kafka_telemetry_lake.dashboards.questions import PREFIX, Consumer, Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import facts, numbers, plain, table
from kafka_telemetry_lake.pipelines.findings.model import INSTANCE

PREFERRED = ("record.send.total", "records.consumed.total", "request.latency.avg", "connection.creation.total")
MICROSECOND = timedelta(microseconds=1)
MOST_POINTS = 20_000
MOST_PUSHES = 5000
MOST_OPTIONS = 5000
ROW_HEIGHT = 150
KINDS = ("producer", "consumer", "admin.client")


@dataclass(frozen=True)
class Row:
    """A plot of the time axis: metrics to names, which column of `instance_over_time`, and the unit."""

    title: str
    unit: str
    what: str
    metrics: dict[str, str]


ROWS = (
    Row("Throughput, records", "records per second", "per_second",
        {Producer.SENT: "sent", Consumer.RECORDS: "consumed"}),
    Row("Throughput, bytes", "bytes per second", "per_second", {Producer.BYTES: "sent", Consumer.BYTES: "consumed"}),
    Row("Latency", "ms", "mean", {Producer.LATENCY: "produce requests", Consumer.FETCH: "fetch requests"}),
    Row("Errors", "per second", "per_second", {Producer.FAILED: "failed records", Producer.RETRIED: "retried records",
        **{f"{kind}.failed.authentication.total": f"failed authentications ({kind})" for kind in KINDS}}),
    Row("Queue", "ms", "mean", {Producer.QUEUE: "time in the producer's queue"}),
    Row("Lag", "records", "most", {Consumer.LAG: "partition furthest behind"}),
    Row("Polling", "ratio", "mean", {Consumer.IDLE: "share of the time that poll() waits"}),
    Row("Connections opened", "per second", "per_second",
        {f"{kind}.connection.creation.total": kind for kind in KINDS}),
    Row("Delays by quotas", "ms", "most", {Producer.THROTTLE: "producer",
        "consumer.fetch.manager.fetch.throttle.time.max": "consumer"}),
    Row("Rebalances", "per second", "per_second", {Consumer.REBALANCES: "rebalances", Consumer.FAILED: "failed"}),
)  # fmt: skip


def page(scene: Scene) -> None:
    if scene.totals.instances == 0:
        return
    wanted = page_value("instance")
    rows = scene.listed([wanted] if wanted else scene.ask("busiest_instance")["client_instance_id"])
    if rows.empty:
        st.warning(plain(f"Client instance {wanted} didn't push in this time range, or the filters exclude it."))
        rows = scene.listed(scene.ask("busiest_instance")["client_instance_id"])
    client = rows.iloc[0]
    instance = client["client_instance_id"]
    _choose(scene, instance, client["client_id"])
    findings = scene.ask("instance_findings", instance=instance)
    findings = findings.assign(scope="client_id", subject=client["client_id"], client_id=client["client_id"])
    findings = asked_first(findings)
    in_full(findings, scene.selection, "All that is wrong with this instance")
    if not findings.empty:
        of_it = {"scope": INSTANCE, "subject": instance, "cluster_id": client["cluster_id"]}
        finding_measure(scene, pd.Series({**findings.iloc[0], **of_it}))
    _about(client, scene)
    # Many instances live for a part of the range: of other times no file is read. What is asked is of its id in all
    # clusters, so the rows of all of them count.
    lived = {
        "start": rows["first_push"].min().to_pydatetime(),
        "stop": rows["last_push"].max().to_pydatetime() + MICROSECOND,
    }
    pushes = scene.ask("client_pushes", instance=instance, top=MOST_PUSHES, **lived)
    _time_axis(scene, instance, pushes, lived)
    table(
        scene.ask("instance_events", instance=instance, top=1000),
        {"at": "at (UTC)", "event": "event", "detail": "detail"},
        "Events",
        none="None in this time range.",
    )
    _quotas(scene, instance)
    _pushes(pushes)
    _metrics(scene, instance, lived)


def _choose(scene: Scene, instance: str, client_id: str) -> None:
    """A list of the instances, of those of this client id first."""
    siblings = scene.ask("siblings", client=client_id, top=MOST_OPTIONS).sort_values("client_instance_id")
    others = scene.newest(MOST_OPTIONS)
    others = others[others["client_id"] != client_id].sort_values(["client_id", "client_instance_id"])
    listed = pd.concat([siblings, others]).head(MOST_OPTIONS)
    names = dict(zip(listed["client_instance_id"], listed["client_id"], strict=True))
    if instance not in names:  # one of very many siblings
        names = {instance: client_id, **names}
    options = list(names)
    preset("chosen instance", instance)

    def changed() -> None:
        st.query_params["instance"] = st.session_state["chosen instance"]

    st.selectbox(
        "Client instance",
        options,
        key="chosen instance",
        on_change=changed,
        format_func=lambda key: f"{names[key]}  ({key})",
    )


def _about(client: pd.Series, scene: Scene) -> None:
    numbers(
        {
            "Pushes": (client["pushes"], "In the time range."),
            "Push interval (s)": (client["push_interval_ms"] / 1000, "As requested by its subscriptions."),
            "Silent for (s)": (
                (scene.last - client["last_push"]).total_seconds(),
                "From its last push to the lake's newest push.",
            ),
        }
    )
    owners = scene.clients.owners
    owned = owners.filter(pc.equal(owners["client_instance_id"], client["client_instance_id"])).to_pandas()
    facts(
        "Details",
        {
            "client id": ("client_id", [client["client_id"]]),
            "application": ("application", owned["application"]),
            "owner": ("owner", owned["owner"]),
            "principal": ("principal", [client["principal"]]),
            "consumer group": ("group_id", [client["group_id"]]),
            "software": ("software", [client["software"]]),
            "address": ("", [client["client_address"] or "unknown"]),
            "client instance id": ("", [client["client_instance_id"]]),
            "first push": ("", [f"{client['first_push']:%Y-%m-%d %H:%M:%S} UTC"]),
            "last push": ("", [f"{client['last_push']:%Y-%m-%d %H:%M:%S} UTC"]),
            "terminated": ("", ["yes" if client["terminated"] else "no"]),
        },
        scene.selection,
    )


def _time_axis(scene: Scene, instance: str, pushes: pd.DataFrame, lived: Mapping[str, datetime]) -> None:
    """Throughput, latency, errors, queue or lag, connections, quota and pushes below each other."""
    names = list(dict.fromkeys(PREFIX + metric for row in ROWS for metric in row.metrics))
    rows = scene.ask("instance_over_time", instance=instance, metrics=names, **lived)
    rows["metric"] = rows["metric"].str.removeprefix(PREFIX)
    ends = scene.start, scene.stop
    for row in ROWS:
        own = rows[rows["metric"].isin(list(row.metrics))].dropna(subset=[row.what])
        if own.empty or (row.title in ("Errors", "Delays by quotas", "Rebalances") and not own[row.what].any()):
            continue
        own = own.assign(what=own["metric"].map(row.metrics))
        own.attrs = rows.attrs
        named = list(dict.fromkeys(own["what"]))
        lines(own, row.what, row.unit, row.title, "what", scene.step_s, order=named, height=ROW_HEIGHT, domain=ends)
    if len(pushes):
        at = pushes["landed_at"].dt.as_unit("ms").astype("int64") // (scene.step_s * 1000) * (scene.step_s * 1000)
        counted = pushes.assign(at_ms=at).groupby(["at_ms", "outcome"]).size().rename("pushes").reset_index()
        lines(counted, "pushes", "pushes per window", "Pushes", "outcome", scene.step_s, height=ROW_HEIGHT, domain=ends)


def _quotas(scene: Scene, instance: str) -> None:
    limits = scene.rows("client_quotas", client_instance_id=instance)
    if limits is not None:
        table(
            limits.dropna(subset=["quota_limit"]),
            {
                "quota_type": "quota",
                "quota_limit": "limit (per second)",
                "quota_user": "of the user",
                "quota_client_id": "of the client id",
                "valid_from": "since (UTC)",
            },
            "Quotas that limit it",
            none="None known: `telemetry-lake sync` stores the cluster's quotas.",
        )


def _pushes(pushes: pd.DataFrame) -> None:
    table(
        pushes,
        {
            "landed_at": "landed (UTC)",
            "outcome": "outcome",
            "points": "points",
            "temporality": "temporality",
            "terminating": "terminating",
            "compression_type": "compression",
            "payload_bytes": "size (bytes)",
            "broker_id": "broker",
            "lost_start": "lost from (UTC)",
            "lost_end": "lost to (UTC)",
        },
        "Pushes",
    )


def _metrics(scene: Scene, instance: str, lived: Mapping[str, datetime]) -> None:
    """Every metric of the instance, and the points of one."""
    metrics = scene.ask("client_metrics", instance=instance, **lived)
    if metrics.empty:
        st.info("Its pushes contain no data points in this time range.")
        return
    offered = list(metrics["metric"])
    wanted = page_value("metric")
    first = next((name for end in PREFERRED for name in offered if name.endswith(end)), offered[0])
    metric = str(wanted if wanted in offered else first)
    preset("chosen metric", metric)

    def changed() -> None:
        st.query_params["metric"] = st.session_state["chosen metric"]

    st.selectbox(
        "Metric",
        offered,
        key="chosen metric",
        on_change=changed,
        format_func=lambda name: name.removeprefix(PREFIX),
    )
    points = scene.ask("client_points", instance=instance, metric=metric, top=MOST_POINTS, **lived)
    _points(points, metric, str(metrics.set_index("metric")["kind"][metric]))
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


def _points(points: pd.DataFrame, metric: str, kind: str) -> None:
    points["at_ms"] = points["time"].dt.as_unit("ms").astype("int64")
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
