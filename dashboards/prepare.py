"""What takes longest of the first pages is asked when the server starts, before anybody opens one."""

from __future__ import annotations

import threading
from contextlib import suppress

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.answers import LakeError
from kafka_telemetry_lake.dashboards.lake import PREPARED
from kafka_telemetry_lake.dashboards.scene import open_scene
from kafka_telemetry_lake.dashboards.screens import problems


def begin_to_prepare(uri: str) -> threading.Thread:
    """Ask in the background what the first page of the default range asks, and who the clients are."""
    thread = threading.Thread(target=_prepare, args=(uri,), daemon=True)
    thread.start()
    return thread


def _prepare(uri: str) -> None:
    with suppress(LakeError):  # whoever opens a page is told
        scene = open_scene(uri, Selection())
        if scene is not None:
            scene.marks()
            problems.changes(scene)
            for question in ("activity", "clients_over_time"):
                scene.ask(question)
            for view in PREPARED:
                scene.lake.rows(view, top=1)  # stores it for the views that read it
            _ = scene.chosen
            scene.ask("instance_findings", instance="")  # of nobody: all rules are read and planned once
