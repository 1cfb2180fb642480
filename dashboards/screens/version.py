"""The page about software versions: which are in use, what is wrong with them, and what to update to."""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.dashboards.panels import about_clients
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.client_id import client_ids
from kafka_telemetry_lake.dashboards.show import every_column, table
from kafka_telemetry_lake.pipelines.libraries.versions import UNKNOWN, versions

WHOLE = "For the whole lake, regardless of the time range."


def page(scene: Scene) -> None:
    rows = scene.rows("client_versions")
    assert rows is not None
    known = f"{WHOLE} By what was known on {versions().as_of}."
    names = rows["software_name"].fillna("unknown") + " " + rows["software_version"].fillna("unknown")
    rows = rows.assign(software=names, advice=[_advice(row) for _, row in rows.iterrows()]).sort_values(
        ["worst", "instances"], ascending=[True, False], na_position="last"
    )
    named = scene.selection.chosen("version")
    if named:
        rows = rows[rows["software"].isin(named)]
    table(
        rows,
        {
            "software": "version",
            "library": "library",
            "library_version": "its version",
            "advice": "advice",
            "instances": "instances",
            "active_instances": "active",
            "client_ids": "client ids",
            "supported": "supported",
            "bugs": "known bugs",
            "fixed_in": "without them from",
            "latest": "latest",
            "works_with_brokers_4": "works with brokers 4.x",
            "applications": "applications",
            "owners": "owners",
            "last_seen": "last seen (UTC)",
        },
        "Versions, and what to do about them",
        known,
        "No version is known: the job's lifecycle stage has not written any client yet.",
    )
    if named and scene.totals.instances:
        about_clients(scene, "Who uses it")
        client_ids(scene)
        libraries = sorted(set(rows["library"].dropna()))
        every_column(scene.rows("known_client_bugs", library=libraries), "Known bugs of the library", known)
        return
    every_column(
        scene.rows("rebootstrap_readiness"),
        "Ready for a change of the brokers' addresses (KIP-1102)?",
        known,
        "None known.",
    )


def _advice(row: Any) -> str:
    """What to do about a version, in a sentence."""
    bugs, fixed, latest, supported = (row[name] for name in ("bugs", "fixed_in", "latest", "supported"))
    if bugs is not None and len(bugs):
        return (
            f"Update to {fixed}: it has known bugs."
            if fixed
            else "It has known bugs, and no version without them is known."
        )
    if supported is not None and not supported:
        return f"Update to {latest}: this version gets no fixes any more." if latest else "This version gets no fixes."
    if row["software_name"] is None:
        return "Members that push nothing: look at the brokers' DeprecatedRequestsPerSec before an upgrade."
    if row["library"] == UNKNOWN:
        return "No library is known for this name: docs/applications.md says how to add it."
    return ""
