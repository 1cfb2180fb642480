"""The figures of a fleet as Prometheus' metric families: refreshed at intervals, served from memory.

What was rendered after a refresh is the answer to all scrapes before the next one.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.registry import Collector

from kafka_telemetry_lake.pipelines.export.counting import Counting
from kafka_telemetry_lake.pipelines.export.families import Labels
from kafka_telemetry_lake.pipelines.export.measures import (
    COUNTERS,
    DIMENSIONS,
    LEVELS,
    LONGEST_LABEL,
    OTHER,
    PREFIX,
    REST,
    STATES,
    State,
)
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

READ_ERRORS = (TelemetryLakeError, DeltaError, duckdb.Error, OSError, pa.ArrowException)  # of a look at the lake
STATES_COST = 10  # views are asked again after this many times the seconds that they took
ASKED_BY = ("REQUEST_METHOD", "QUERY_STRING", "HTTP_ACCEPT", "HTTP_ACCEPT_ENCODING")
RENDERED = 8  # forms that are kept: text and OpenMetrics, each plain and compressed, and some more
Sample = tuple[Mapping[str, str], float]
_COUNTERS = {each.measure: each for each in COUNTERS}
_LEVELS = {each.measure: each for each in LEVELS}
_ERRORS, _ERRORS_MEANING = f"{PREFIX}_export_refresh_errors", "Looks at the lake that failed"


def gauge(name: str, meaning: str, samples: Iterable[Sample]) -> Metric:
    """A gauge with these label sets and values."""
    return _family(name, meaning, "gauge", "", samples)


def counter(name: str, meaning: str, samples: Iterable[Sample]) -> Metric:
    """A counter; `name` is without `_total`."""
    return _family(name, meaning, "counter", "_total", samples)


def _family(name: str, meaning: str, kind: str, suffix: str, samples: Iterable[Sample]) -> Metric:
    family = Metric(name, meaning, kind)
    for labels, value in samples:
        family.add_sample(f"{name}{suffix}", dict(labels), value)
    return family


def states(lake: str, top: int) -> Iterator[Metric]:
    """The gauges over views.

    Raises:
        QueryError: the lake can't be read.
    """
    for each in STATES:
        answer = run_query(lake, each.sql).read_all()
        names = ["cluster_id", *answer.column_names[1:-1]]
        rows = zip(*(column.to_pylist() for column in answer.columns), strict=True)
        yield gauge(f"{PREFIX}_{each.name}", each.meaning, _first(each, names, rows, top))


def _first(state: State, names: Sequence[str], rows: Iterable[tuple[Any, ...]], top: int) -> list[Sample]:
    """The first rows as samples, and the rest added up. Equal label sets, after cutting, are one."""
    is_sum = state.rest == "sum"
    merged: dict[tuple[str, ...], float] = {}
    for *labels, value in rows:
        key = tuple("" if label is None else str(label)[:LONGEST_LABEL] for label in labels)
        if key in merged:
            merged[key] = merged[key] + value if is_sum else max(merged[key], value)
        else:
            merged[key] = float(value)
    sign = -1 if state.first == "greatest" else 1
    own = heapq.nsmallest(top, merged.items(), key=lambda item: (sign * item[1], item[0]))
    samples: list[Sample] = [(_named(names, key), value) for key, value in own]
    rest: dict[tuple[str, ...], float] = {}
    if state.rest != "none":
        shown = {key for key, _ in own}
        for key, value in merged.items():
            if key not in shown:
                kept = tuple(label for name, label in zip(names, key, strict=True) if name in state.kept)
                rest[kept] = rest.get(kept, 0) + value if is_sum else max(rest.get(kept, value), value)
    kept_names = [name for name in names if name in state.kept]
    gone = {name: OTHER for name in names if name not in state.kept} | {REST: "true"}
    for kept, value in rest.items():
        samples.append((gone | _named(kept_names, kept), value))
    return samples


def _named(names: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """A label set; an empty label is as if absent in Prometheus."""
    return {name: label for name, label in zip(names, labels, strict=True) if label}


class Fleet(Collector):
    """A collector whose `collect` gives what the last refresh has made, however often it is called.

    Args:
        top: most series of a gauge over a view.
    """

    def __init__(self, lake: str, counting: Counting, top: int, clock: Callable[[], float] = time.time) -> None:
        self._lake, self._counting, self._top, self._clock = lake, counting, top, clock
        self._others: list[Callable[[], Iterable[Metric]]] = []
        self._states: list[Metric] = []
        self._states_due = float("-inf")
        self._errors = 0
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self.refreshes = 0

    def also(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Take further families at each refresh, such as those of OTLP."""
        self._others.append(families)

    def collect(self) -> Iterator[Metric]:
        yield from self.families

    def describe(self) -> list[Metric]:
        """Nothing: names of families don't clash with those of other collectors."""
        return []

    @property
    def families(self) -> list[Metric]:
        """What was made last."""
        with self._lock:
            return self._families

    def refresh(self) -> bool:
        """Read what is new in the lake. If it can't be read, the figures stay; returns whether it could."""
        begun = time.monotonic()
        try:
            self._counting.read()
            if begun >= self._states_due:
                self._states = list(states(self._lake, self._top))
                self._states_due = time.monotonic() + STATES_COST * (time.monotonic() - begun)
        except READ_ERRORS as error:
            self._errors += 1
            log.warning("export: the lake can't be read, figures stay as they are: %s", " ".join(str(error).split()))
            with self._lock:
                others = [each for each in self._families if each.name != _ERRORS]
                self._families = [*others, counter(_ERRORS, _ERRORS_MEANING, [({}, self._errors)])]
                self.refreshes += 1
            return False
        families = [*self._counters(), *self._values(), *self._states, *self._own(time.monotonic() - begun)]
        families += [family for others in self._others for family in others()]
        with self._lock:
            self._families = families
            self.refreshes += 1
        return True

    def _counters(self) -> Iterator[Metric]:
        for (dimension, measure), family in self._counting.families.items():
            counted = _COUNTERS[measure]
            samples = [(_labels(dimension, labels), shown / counted.divisor) for labels, shown in family.exported()]
            if samples:
                meaning = f"{counted.meaning}, {DIMENSIONS[dimension].whose}"
                yield counter(f"{PREFIX}_{dimension}_{counted.name}", meaning, samples)

    def _values(self) -> Iterator[Metric]:
        for (dimension, measure), rows in self._counting.values():
            level = _LEVELS[measure]
            samples = [(_labels(dimension, labels), value / level.divisor) for labels, value in rows.items()]
            yield gauge(
                f"{PREFIX}_{dimension}_{level.name}", f"{level.meaning}, {DIMENSIONS[dimension].whose}", samples
            )

    def _own(self, seconds: float) -> Iterator[Metric]:
        yield gauge(f"{PREFIX}_export_refreshed_timestamp_seconds", "When the figures were read", [({}, self._clock())])
        yield gauge(f"{PREFIX}_export_refresh_seconds", "Duration of the last look at the lake", [({}, seconds)])
        yield gauge(
            f"{PREFIX}_export_landed_timestamp_seconds",
            "Landing of the newest point that is counted",
            [({}, self._counting.landed_at)],
        )
        yield gauge(
            f"{PREFIX}_export_points_version",
            "Version of metric_points up to which points are counted",
            [({}, self._counting.version)],
        )
        yield counter(_ERRORS, _ERRORS_MEANING, [({}, self._errors)])


def _labels(dimension: str, labels: Labels | None) -> dict[str, str]:
    """A label set; None: that of all others together."""
    names = DIMENSIONS[dimension].labels
    if labels is None:
        return dict.fromkeys(names[1:], OTHER) | {REST: "true"}
    return _named(names, labels)


class RenderedOnce:
    """A WSGI application that answers /metrics with a fleet's figures."""

    def __init__(self, fleet: Fleet) -> None:
        registry = CollectorRegistry()
        registry.register(fleet)
        self._fleet, self._render = fleet, make_wsgi_app(registry)
        self._lock = threading.Lock()
        self._refreshes = -1
        self._answers: dict[tuple[str, ...], tuple[str, list[tuple[str, str]], list[bytes]]] = {}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = tuple(environ.get(name, "") for name in ASKED_BY)
        with self._lock:  # one of those that ask at the same time renders, the others wait for it
            if self._refreshes != self._fleet.refreshes or len(self._answers) >= RENDERED:
                self._refreshes = self._fleet.refreshes
                self._answers = {}
            if asked not in self._answers:
                self._answers[asked] = self._rendered(environ)
            status, headers, body = self._answers[asked]
        start_response(status, list(headers))
        return body

    def _rendered(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], list[bytes]]:
        said: list[Any] = []
        body = list(self._render(environ, lambda status, headers: said.extend((status, headers))))
        status, headers = said
        return status, headers, body
