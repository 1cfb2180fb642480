"""What every page says first: its lake and cluster in the header and the tab's title, and how old the data is."""

from __future__ import annotations

from datetime import UTC, datetime

from kafka_telemetry_lake.dashboards.address import with_query
from kafka_telemetry_lake.dashboards.elements import element
from kafka_telemetry_lake.dashboards.questions import MOST_INSTANCES
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.selection import LABELS, Selection

LEAST_S = 120  # a lake that is asked so soon after its newest push is current
# Of the push interval of the median client: with all clients on one interval a push is due in each.
CURRENT, OLD = 2, 6


def lake_name(uri: str) -> str:
    """The last part of a lake's address, which is what people call it."""
    return uri.rstrip("/").rsplit("/", 1)[-1] or uri


def freshness(scene: Scene, now: datetime | None = None) -> tuple[str, float]:
    """How current the lake is (good, fair, bad), and the age of its newest push in seconds, by this machine's clock."""
    age_s = ((now or datetime.now(UTC)) - scene.last).total_seconds()
    patience_s = max(LEAST_S, scene.clients.known.push_interval_ms / 1000)
    return "good" if age_s <= CURRENT * patience_s else "fair" if age_s <= OLD * patience_s else "bad", age_s


def age_text(seconds: float) -> str:
    """A duration in its largest unit: 40 s, 12 minutes, 3 days."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return f"{max(0, int(seconds))} s"


def header(scene: Scene, page: str, query: dict[str, list[str]]) -> None:
    """Show the header of a page; `query` is that of its address."""
    level, age_s = freshness(scene)
    selection = scene.selection
    named = scene.clients.known.clusters
    fixed = selection.fixed(scene.start, scene.stop).query()
    permalink = {key: values for key, values in query.items() if key not in ("range", "refresh")} | fixed
    element(
        "header",
        {
            "level": level,
            "light": {"good": "current", "fair": "late", "bad": "old"}[level],
            "old": ""
            if level != "bad"
            else f"The newest push landed {age_text(age_s)} ago: what you see isn't what clients do now. "
            "Is telemetry-lake ingest running, do the clients push?",
            "facts": [
                {"name": "lake", "text": lake_name(scene.lake.uri), "title": scene.lake.uri},
                {"name": "cluster" if len(named) < 2 else "clusters", "text": ", ".join(named) or "unnamed"},
                {"name": "newest push", "text": f"{scene.last:%Y-%m-%d %H:%M:%S} UTC, {age_text(age_s)} ago"},
                {"name": "shown", "text": _shown(scene)},
            ],
            "chips": _chips(selection, page, query),
            "clear": with_query(page, {key: value for key, value in query.items() if key not in LABELS}),
            "permalink": with_query(page, permalink),
        },
    )


def _shown(scene: Scene) -> str:
    shown, known = scene.totals.instances, scene.clients.known.instances
    noun = "client instance" if shown == known == 1 else "client instances"
    clients = f"{shown:,} {noun}" if shown == known else f"{shown:,} of {known:,} {noun}"
    if known > MOST_INSTANCES:
        clients += f" (lists have the latest {MOST_INSTANCES:,})"
    return (
        f"{clients}, {scene.start:%Y-%m-%d %H:%M:%S} to {scene.stop:%Y-%m-%d %H:%M:%S} UTC, "
        f"in windows of {age_text(scene.step_s)}"
    )


def _chips(selection: Selection, page: str, query: dict[str, list[str]]) -> list[dict[str, str]]:
    """Each value of a filter, with the address of the page without it."""
    chips = []
    for key, values in selection.filters:
        for value in values:
            left = {**query, key: [other for other in values if other != value]}
            where = with_query(page, {name: each for name, each in left.items() if each})
            chips.append({"name": LABELS[key].lower(), "value": value, "address": where})
    return chips
