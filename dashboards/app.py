"""The Streamlit script that ``telemetry-lake dashboard`` runs. TELEMETRY_LAKE_LAKE is the lake's folder or URI."""

from __future__ import annotations

import os
from collections.abc import Callable

import streamlit as st

from kafka_telemetry_lake.dashboards.controls import controls, link_problems, write_link
from kafka_telemetry_lake.dashboards.lake import LakeError
from kafka_telemetry_lake.dashboards.questions import MOST_INSTANCES
from kafka_telemetry_lake.dashboards.scene import Scene, open_scene
from kafka_telemetry_lake.dashboards.screens import (
    client,
    connections,
    consumers,
    findings,
    fleet,
    health,
    lifecycle,
    producers,
    quotas,
    subscriptions,
)
from kafka_telemetry_lake.dashboards.show import plain

Page = Callable[[Scene], None]
PAGES: tuple[tuple[str, str, str, Page], ...] = (
    ("Fleet", "fleet", ":material/groups:", fleet.page),
    ("Open findings", "findings", ":material/assignment_late:", findings.page),
    ("Producers", "producers", ":material/upload:", producers.page),
    ("Consumers and groups", "consumers", ":material/download:", consumers.page),
    ("Connections and rebootstraps", "connections", ":material/cable:", connections.page),
    ("Quotas", "quotas", ":material/speed:", quotas.page),
    ("Lifecycle", "lifecycle", ":material/timeline:", lifecycle.page),
    ("Subscriptions", "subscriptions", ":material/rule:", subscriptions.page),
    ("Pipeline health", "pipeline", ":material/monitor_heart:", health.page),
    ("One client", "client", ":material/person_search:", client.page),
)


def main() -> None:
    st.set_page_config(page_title="Kafka clients", page_icon="📈", layout="wide")
    uri = os.environ.get("TELEMETRY_LAKE_LAKE", "")
    chosen = st.navigation(
        [
            st.Page(_shown(title, page, uri), title=title, url_path=path, icon=icon, default=index == 0)
            for index, (title, path, icon, page) in enumerate(PAGES)
        ]
    )
    chosen.run()


def _shown(title: str, page: Page, uri: str) -> Callable[[], None]:
    """A page with its title and the sidebar; its body reruns at the refresh interval of the selection."""

    def show() -> None:
        st.title(title)
        for problem in link_problems():
            st.warning(plain(problem))
        try:
            selection = controls(uri)
        except LakeError as problem:
            st.error(plain(problem))
            return
        write_link(selection)

        def body() -> None:
            try:
                scene = open_scene(uri, selection)
                if scene is None:
                    st.info(
                        "This lake has no pushes yet. They appear here after `telemetry-lake ingest` has stored them. "
                        "Clients push only if a client metrics subscription requests it."
                    )
                    return
                st.caption(_summary(scene))
                if scene.chosen.num_rows == 0:
                    st.info(
                        "No client that matches the filters pushed in this time range. "
                        "Widen the range or remove a filter."
                    )
                page(scene)
            except LakeError as problem:
                st.error(plain(problem))

        st.fragment(body, run_every=selection.refresh or None)()

    return show


def _summary(scene: Scene) -> str:
    shown, known = scene.chosen.num_rows, scene.instances.num_rows
    clients = f"{shown:,} client instances" if shown == known else f"{shown:,} of {known:,} client instances"
    if known == MOST_INSTANCES:
        clients += " (only the latest; there may be more)"
    return plain(
        f"{clients}, {scene.start:%Y-%m-%d %H:%M:%S} to {scene.stop:%Y-%m-%d %H:%M:%S} UTC. "
        f"Newest push of the lake: {scene.last:%Y-%m-%d %H:%M:%S} UTC. Windows of {scene.step_s:,} s."
    )


main()
