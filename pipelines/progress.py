"""How far a run is behind its source, and how long it will take: a line for the person who waits."""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pipelines.pipeline_metrics import behind

log = logging.getLogger(__name__)

WORTH_TELLING_S = 15.0
PUSHES, POINTS = "pushes", "points"


class Backlog:
    """Pushes that wait: in the landing topic for the stream `pushes`, and from there on for the stream `points`."""

    def __init__(self) -> None:
        self._in_topic = 0
        self._stored = 0  # by this run
        self._judged = 0

    def line(self, progress: dict[str, Any]) -> str | None:
        """What to say after a batch, if it is worth it.

        Args:
            progress: Spark's StreamingQueryProgress as JSON has it.
        """
        rows = progress["numInputRows"]
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        if progress["name"] == PUSHES:
            self._stored += rows
            self._in_topic = sum(behind(source) for source in progress["sources"])
            waiting = self._in_topic
        elif progress["name"] == POINTS:
            self._judged += rows
            waiting = self._in_topic + max(0, self._stored - self._judged)
        else:
            return None
        if rows == 0 or seconds == 0:
            return None
        rate = rows / seconds
        if waiting / rate < WORTH_TELLING_S:
            return None
        return f"{progress['name']}: {waiting:,} pushes wait, about {_duration(waiting / rate)} at {rate:,.0f}/s"


class Told(Protocol):
    """Who wants to know of the streams, by their names."""

    def batch(self, progress: dict[str, Any]) -> None: ...
    def alive(self, stream: str) -> None: ...
    def ended(self, stream: str, cause: str | None) -> None: ...


class ProgressLines(StreamingQueryListener):
    """Logs the backlog's lines, and passes on what it hears."""

    def __init__(self, told: Told) -> None:
        self._backlog, self._told = Backlog(), told
        self._names: dict[str, str] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        progress = json.loads(event.progress.json)
        if progress["numInputRows"] and progress["name"] != POINTS:  # those tell more of themselves
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            name, batch, rows = progress["name"], progress["batchId"], progress["numInputRows"]
            log.info("%s: batch %d stored, %s records, %.1f s", name, batch, f"{rows:,}", seconds)
        if line := self._backlog.line(progress):
            log.info(line)
        self._told.batch(progress)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._names[str(event.runId)] = event.name or str(event.id)
        self._told.alive(self._names[str(event.runId)])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self._told.alive(self._name(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._told.ended(self._name(event.runId), event.exception)

    def _name(self, run_id: object) -> str:
        return self._names.get(str(run_id), str(run_id))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
