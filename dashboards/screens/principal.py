"""The page about principals: which clients each runs, what limits it, and what is wrong with them."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.panels import about_clients
from kafka_telemetry_lake.dashboards.problems import cards, current, current_table
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.application import counted
from kafka_telemetry_lake.dashboards.screens.client_id import client_ids, over_time
from kafka_telemetry_lake.dashboards.screens.quotas import HEADROOM_COLUMNS, THROTTLED_COLUMNS
from kafka_telemetry_lake.dashboards.show import table


def page(scene: Scene) -> None:
    named = scene.selection.chosen("principal")
    if len(named) != 1:
        counted(scene, "principal", "Principals")
        return
    cards(scene, ("principal",), named[0])
    known = set(scene.chosen["client_id"].to_pylist())
    open_now = current(scene)
    of_clients = open_now[open_now["subject"].isin(known) & (open_now["scope"] != "principal")]
    current_table(of_clients, scene, "What is wrong with its clients")
    if scene.totals.instances:
        about_clients(scene)
        client_ids(scene)
        over_time(scene)
    user = named[0].split(":", 1)[-1]
    note = "For the whole lake, regardless of the time range."
    for view, columns, title in (
        ("quota_headroom", HEADROOM_COLUMNS, "Its quotas now"),
        ("throttled_clients", THROTTLED_COLUMNS, "When brokers throttled it"),
    ):
        table(scene.rows(view, user=user), columns, title, note, "No quota of this user is known.")
