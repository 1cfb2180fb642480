"""What a run says about its backlog."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.observe.progress import backlog_line


def progress(name: str, rows: int, seconds: float, latest: int | None = None, end: int = 0) -> dict[str, Any]:
    source: dict[str, Any] = {"latestOffset": None, "endOffset": {"reservoirVersion": 3}}
    if latest is not None:
        source = {"latestOffset": {"t": {"0": latest, "1": 5}}, "endOffset": {"t": {"0": end, "1": 5}}}
    others = {"latestOffset": {"s": {"0": 9_000_000}}, "endOffset": {"s": {"0": 0}}, "numInputRows": 7}
    return {
        "name": name,
        "numInputRows": rows + 7,
        "durationMs": {"triggerExecution": int(seconds * 1000)},
        "sources": [source | {"numInputRows": rows}, others],
    }


def test_what_waits_in_the_topic_and_how_long_it_takes() -> None:
    line = backlog_line(progress("pushes", 50_000, 10, latest=1_550_000, end=50_000))
    assert line == "pushes: 1,500,000 pushes waiting, about 5 min at 5,000/s"


def test_hours() -> None:
    line = backlog_line(progress("pushes", 1000, 1, latest=7_321_000, end=1000))
    assert line == "pushes: 7,320,000 pushes waiting, about 2 h 2 min at 1,000/s"


@pytest.mark.parametrize(
    "quiet",
    [
        progress("pushes", 50_000, 10, latest=60_000, end=50_000),  # 2 s
        progress("pushes", 0, 0, latest=60_000, end=0),
        progress("pushes", 0, 1, latest=60_000_000, end=0),  # a batch of statuses
        progress("points", 10, 1),
        progress("receiver_health", 10, 10, latest=1_000_000, end=0),
    ],
)
def test_nothing_to_say(quiet: dict[str, Any]) -> None:
    assert backlog_line(quiet) is None
