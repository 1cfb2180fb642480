"""The figures of a fleet as Prometheus' metric families, refreshed at intervals and served from memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from prometheus_client import Metric
from prometheus_client.registry import Collector

from kafka_telemetry_lake.pipelines.export.counting import Counting
from kafka_telemetry_lake.pipelines.export.families import Labels
from kafka_telemetry_lake.pipelines.export.measures import COUNTERS, DIMENSIONS, LEVELS, OTHER, PREFIX, REST
from kafka_telemetry_lake.pipelines.export.metrics import counter, gauge
from kafka_telemetry_lake.pipelines.export.states import states
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

log = logging.getLogger(__name__)

READ_ERRORS = (TelemetryLakeError, DeltaError, duckdb.Error, OSError, pa.ArrowException)  # of a look at the lake
STATES_COST = 10  # views are asked again after this many times the seconds that they took

_COUNTERS = {each.measure: each for each in COUNTERS}
_LEVELS = {each.measure: each for each in LEVELS}


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
                self._states = [gauge(*each) for each in states(self._lake, self._top)]
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
            f"{PREFIX}_export_landed_timestamp_seconds", "Landing of the newest point that is counted",
            [({}, self._counting.landed_at)],
        )  # fmt: skip
        yield gauge(
            f"{PREFIX}_export_points_version", "Version of metric_points up to which points are counted",
            [({}, self._counting.version)],
        )  # fmt: skip
        yield counter(_ERRORS, _ERRORS_MEANING, [({}, self._errors)])


_ERRORS, _ERRORS_MEANING = f"{PREFIX}_export_refresh_errors", "Looks at the lake that failed"


def _labels(dimension: str, labels: Labels | None) -> dict[str, str]:
    """A label set; an empty label is as if absent in Prometheus. None: that of all others together."""
    names = DIMENSIONS[dimension].labels
    if labels is None:
        return dict.fromkeys(names[1:], OTHER) | {REST: "true"}
    return {name: label for name, label in zip(names, labels, strict=True) if label}
