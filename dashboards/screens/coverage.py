"""The page about who pushes: connections and pushing instances by software, and client ids that push nothing."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import every_column, table

MOST_AT_ONCE = 100_000  # client instances of a lake whose points are read without being asked: 5 CPU-s of a million
TITLE = "Which share of the connections pushes, and why not the others?"
WHOLE = "As brokers last reported, regardless of the time range."


def page(scene: Scene) -> None:
    many = scene.clients.known.instances > MOST_AT_ONCE
    if many and not on_demand(TITLE, "This reads every data point of the lake and may take a while."):
        return
    rows = scene.rows("telemetry_coverage")
    if rows is not None:
        names = rows["client_software_name"] + " " + rows["client_software_version"].fillna("unknown")
        shares = {name: 100 * rows[name] for name in ("share_at_least", "share_at_most")}
        rows = rows.assign(software=names, **shares).sort_values(
            ["silent_connections", "connections"], ascending=False, na_position="last"
        )
    table(
        rows,
        {
            "software": "version",
            "listener": "listener",
            "library": "library",
            "connections": "connections",
            "pushing_instances": "instances that push",
            "share_at_least": "pushing, at least (%)",
            "share_at_most": "at most (%)",
            "silent_connections": "of silent clients, at least",
            "cut_off_instances": "cut off by size",
            "likely_reason": "likely reason",
            "reporting_brokers": "brokers",
            "reported_at": "reported (UTC)",
        },
        TITLE,
        f"{WHOLE} A client has several connections, so shares have bounds: docs/coverage.md.",
        "No broker has reported its connections: receivers in brokers do, those in a proxy don't.",
    )
    every_column(
        scene.rows("silent_clients"),
        "Client ids that push nothing",
        "Seen in the last day, in brokers' quota samples or as members of consumer groups.",
        "None known: brokers sample clients while a client quota is set, and `telemetry-lake sync` reads groups.",
    )
