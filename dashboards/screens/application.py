"""The page about applications and owners: what each has, what is wrong with it, and whose clients nobody owns."""

from __future__ import annotations

import streamlit as st

from kafka_telemetry_lake.dashboards.address import OWNED
from kafka_telemetry_lake.dashboards.panels import about_clients, on_demand
from kafka_telemetry_lake.dashboards.problems import current, current_table
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.before_after import before_and_after_panel
from kafka_telemetry_lake.dashboards.screens.client_id import client_ids, over_time
from kafka_telemetry_lake.dashboards.show import every_column, table

COLUMNS = {
    "subject": "name",
    "errors": "errors",
    "warnings": "warnings",
    "client_ids": "client ids",
    "instances": "instances",
    "active_instances": "active",
    "members_pushing_nothing": "members that push nothing",
    "consumer_groups": "groups",
    "limited_instances": "limited by quotas",
    "throttled_instances": "throttled now",
    "versions": "versions",
    "last_seen": "last seen (UTC)",
}
NO_OWNERS = (
    "Nobody has said whose clients these are: `telemetry-lake sync --aliases-file` stores a list of applications, "
    "as docs/applications.md explains."
)


def page(scene: Scene) -> None:
    named = {key: scene.selection.chosen(key) for key in OWNED if scene.selection.chosen(key)}
    if named:
        _one(scene)
        return
    if scene.clients.owners.num_rows == 0:
        st.info(NO_OWNERS)
    for scope in OWNED:
        counted(scene, scope, f"{scope.capitalize()}s")
    unowned = scene.rows("unowned_clients")
    if unowned is not None:
        note = "For the whole lake, regardless of the time range."
        every_column(unowned, "Clients without an owner, and why", note, "None known.")


def counted(scene: Scene, scope: str, title: str) -> None:
    """What each application, owner or principal has."""
    rows = scene.rows("applications", scope=scope)
    if rows is None:
        return
    named = rows.dropna(subset=["subject"]).sort_values(["errors", "warnings", "instances"], ascending=False)
    named = named.rename(columns={"subject": scope})
    table(
        named,
        {scope if name == "subject" else name: label for name, label in COLUMNS.items()},
        title,
        none=f"No {scope} is known.",
    )


def _one(scene: Scene) -> None:
    open_now = current(scene)
    for key in OWNED:
        if (wanted := scene.selection.chosen(key)) and key in open_now.columns:
            open_now = open_now[open_now[key].isin(wanted)]
    current_table(open_now, scene, "What is wrong with its clients")
    applications = scene.selection.chosen("application")
    if len(applications) == 1:
        before_and_after_panel(scene, applications[0])
    if scene.totals.instances:
        about_clients(scene)
        client_ids(scene)
        over_time(scene)
    if len(applications) == 1 and on_demand("What it costs", "This reads every data point of the time range."):
        costs = scene.rows("application_cost", "window_start", application=applications[0])
        every_column(
            costs, "Cost by hour", none="No prices are known: `telemetry-lake sync --prices-file` stores them."
        )
