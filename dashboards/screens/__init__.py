"""The pages, a function each that shows a scene. The folder isn't `pages`, which Streamlit would serve by itself."""

from __future__ import annotations

from collections.abc import Callable

from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens import (
    application,
    broker,
    client,
    client_id,
    connections,
    consumers,
    findings,
    fleet,
    group,
    health,
    lifecycle,
    principal,
    problems,
    producers,
    quotas,
    search,
    subscriptions,
    topic,
    version,
)

PAGES: dict[str, Callable[[Scene], None]] = {
    "": problems.page,
    "findings": findings.page,
    "fleet": fleet.page,
    "client-id": client_id.page,
    "client": client.page,
    "producers": producers.page,
    "consumers": consumers.page,
    "connections": connections.page,
    "lifecycle": lifecycle.page,
    "version": version.page,
    "application": application.page,
    "principal": principal.page,
    "topic": topic.page,
    "group": group.page,
    "quotas": quotas.page,
    "broker": broker.page,
    "subscriptions": subscriptions.page,
    "pipeline": health.page,
    "search": search.page,
}
