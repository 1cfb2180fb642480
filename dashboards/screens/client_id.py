"""The page about a client id: what is wrong with it, which of its instances is to blame, and what to change."""

from __future__ import annotations

import duckdb
import pandas as pd
import sqlglot
import streamlit as st

from kafka_telemetry_lake.dashboards.panels import about_clients, ask_over_time, largest, spread, total
from kafka_telemetry_lake.dashboards.plots import heat
from kafka_telemetry_lake.dashboards.problems import cards, current
from kafka_telemetry_lake.dashboards.questions import PREFIX, Consumer, Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import halves, table
from kafka_telemetry_lake.pipelines.findings.model import Rule
from kafka_telemetry_lake.pipelines.findings.rules import rules

OUTLIER = 3  # times the median of its siblings
MOST_INSTANCES = 40  # rows of the heat map
# The first of these that its instances push; librdkafka and franz-go push no counter of records.
HEAT = (Producer.SENT, Consumer.RECORDS, *(f"{kind}.connection.creation.total" for kind in ("producer", "consumer")))


def page(scene: Scene) -> None:
    named = scene.selection.chosen("client")
    if len(named) != 1:
        client_ids(scene)
        return
    client = named[0]
    findings = cards(scene, ("client_id",), client)
    if scene.totals.instances == 0:
        return
    ranked(scene, client, findings)
    left, right = st.columns([1, 1])
    with left:
        about_clients(scene)
    with right:
        changes = scene.rows("client_id_changes", client_id=client)
        latest = None if changes is None else changes.sort_values("at", ascending=False).head(200)
        table(
            latest,
            {"at": "at (UTC)", "change": "change", "subject": "of", "before": "before", "after": "after"},
            "What changed about it",
            none="Nothing that the lake knows of.",
        )
    over_time(scene)
    _heat(scene, client)


def client_ids(scene: Scene) -> None:
    """A table of the client ids of the chosen instances, those with findings first."""
    if scene.totals.instances == 0:
        return
    open_now = current(scene)
    wrong = open_now[open_now["severity"].isin(["error", "warning"])]["client_id"].value_counts()
    rows = scene.ask("client_ids")
    attrs = rows.attrs
    rows["findings"] = rows["client_id"].map(wrong).fillna(0).astype(int)
    owned = scene.owned().drop_duplicates("client_id")
    rows = rows.merge(owned[["client_id", "application", "owner"]], on="client_id", how="left")
    rows = rows.sort_values(["findings", "instances"], ascending=False, kind="stable")
    rows.attrs = attrs
    table(
        rows,
        {
            "client_id": "client id", "findings": "errors, warnings", "instances": "instances",
            "application": "application", "owner": "owner", "principal": "principal", "group_id": "consumer group",
            "software": "software", "versions": "versions", "pushes": "pushes", "last_push": "last push (UTC)",
        },
        "Client ids",
        "Those with findings first. Principal, group and software are those of one of its instances.",
    )  # fmt: skip


def ranked(scene: Scene, client: str, findings: pd.DataFrame) -> None:
    """The instances, ranked by what the finding measures; without a finding by their pushes."""
    first = None if findings.empty else findings.iloc[0]
    clients = scene.chosen.to_pandas()
    if first is None:
        rows = clients.sort_values("pushes", ascending=False)
        _instances(rows, "Its instances", "")
        return
    hour = first["window_start"] if "window_start" in first else first["last_window"]
    hours = scene.ask("client_hours", client=client, hour=hour.to_pydatetime(), top=10_000)
    rule = rules().get(first["finding"])
    measures = measured(hours, rule) if rule is not None else None
    worst = first.get("worst_instance")
    if rule is None or measures is None:
        rows = clients.sort_values("client_instance_id", key=lambda ids: ids != worst, kind="stable")
        _instances(rows, "Its instances", "The finding isn't about single instances.")
        return
    rows = clients.merge(measures, on="client_instance_id", how="outer")
    # Of those that are as bad, the one that the finding names comes first.
    rows = rows.assign(named=rows["client_instance_id"] == worst)
    rows = rows.sort_values(["measure", "named"], ascending=[rule.worse == "less", False], na_position="last")
    known = rows["measure"].dropna()
    note = f"In the hour from {hour:%Y-%m-%d %H:%M} UTC."
    if len(known) > 1:
        note += f" Least {known.min():,.4g}, median {known.median():,.4g}, most {known.max():,.4g} {rule.unit}."
        median = known.median()
        if median > 0 and rule.worse == "more":
            rows["times"] = rows["measure"] / median
            outliers = int((rows["times"] >= OUTLIER).sum())
            note += f" {outliers:,} of {len(known):,} have {OUTLIER} times the median or more."
    rows.attrs["sql"] = hours.attrs.get("sql", "")
    _instances(rows, f"Its instances by {rule.title[0].lower()}{rule.title[1:]}", note, rule.unit)


def _instances(rows: pd.DataFrame, title: str, note: str, unit: str = "") -> None:
    table(
        rows,
        {
            "client_instance_id": "client instance",
            "measure": {"ms": "measure (ms)", "s": "measure (s)", "bytes": "measure (bytes)"}.get(unit, unit),
            "times": "times the median",
            "software": "software",
            "principal": "principal",
            "group_id": "consumer group",
            "client_address": "address",
            "pushes": "pushes",
            "last_push": "last push (UTC)",
            "terminated": "terminated",
        },
        title,
        note,
    )


def measured(hours: pd.DataFrame, rule: Rule) -> pd.DataFrame | None:
    """The rule's measure of each instance of an hour; None: it doesn't measure single instances."""
    if hours.empty:
        return None
    measure = sqlglot.transpile(rule.sql(rule.measure), read="spark", write="duckdb")[0]
    aliases = "request_latency_ms AS latency_ms, lag_records AS lag"  # as rules about client ids call them
    try:
        with duckdb.connect() as database:
            database.register("hours", hours)
            rows: pd.DataFrame = database.sql(
                f"SELECT client_instance_id, CAST({measure} AS DOUBLE) AS measure FROM (SELECT *, {aliases} FROM hours)"
            ).df()
    except duckdb.BinderException:  # a column that only the rule's own SELECT has
        return None
    return rows


def over_time(scene: Scene) -> None:
    """What the chosen clients do over time, whichever kind they are."""
    both = dict.fromkeys((*Producer.OVER_TIME, *Consumer.OVER_TIME))
    rows = ask_over_time(scene, tuple(both))
    pushed = set(rows["metric"].str.removeprefix(PREFIX))
    place = halves()

    def has(*metrics: str) -> bool:
        return not pushed.isdisjoint(metrics)

    if has(Producer.SENT, Consumer.RECORDS):
        with next(place):
            total(rows, scene, {Producer.SENT: "sent", Consumer.RECORDS: "consumed"}, "records per second", "Records")
    if has(Producer.BYTES, Consumer.BYTES):
        with next(place):
            total(rows, scene, {Producer.BYTES: "sent", Consumer.BYTES: "consumed"}, "bytes per second", "Bytes")
    if has(Producer.LATENCY):
        with next(place):
            spread(rows, scene, Producer.LATENCY, "ms", "Request latency, mean of each client")
    if has(Producer.RETRIED, Producer.FAILED):
        with next(place):
            failing = {Producer.RETRIED: "retried", Producer.FAILED: "failed"}
            total(rows, scene, failing, "records per second", "Records retried and failed")
    if has(Producer.QUEUE):
        with next(place):
            spread(rows, scene, Producer.QUEUE, "ms", "Time in the producer's queue", most=False)
    if has(Consumer.LAG):
        with next(place):
            largest(rows, scene, {Consumer.LAG: "lag"}, "records", "Lag of the partition furthest behind")
    if has(Consumer.REBALANCES):
        with next(place):
            rebalances = {Consumer.REBALANCES: "rebalances", Consumer.FAILED: "failed"}
            total(rows, scene, rebalances, "per second", "Rebalances")


def _heat(scene: Scene, client: str) -> None:
    """Instances by time, for a client id of many: the one that is different shows."""
    if scene.totals.instances < 2:  # nothing to compare
        return
    pushed = set(scene.ask("metric_by_client", metrics=[PREFIX + name for name in HEAT], top=1)["metric"])
    metric = next((PREFIX + name for name in HEAT if PREFIX + name in pushed), None)
    if metric is None:
        return
    rows = scene.ask("instance_heat", client=client, metric=metric, instances=MOST_INSTANCES)
    heat(rows, "client_instance_id", "amount", "per second", f"{metric.removeprefix(PREFIX)} by instance", scene.step_s,
         f"The {MOST_INSTANCES} instances that have the most.")  # fmt: skip
