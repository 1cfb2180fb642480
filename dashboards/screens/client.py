"""The page about one client instance: what is wrong with it, and all that it did on one time axis."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
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
    clients = scene.chosen
    if clients.num_rows == 0:
        return
    wanted = page_value("instance")
    known = bool(pc.any(pc.equal(clients["client_instance_id"], wanted or "")).as_py())
    if wanted and not known:
        st.warning(plain(f"Client instance {wanted} didn't push in this time range, or the filters exclude it."))
    instance = str(wanted if known else _busiest(clients))
    _choose(clients, instance)
    own = pc.equal(scene.chosen["client_instance_id"], instance)
    client = scene.chosen.filter(own).to_pandas().iloc[0]
    findings = scene.ask("instance_findings", instance=instance)
    findings = findings.assign(scope="client_id", subject=client["client_id"], client_id=client["client_id"])
    findings = asked_first(findings)
    in_full(findings, scene.selection, "All that is wrong with this instance")
    if not findings.empty:
        of_it = {"scope": INSTANCE, "subject": instance, "cluster_id": client["cluster_id"]}
        finding_measure(scene, pd.Series({**findings.iloc[0], **of_it}))
    _about(client, scene)
    pushes = scene.ask("client_pushes", instance=instance, top=MOST_PUSHES)
    _time_axis(scene, instance, pushes)
    table(
        scene.ask("instance_events", instance=instance, top=1000),
        {"at": "at (UTC)", "event": "event", "detail": "detail"},
        "Events",
        none="None in this time range.",
    )
    _quotas(scene, instance)
    _pushes(pushes)
    _metrics(scene, instance)


def _busiest(clients: pa.Table) -> str:
    """The instance with the most pushes, of several the first by client id: found without sorting a million."""
    most = clients.filter(pc.equal(clients["pushes"], pc.max(clients["pushes"])))
    most = most.filter(pc.equal(most["client_id"], pc.min(most["client_id"])))
    return str(pc.min(most["client_instance_id"]).as_py())


def _choose(clients: pa.Table, instance: str) -> None:
    """A list of the instances, of those of this client id first."""
    clients = clients.select(["client_instance_id", "client_id"])
    (own,) = clients.filter(pc.equal(clients["client_instance_id"], instance)).to_pylist()
    siblings = pc.equal(clients["client_id"], own["client_id"])
    in_order = [
        clients.take(pc.indices_nonzero(part)[:MOST_OPTIONS]).sort_by(
            [("client_id", "ascending"), ("client_instance_id", "ascending")]
        )
        for part in (siblings, pc.invert(siblings))
    ]
    listed = pa.concat_tables(in_order).slice(0, MOST_OPTIONS)
    names = dict(zip(*(listed[name].to_pylist() for name in listed.column_names), strict=True))
    if instance not in names:  # one of very many siblings
        names = {instance: own["client_id"], **names}
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
    owned = scene.owned()
    owned = owned[owned["client_instance_id"] == client["client_instance_id"]]
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


def _time_axis(scene: Scene, instance: str, pushes: pd.DataFrame) -> None:
    """Throughput, latency, errors, queue or lag, connections, quota and pushes below each other."""
    names = list(dict.fromkeys(PREFIX + metric for row in ROWS for metric in row.metrics))
    rows = scene.ask("instance_over_time", instance=instance, metrics=names)
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


def _metrics(scene: Scene, instance: str) -> None:
    """Every metric of the instance, and the points of one."""
    metrics = scene.ask("client_metrics", instance=instance)
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


def _points(scene: Scene, instance: str, metric: str, kind: str) -> None:
    points = scene.ask("client_points", instance=instance, metric=metric, top=MOST_POINTS)
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
