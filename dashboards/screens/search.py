"""The search: every name that the lake knows, by a part of it."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.address import FILTERS, LABELS, address, of_value
from kafka_telemetry_lake.dashboards.frame import page_value
from kafka_telemetry_lake.dashboards.problems import subject_address
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.topic import has_few_points
from kafka_telemetry_lake.dashboards.show import plain, table
from kafka_telemetry_lake.pipelines.findings.rules import rules

MOST_OF_A_KIND = 50


def page(scene: Scene) -> None:
    wanted = (page_value("q") or "").strip()
    if not wanted:
        st.info("Write a part of a name into the search field: of a client, group, topic, principal, application, ...")
        return
    if not has_few_points(scene):
        st.caption("Topics aren't searched in a range of so many data points: shorten it, or look at page Topics.")
    matches = search(scene, wanted)
    if matches.empty:
        st.info(plain(f"Nothing in this time range is called {wanted}."))
        return
    table(matches, {"name": "name", "kind": "what it is", "more": "more"}, f"Names that contain {wanted}")


def search(scene: Scene, wanted: str) -> pd.DataFrame:
    """Names that contain a text in any case, with what they are and the addresses of their pages."""
    rows: list[dict[str, str | None]] = []

    def add(kind: str, name: str, where: str | None, more: str = "") -> None:
        rows.append({"kind": kind, "name": name, "name link": where, "more": more})

    for key, column in FILTERS.items():
        for name in _matching(scene.labels(key), wanted):
            add(LABELS[key].lower(), name, of_value(column, name, scene.selection))
    ids = scene.clients.instances["client_instance_id"]
    for name in _matching(ids, wanted):
        add("client instance", name, of_value("client_instance_id", name, scene.selection))
    for column, kind in (("client_address", "address"),):
        instances = scene.clients.instances
        hits = instances.filter(pc.match_substring(pc.fill_null(instances[column], ""), wanted))
        for row in hits.slice(0, MOST_OF_A_KIND).to_pylist():
            where = of_value("client_instance_id", row["client_instance_id"], scene.selection)
            add(kind, row[column], where, f"client instance {row['client_instance_id']} of {row['client_id']}")
    # Topics that clients push of are only in the points.
    topics = pa.array(scene.ask("topic_use")["topic"] if has_few_points(scene) else (), pa.string())
    for name in _matching(topics, wanted):
        add("topic", name, of_value("topic", name, scene.selection))
    lowered = wanted.lower().replace(" ", "_")
    for rule in rules().values():
        if lowered in rule.id or wanted.lower() in rule.title.lower():
            add("finding", rule.id, address("findings", scene.selection, finding=rule.id), rule.title)
    for _, row in scene.open_findings().iterrows():
        if wanted.lower() in str(row["subject"]).lower():
            add(
                "open finding",
                f"{row['finding']} of {row['client_id']}",
                subject_address(row, scene.selection),
                row["evidence"],
            )
    return pd.DataFrame(rows, columns=["kind", "name", "name link", "more"])


def _matching(values: pa.ChunkedArray | pa.Array, wanted: str) -> list[str]:
    """The first of the distinct values that contain a text."""
    known = pc.unique(values).drop_null()
    hits = known.filter(pc.match_substring(known, wanted, ignore_case=True))
    return sorted(hits.to_pylist())[:MOST_OF_A_KIND]
