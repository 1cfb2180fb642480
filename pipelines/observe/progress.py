"""Logs the progress of streams: how far a run is behind its source, and how long it will take."""

from __future__ import annotations

import json
import logging
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import behind

log = logging.getLogger(__name__)

MIN_BACKLOG_S = 15.0
PUSHES = "pushes"


def backlog_line(progress: dict[str, Any]) -> str | None:
    """The log line after a batch of `pushes`; None if what waits in the landing topic takes less than `MIN_BACKLOG_S`.

    Args:
        progress: Spark's StreamingQueryProgress, parsed from JSON.
    """
    if progress["name"] != PUSHES:
        return None
    source = progress["sources"][0]  # the other one reads statuses and quota samples
    rows, seconds = source["numInputRows"], progress["durationMs"].get("triggerExecution", 0) / 1000
    if rows == 0 or seconds == 0:
        return None
    waiting, rate = behind(source), rows / seconds
    if waiting / rate < MIN_BACKLOG_S:
        return None
    return f"{PUSHES}: {waiting:,} pushes waiting, about {_duration(waiting / rate)} at {rate:,.0f}/s"


class StreamObserver(Protocol):
    """Receives the events of streams; `stream` is the stream's name."""

    def batch(self, progress: dict[str, Any]) -> None: ...
    def alive(self, stream: str) -> None: ...
    def ended(self, stream: str, cause: str | None) -> None: ...


class _Progress(NamedTuple):
    json: str


class _ProgressEvent(NamedTuple):
    progress: _Progress


class _JavaEvents(JStreamingQueryListener):
    """PySpark's receiver of the JVM's events, but for a progress, of which it takes the JSON alone.

    PySpark reads each map of a progress entry by entry. A map's end is an exception, whose class PySpark looks up among
    those it knows, and the JVM searches all jars for each: a fifth of its CPU time with a small fleet.
    """

    def onQueryProgress(self, jevent: JavaObject) -> None:  # noqa: N802  # Spark's name
        self.pylistener.onQueryProgress(cast(QueryProgressEvent, _ProgressEvent(_Progress(jevent.progress().json()))))


class ProgressLines(StreamingQueryListener):
    """Logs progress lines and passes Spark's events on to an observer."""

    @cached_property
    def _jlistener(self) -> JavaObject:
        java = SparkContext._jvm
        assert java is not None
        return java.PythonStreamingQueryListenerWrapper(_JavaEvents(self))

    def __init__(self, observer: StreamObserver) -> None:
        self._observer = observer
        self._names: dict[str, str] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        progress = json.loads(event.progress.json)
        if progress["numInputRows"]:
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            name, batch, rows = progress["name"], progress["batchId"], progress["numInputRows"]
            log.info("%s: batch %d stored, %s records, %.1f s", name, batch, f"{rows:,}", seconds)
        if line := backlog_line(progress):
            log.info(line)
        self._observer.batch(progress)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        self._names[str(event.runId)] = event.name or str(event.id)
        self._observer.alive(self._names[str(event.runId)])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        self._observer.alive(self._name(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        self._observer.ended(self._name(event.runId), event.exception)

    def _name(self, run_id: object) -> str:
        return self._names.get(str(run_id), str(run_id))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
