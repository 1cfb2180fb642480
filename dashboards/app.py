"""The dashboard's entry: ``telemetry-lake dashboard`` has Streamlit run this file, the lake in TELEMETRY_LAKE_LAKE."""

from __future__ import annotations

import os
from collections.abc import Callable

import streamlit as st

from dashboards.controls import controls, keep_link, problems_of_link
from dashboards.lake import LakeError
from dashboards.scene import Scene, open_scene
from dashboards.screens import (
    client,
    connections,
    consumers,
    fleet,
    health,
    lifecycle,
    producers,
    quotas,
    subscriptions,
)
from dashboards.show import plain

Page = Callable[[Scene], None]
PAGES: tuple[tuple[str, str, str, Page], ...] = (
    ("Fleet", "fleet", ":material/groups:", fleet.page),
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
    """A page with the controls at its side; with its own rhythm when it is to follow new data."""

    def show() -> None:
        st.title(title)
        for problem in problems_of_link():
            st.warning(plain(problem))
        try:
            selection = controls(uri)
        except LakeError as problem:
            st.error(plain(problem))
            return
        keep_link(selection)

        def body() -> None:
            try:
                scene = open_scene(uri, selection)
                if scene is None:
                    st.info(
                        "This lake has no pushes yet. Once `telemetry-lake ingest` has stored some, they appear here; "
                        "clients push once a client metrics subscription asks them to."
                    )
                    return
                st.caption(_told(scene))
                if scene.chosen.num_rows == 0:
                    st.info("No client pushed in this time range for these filters: widen the range or drop a filter.")
                page(scene)
            except LakeError as problem:
                st.error(plain(problem))

        st.fragment(body, run_every=selection.refresh or None)()

    return show


def _told(scene: Scene) -> str:
    shown, known = scene.chosen.num_rows, scene.instances.num_rows
    clients = f"{shown:,} client instances" if shown == known else f"{shown:,} of {known:,} client instances"
    return plain(
        f"{clients}, {scene.start:%Y-%m-%d %H:%M:%S} to {scene.stop:%Y-%m-%d %H:%M:%S} UTC. "
        f"Newest push of the lake: {scene.last:%Y-%m-%d %H:%M:%S} UTC. Windows of {scene.step_s:,} s."
    )


main()
