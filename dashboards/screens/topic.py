"""The page about topics: who writes and reads each, how much, and how far its readers are behind."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards import topic_use
from kafka_telemetry_lake.dashboards.frame import page_value
from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import lines, table_foot
from kafka_telemetry_lake.dashboards.problems import cards, current
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.group import LAG_COLUMNS
from kafka_telemetry_lake.dashboards.show import element, every_column, halves, heading, nothing, readable, table

NOTE = "Only Java clients push per topic; of others, the groups that `sync` sees are known."
MOST_POINTS = 10_000_000  # of the range; question `topic_use` takes 2.2 CPU-s for them, of a million clients
BYTES_NOTE = "Bytes written are compressed, bytes read decompressed."
MAP_NOTE = (
    f"A ribbon is as wide as its bytes in the time range. {BYTES_NOTE} "
    "Colours and signs are those of the worst open finding about an application, topic or group, "
    "or about one of its client ids; a ribbon has that of its application or group."
)
NO_TOPICS = "No client pushed metrics of a topic in this time range, and `telemetry-lake sync` has seen no group."
ROLES = {"written": "who writes it", "read": "who reads it"}


def page(scene: Scene) -> None:
    topic = page_value("topic")
    if topic is None:
        _all(scene)
        return
    cards(scene, ("topic",), topic)
    if _may_read(scene):
        _traffic(scene, topic)
    lag = scene.ask("lag_over_time", topic=topic, group="")
    lines(
        lag, "lag_records", "records", "Lag of its groups", "group_id", scene.step_s, "As `sync` polled it.", rest=True
    )
    now = scene.rows("group_lag", topic=topic, latest=True)
    table(_by_time(now), LAG_COLUMNS, "Lag by partition now", none="`telemetry-lake sync` has polled no group of it.")
    if on_demand("Everybody who is known", "This reads the points of all hours of the lake."):
        every_column(scene.rows("topic_clients", topic=topic), "Writers and readers by hour")


def _may_read(scene: Scene) -> bool:
    """Whether the points of the range are read: of very many that takes longer than a page should, so only on demand.

    Rollups know no topics.
    """
    if has_few_points(scene):
        return True
    note = f"This reads the range's {readable(_points(scene))} data points and may take a while."
    return on_demand("Traffic by topic", note)


def has_few_points(scene: Scene) -> bool:
    """Whether a page may read all points of the range."""
    return _points(scene) <= MOST_POINTS


def _points(scene: Scene) -> int:
    return int(scene.ask("activity")["points"].sum())


def _traffic(scene: Scene, topic: str) -> None:
    rows = scene.ask("topic_traffic", topic=topic)
    place = halves()
    for what, unit in (("bytes", "bytes per second"), ("records", "records per second")):
        with next(place):
            summed = rows.groupby(["role", "at_ms"])[what].sum(min_count=1).reset_index() if len(rows) else rows
            summed.attrs = rows.attrs
            shown = scene.per_second(summed, what) if len(summed) else summed
            note = f"{NOTE} {BYTES_NOTE}" if what == "bytes" else NOTE
            lines(shown, what, unit, what.capitalize(), "role", scene.step_s, note, list(ROLES))
    for role, title in ROLES.items():
        with next(place):
            own = rows[rows["role"] == role]
            clients = own.groupby("client_id")[["records", "bytes"]].sum(min_count=1).reset_index()
            clients = clients.sort_values(["bytes", "records"], ascending=False, na_position="last")
            clients.attrs = rows.attrs
            total = clients["records"].sum()
            clients["share"] = 100 * clients["records"] / total if total else float("nan")
            columns = {
                "client_id": "client id",
                "records": "records",
                "bytes": "bytes (bytes)",
                "share": "of the records (%)",
            }
            table(clients, columns, title[0].upper() + title[1:], NOTE, "Nobody who pushes such metrics.")


def _by_time(rows: pd.DataFrame | None) -> pd.DataFrame | None:
    return None if rows is None else rows.sort_values(["time_lag_s", "lag_records"], ascending=False)


def _all(scene: Scene) -> None:
    if not _may_read(scene):
        return
    rows = scene.ask("topic_use")
    _map(scene, rows)
    table(
        by_topic(rows),
        {
            "topic": "topic",
            "writers": "client ids that write",
            "records_written": "records written",
            "bytes_written": "bytes written (bytes)",
            "readers": "client ids that read",
            "records_read": "records read",
            "bytes_read": "bytes read (bytes)",
            "groups": "groups",
        },
        "Topics",
        f"{NOTE} {BYTES_NOTE}",
    )
    if on_demand("Who writes what others read?", "This reads the points of all hours of the lake."):
        every_column(scene.rows("topic_flows"), "From writer to reader")


def _map(scene: Scene, rows: pd.DataFrame) -> None:
    with st.container(border=True):
        heading("Topic map", MAP_NOTE)
        if rows.empty:
            nothing(NO_TOPICS)
            return
        use, found = topic_use.use_of(rows), topic_use.worst(current(scene))
        element("flow", topic_use.picture(use, found, scene.selection), key="topic map")
        words = topic_use.words(use, found, scene.selection)
        columns = {
            "topic": "topic",
            "role": "written or read",
            "application": "application",
            "client_id": "client id",
            "group_id": "group",
            "records": "records",
            "bytes": "bytes (bytes)",
        }
        table_foot(rows, columns, "Topic map", words, rows.attrs.get("sql", ""), seen=True)


def by_topic(rows: pd.DataFrame) -> pd.DataFrame:
    """A row of each topic: rows of question `topic_use` added up, those with the most bytes written first."""
    sides = []
    for role, who in (("written", "writers"), ("read", "readers")):
        own = rows[rows["role"] == role]
        grouped = own.groupby("topic")
        summed = grouped[["records", "bytes"]].sum(min_count=1).add_suffix(f"_{role}")
        told = own[
            own["records"].notna() | own["bytes"].notna()
        ]  # a group whose clients say nothing names no client id
        summed[who] = told.groupby("topic")["client_id"].nunique()
        sides.append(summed.assign(groups=grouped["group_id"].nunique()) if role == "read" else summed)
    joined = sides[0].join(sides[1], how="outer").rename_axis("topic").reset_index()
    order = ["bytes_written", "bytes_read", "records_read"]
    joined = joined.sort_values([*order, "topic"], ascending=[*[False] * len(order), True], na_position="last")
    joined.attrs = rows.attrs
    return joined
