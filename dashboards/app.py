"""The Streamlit script that ``telemetry-lake dashboard`` runs. TELEMETRY_LAKE_LAKE is the lake's folder or URI."""

from __future__ import annotations

import os
from collections.abc import Callable

import streamlit as st

from kafka_telemetry_lake.dashboards.answers import CancelledError, LakeError, cancel_button, show_cancelled
from kafka_telemetry_lake.dashboards.frame import controls, header, lake_name, navigation, range_control, read_address
from kafka_telemetry_lake.dashboards.pages import PAGES, Page, subject
from kafka_telemetry_lake.dashboards.scene import Scene, open_scene
from kafka_telemetry_lake.dashboards.show import page_state, page_style, plain
from kafka_telemetry_lake.dashboards.users import ask_to_log_in, login_required, offer_to_log_out, user


def main() -> None:
    uri = os.environ.get("TELEMETRY_LAKE_LAKE", "")
    unknown = login_required() and user() is None
    title = "Kafka clients" if unknown else f"Kafka clients · {lake_name(uri)}"
    st.set_page_config(page_title=title, page_icon="📈", layout="wide")
    st.html(f"<style>{page_style()}</style>")
    chosen = st.navigation(
        [
            st.Page(_shown(page, uri), title=page.title, url_path=page.path or "problems", default=not page.path)
            for page in PAGES
        ],
        position="hidden",
    )
    if unknown:
        ask_to_log_in()
        return
    chosen.run()


def _shown(page: Page, uri: str) -> Callable[[], None]:
    """A page with its title and the sidebar; its body reruns at the refresh interval of the selection."""

    def show() -> None:
        cancel_button()
        selection, problems = read_address()
        heading = page.title
        page_state().selection = selection
        query = {key: st.query_params.get_all(key) for key in st.query_params}
        if page.about and (about := subject(page, query)):
            heading = f"{page.about.noun} {about}"
        with st.sidebar:
            range_control(selection)  # also while the page waits until the clients are counted, or can't know
        scene, errors, failed = None, 0, None
        try:
            scene = open_scene(uri, selection)
            errors = _errors(scene) if scene else 0
        except LakeError as problem:
            failed = problem
        named = scene.clients.known.clusters[:3] if scene else ()
        cluster = f" · {', '.join(named)}" if named else ""
        st.set_page_config(page_title=f"{heading} · {lake_name(uri)}{cluster}")
        with st.sidebar:
            navigation(page.path, selection, query, errors)
            controls(selection, scene)
            offer_to_log_out()
        st.title(plain(heading), anchor=False)
        if failed:
            _say(failed)
            return
        for said in problems:
            st.warning(plain(said))
        st.fragment(lambda: _body(page, uri, query), run_every=selection.refresh or None)()

    return show


def _body(page: Page, uri: str, query: dict[str, list[str]]) -> None:
    try:
        selection, _ = read_address()
        if selection != page_state().selection:  # a plot was zoomed: the sidebar must know too
            st.rerun()
        scene = open_scene(uri, selection)
        if scene is None:
            st.info(
                "This lake has no pushes yet. They appear here after `telemetry-lake ingest` has stored them. "
                "Clients push only if a client metrics subscription requests it."
            )
            return
        page_state().shown = scene.start, scene.stop
        header(scene, page.path, query)
        if scene.totals.instances == 0:
            st.info("No client that matches the filters pushed in this time range. Widen the range or remove a filter.")
        page_state().marks = scene.marks()
        page.show(scene)
    except LakeError as problem:
        _say(problem)


def _say(problem: LakeError) -> None:
    if isinstance(problem, CancelledError):
        show_cancelled(problem)
    else:
        st.error(plain(problem))


def _errors(scene: Scene) -> int:
    rows = scene.open_findings()
    return int(((rows["severity"] == "error") & (rows["state"] == "open")).sum())


main()
