"""The page about consumer groups: members and what they are assigned, lag in records and time, rebalances."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.panels import about_clients, ask_over_time, largest, on_demand, spread, total
from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.problems import cards, current, current_table
from kafka_telemetry_lake.dashboards.questions import Consumer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens import consumers
from kafka_telemetry_lake.dashboards.show import every_column, halves, numbers, readable, table

LAG_COLUMNS = {
    "group_id": "consumer group",
    "topic": "topic",
    "partition": "partition",
    "status": "status",
    "lag_records": "lag (records)",
    "time_lag_s": "behind in time (s)",
    "time_lag_error_s": "wrong by at most (s)",
    "lag_growth_per_s": "grows by (records/s)",
    "lost_in_s": "loses records in (s)",
    "committed_offset": "committed",
    "end_offset": "end of the log",
    "problem": "unknown because",
    "sampled_at": "polled (UTC)",
}
MEMBER_COLUMNS = {
    "client_id": "client id",
    "client_instance_id": "client instance",
    "assigned_partitions": "partitions",
    "assignment": "assignment",
    "host": "host",
    "group_instance_id": "static member",
    "member_id": "member id",
    "application": "application",
    "since": "since (UTC)",
    "group_state": "state of the group",
}
NO_SYNC = "`telemetry-lake sync` has not polled this group."


def page(scene: Scene) -> None:
    named = scene.selection.chosen("group")
    if len(named) != 1:
        consumers.groups(scene)
        lag = scene.rows("group_lag", latest=True)
        worst = None if lag is None else lag.sort_values(["time_lag_s", "lag_records"], ascending=False)
        table(worst, LAG_COLUMNS, "Furthest behind now", none="`telemetry-lake sync` has polled no groups yet.")
        return
    group = named[0]
    cards(scene, ("group",), group)
    lag = scene.rows("group_lag", latest=True, group_id=group)
    members = scene.rows("consumer_group_members", group_id=group)
    assert lag is not None
    assert members is not None
    seconds = lag["time_lag_s"].max()
    numbers(
        {
            "Lag": (
                lag["lag_records"].sum() if len(lag) else None,
                "Offsets that are not read yet, of all partitions: at most so many records.",
            ),
            "Members": (len(members) if len(members) else None, "As of the last poll of `telemetry-lake sync`."),
            "Instances that push": (scene.totals.instances, "In the time range."),
        }
    )
    if pd.notna(seconds):
        st.caption(f"Its oldest unread record is {readable(seconds, 's')} old.")
    over_time = scene.ask("lag_over_time", group=group, topic="")
    lines(over_time, "lag_records", "records", "Lag by topic", "topic", scene.step_s, "As `sync` polled it.", rest=True)
    table(lag.sort_values("lag_records", ascending=False), LAG_COLUMNS, "Lag by partition now", none=NO_SYNC)
    table(members, MEMBER_COLUMNS, "Members and what they are assigned", none=NO_SYNC)
    if scene.totals.instances:
        open_now, known = current(scene), set(scene.chosen["client_id"].to_pylist())
        current_table(open_now[open_now["client_id"].isin(known)], scene, "What is wrong with its clients")
        about_clients(scene)
    rows = ask_over_time(scene, Consumer.OVER_TIME)
    place = halves()
    with next(place):
        total(rows, scene, {Consumer.RECORDS: "consumed"}, "records per second", "Records consumed")
    with next(place):
        rebalances = {Consumer.REBALANCES: "rebalances", Consumer.FAILED: "failed"}
        total(rows, scene, rebalances, "per second", "Rebalances")
    with next(place):
        largest(rows, scene, {Consumer.LAG: "lag"}, "records", "Lag of the partition furthest behind")
    with next(place):
        spread(rows, scene, Consumer.IDLE, "ratio", "Share of the time that poll() waits", most=False)
    if on_demand("By member and minute", "This reads every data point of the time range."):
        every_column(scene.rows("consumer_groups", "minute", group_id=group), "Membership by minute")
