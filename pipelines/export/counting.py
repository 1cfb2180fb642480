"""The fleet's counters and gauges, kept up to date by following table `metric_points`.

A note in the lake has the version up to which rows are counted, and what each series has counted. It is on the disk
before anything of it is exported, so after a kill counters go on where they were: nothing falls, nothing counts twice.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow.compute as pc
from deltalake import DeltaTable
from duckdb import DuckDBPyConnection

from kafka_telemetry_lake.pipelines.export.families import Family, Labels
from kafka_telemetry_lake.pipelines.export.following import PositionNote, next_step
from kafka_telemetry_lake.pipelines.export.known_clients import WAIT_S, KnownClients
from kafka_telemetry_lake.pipelines.export.measures import COUNTERS, DIMENSIONS, read_metrics
from kafka_telemetry_lake.pipelines.export.sums import READ, Sums
from kafka_telemetry_lake.pipelines.export.window import Window
from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import register_table
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS

log = logging.getLogger(__name__)

STEP_BYTES = 128 << 20  # of metric_points
RECENT = 200  # commits before the first one that are looked at for gauges
NEEDED = pc.field("metric").isin(read_metrics())
_ALL = "true"  # condition of rows
FIELDS = ("version", "landed_at", "window_version", "families")


@dataclass(frozen=True)
class Selection:
    """What is exported.

    Attributes:
        dimensions: names of `DIMENSIONS`.
        top: most series of a counter or gauge by one dimension.
        stale_s: a series without new points for so long is dropped.
        window_s: gauges are about the points that landed within so many seconds.
    """

    dimensions: Sequence[str]
    top: int = 100
    stale_s: float = 3600
    window_s: float = 600


@dataclass
class _Position:
    """Attributes: the version up to which all is counted, the landing of the newest row (Unix seconds), the gauges."""

    version: int
    landed_at: float = 0.0
    window: Window = field(default_factory=Window)


class Counting:
    """Counters and gauges of one lake.

    Args:
        name: of the note.

    Raises:
        StateError: the note is damaged.
        QueryError: the lake can't be read.
    """

    def __init__(self, lake: str, name: str, selection: Selection, clock: Callable[[], float] = time.time) -> None:
        self._lake, self._name, self._clock, self._selection = lake, name, clock, selection
        METRIC_POINTS.create(lake)
        self._points = FollowedTable(METRIC_POINTS.uri(lake))
        self._note = PositionNote(lake, name, FIELDS, "counters begin at the table's totals again")
        self._clients, self._clients_taken = KnownClients(lake, clock), 0
        self.families = {
            (each, counter.measure): Family(DIMENSIONS[each].labels, selection.top, selection.stale_s, clock())
            for each in selection.dimensions
            for counter in COUNTERS
            if each != "topic" or counter.topic_metrics
        }
        self._sums = Sums(selection.dimensions, selection.top)
        self._position = _Position(-1)
        if not self._restore():
            self._begin()

    @property
    def version(self) -> int:
        """The version of `metric_points` up to which rows are counted."""
        return self._position.version

    @property
    def landed_at(self) -> float:
        """Landing of the newest row that is counted, Unix seconds; 0: there is none."""
        return self._position.landed_at

    def close(self) -> None:
        """End the connection of DuckDB."""
        self._sums.close()

    def values(self) -> Iterator[tuple[tuple[str, str], dict[Labels | None, float]]]:
        """The gauges: dimension and measure, label sets with their values in the unit of the metrics."""
        return self._position.window.values(self._clock() - self._selection.window_s, self._selection.top)

    def read(self) -> None:
        """Count all rows that are committed by now, and store that."""
        while self._read_step():
            pass
        for family in self.families.values():
            family.age(self._clock())

    def _read_step(self) -> bool:
        if self.version < 0:
            return self._begin()
        try:
            step = next_step(self._points, self._position.version, READ, STEP_BYTES, NEEDED)
        except (LogGapError, FileNotFoundError) as error:
            return self._read_since_landed(error)
        if step is None or not self._clients.may_go_on(step.rows["client_instance_id"]):
            return False
        self._know()
        self._sums.take(step.rows)
        self._count(self._sums, step.last, step.first)
        return True

    def _know(self) -> None:
        if self._clients_taken != self._clients.reads:
            self._sums.know(self._clients.rows)
            self._clients_taken = self._clients.reads

    def _count(self, sums: Sums, version: int, first: int | None = None) -> None:
        """Count the rows that were taken, and store that before it is exported.

        Args:
            version: with which they end.
            first: with which they begin; None: they are too old for gauges, or some of them are.
        """
        own = {key: family.own for key, family in self.families.items()}
        for key, (series, rest) in sums.increments(own).items():
            self.families[key].add(series, rest)
        position, newest = self._position, sums.newest()
        if first is not None:
            position.window.add(first, newest, sums.values())
        position.window.drop(self._clock() - self._selection.window_s)
        self._position = _Position(version, max(position.landed_at, newest), position.window)
        self._store()

    def _begin(self) -> bool:
        """Begin counters at the totals of the table. False: clients of its rows aren't there yet."""
        with self._whole_table() as (table, version):
            if not self._may_count(table, _ALL):
                return False
            self._count_table(table, version, _ALL)
        self._position.window = self._recent(max(-1, self.version - RECENT))
        self._store()
        log.info("export: counters begin at the totals of %s, version %d", METRIC_POINTS.name, self.version)
        return True

    def _read_since_landed(self, error: Exception) -> bool:
        """Count the rows that landed since the newest that is counted: the log has forgotten which ones are new."""
        position = self._position
        condition = f"epoch_us(p.landed_at) > {round(position.landed_at * 1e6)}"
        with self._whole_table() as (table, version):
            if not self._may_count(table, condition):
                return False
            log.warning(
                "export: counts the rows of %s that landed since the last one that it knows, not its commits: %s",
                METRIC_POINTS.name,
                error,
            )
            read_at = datetime.fromtimestamp(position.landed_at, UTC)
            record_dropped(self._lake, f"export:{self._name}", METRIC_POINTS, position.version, read_at)
            self._count_table(table, version, condition)
        return True

    @contextlib.contextmanager
    def _whole_table(self) -> Iterator[tuple[DuckDBPyConnection, int]]:
        """`metric_points` as it is now, in DuckDB, and its version."""
        table = DeltaTable(METRIC_POINTS.uri(self._lake))
        with connect(self._lake) as connection:
            register_table(connection, METRIC_POINTS.name, table)
            yield connection, table.version()

    def _may_count(self, table: DuckDBPyConnection, condition: str) -> bool:
        """Whether the clients of the newest rows are known. Those of old rows may be gone: nobody waits for them."""
        newest = table.sql(
            f"WITH counted AS (SELECT client_instance_id, landed_at FROM {METRIC_POINTS.name} p WHERE {condition}) "
            "SELECT DISTINCT client_instance_id FROM counted "
            f"WHERE landed_at > (SELECT max(landed_at) FROM counted) - INTERVAL {WAIT_S} SECOND"
        ).to_arrow_table()
        return self._clients.may_go_on(newest["client_instance_id"])

    def _count_table(self, table: DuckDBPyConnection, version: int, condition: str) -> None:
        sums = Sums(self._selection.dimensions, self._selection.top, table)
        sums.know(self._clients.rows)
        sums.take(METRIC_POINTS.name, condition)
        self._count(sums, version)

    def _recent(self, after: int) -> Window:
        """The gauges of the commits after a version up to the position."""
        self._know()
        window, until = Window(), self._position.version
        try:
            while after < until and (step := next_step(self._points, after, READ, 1, NEEDED)) is not None:
                self._sums.take(step.rows)
                window.add(step.first, self._sums.newest(), self._sums.values())
                window.drop(self._clock() - self._selection.window_s)
                after = step.last
        except (LogGapError, FileNotFoundError) as error:
            log.info("export: gauges begin with the next points: %s", error)
        return window

    def _store(self) -> None:
        families = [
            {"dimension": dimension, "measure": measure} | family.stored()
            for (dimension, measure), family in self.families.items()
        ]
        position = self._position
        self._note.write(position.version, position.landed_at, position.window.oldest(position.version + 1), families)

    def _restore(self) -> bool:
        content = self._note.read()
        if content is None:
            return False
        try:
            for stored in content["families"]:
                if (family := self.families.get((stored["dimension"], stored["measure"]))) is not None:
                    family.restore(stored)
            self._position = _Position(content["version"], content["landed_at"])
            after = content["window_version"] - 1
        except (KeyError, TypeError) as error:
            raise self._note.damaged(error) from None
        self._position.window = self._recent(after)
        return True
