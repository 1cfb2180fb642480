"""The fleet's counters and gauges, kept up to date by following table `metric_points`.

A note in the lake has the version up to which rows are counted, and what each series has counted. It is on the disk
before anything of it is exported, so after a kill counters go on where they were: nothing falls, nothing counts twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from kafka_telemetry_lake.pipelines.export.families import Family, Labels
from kafka_telemetry_lake.pipelines.export.known_clients import WAIT_S, KnownClients
from kafka_telemetry_lake.pipelines.export.measures import COUNTERS, DIMENSIONS, read_metrics
from kafka_telemetry_lake.pipelines.export.sums import READ, Sums, Window
from kafka_telemetry_lake.pipelines.lake.follower import FIELDS, Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import register_table
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS

log = logging.getLogger(__name__)

STEP_BYTES = 128 << 20  # of metric_points
RECENT = 200  # commits before the first one that are looked at for gauges
NEEDED = pc.field("metric").isin(read_metrics())
_ALL = "true"  # condition of rows
ANEW = "delete it, and counters begin at the table's totals again"


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


class Counting:
    """Counters and gauges of one lake.

    Args:
        name: of the note.

    Raises:
        StateError: the note is damaged.
        QueryError: the lake can't be read.
    """

    def __init__(self, lake: str, name: str, selection: Selection, clock: Callable[[], float] = time.time) -> None:
        self._lake, self._clock, self._selection = lake, clock, selection
        METRIC_POINTS.create(lake)
        self._follower = Follower(
            lake, METRIC_POINTS, Gap.ANEW, f"export:{name}", READ, needed=NEEDED, most_bytes=STEP_BYTES
        )
        self._note = FencedNote(
            METRIC_POINTS.uri(lake), f"_export-{name}", (*FIELDS, "window_version", "families"), ANEW
        )
        self._clients, self._clients_taken = KnownClients(lake, clock), 0
        self.families = {
            (each, counter.measure): Family(DIMENSIONS[each].labels, selection.top, selection.stale_s, clock())
            for each in selection.dimensions
            for counter in COUNTERS
            if each != "topic" or counter.topic_metrics
        }
        self._sums = Sums(selection.dimensions, selection.top)
        self._position, self._window = Position(), Window()  # its time: landing of the newest row that is counted
        if not self._restore():
            self._begin()

    @property
    def version(self) -> int:
        """The version of `metric_points` up to which rows are counted."""
        return self._position.version

    @property
    def landed_at(self) -> float:
        """Landing of the newest row that is counted, Unix seconds; 0: there is none."""
        return 0.0 if self._position.read_at is None else self._position.read_at.timestamp()

    def close(self) -> None:
        """End the connection of DuckDB."""
        self._sums.close()

    def values(self) -> Iterator[tuple[tuple[str, str], dict[Labels | None, float]]]:
        """The gauges: dimension and measure, label sets with their values in the unit of the metrics."""
        return self._window.values(self._clock() - self._selection.window_s, self._selection.top)

    def read(self) -> None:
        """Count all rows that are committed by now, and store that."""
        while self._read_step():
            pass
        for family in self.families.values():
            family.age(self._clock())

    def _read_step(self) -> bool:
        if self.version < 0:
            return self._begin()
        step = self._follower.next(self._position)
        if step is not None and step.first is None:
            return self._count_table(f"epoch_us(p.landed_at) > {round(self.landed_at * 1e6)}")
        if step is None or not self._clients.may_go_on(step.rows["client_instance_id"]):
            return False
        self._know()
        self._sums.take(step.rows)
        self._count(self._sums, step.position, step.first)
        return True

    def _know(self) -> None:
        if self._clients_taken != self._clients.reads:
            self._sums.know(self._clients.rows)
            self._clients_taken = self._clients.reads

    def _count(self, sums: Sums, position: Position, first: int | None = None) -> None:
        """Count the rows that were taken, and store that before it is exported.

        Args:
            position: with which they end.
            first: the version with which they begin; None: they are too old for gauges, or some of them are.
        """
        own = {key: family.own for key, family in self.families.items()}
        for key, (series, rest) in sums.increments(own).items():
            self.families[key].add(series, rest)
        newest = sums.newest()
        if first is not None:
            self._window.add(first, newest, sums.values())
        self._window.drop(self._clock() - self._selection.window_s)
        self._position = replace(position, read_at=datetime.fromtimestamp(max(self.landed_at, newest), UTC))
        self._store()

    def _begin(self) -> bool:
        """Begin counters at the totals of the table. False: clients of its rows aren't there yet."""
        if not self._count_table(_ALL):
            return False
        self._window = self._recent(max(-1, self.version - RECENT))
        self._store()
        log.info("export: counters begin at the totals of %s, version %d", METRIC_POINTS.name, self.version)
        return True

    def _count_table(self, condition: str) -> bool:
        """Count rows of the table as it is now. False: clients of the newest ones aren't there yet."""
        table = METRIC_POINTS.create(self._lake)
        with connect(self._lake) as connection:
            register_table(connection, METRIC_POINTS.name, table)
            if not self._may_count(connection, condition):
                return False
            sums = Sums(self._selection.dimensions, self._selection.top, connection)
            sums.know(self._clients.rows)
            sums.take(METRIC_POINTS.name, condition)
            self._count(sums, Position(table.version(), str(table.metadata().id)))
        return True

    def _may_count(self, table: DuckDBPyConnection, condition: str) -> bool:
        """Whether the clients of the newest rows are known. Those of old rows may be gone: nobody waits for them."""
        newest = table.sql(
            f"WITH counted AS (SELECT client_instance_id, landed_at FROM {METRIC_POINTS.name} p WHERE {condition}) "
            "SELECT DISTINCT client_instance_id FROM counted "
            f"WHERE landed_at > (SELECT max(landed_at) FROM counted) - INTERVAL {WAIT_S} SECOND"
        ).to_arrow_table()
        return self._clients.may_go_on(newest["client_instance_id"])

    def _recent(self, after: int) -> Window:
        """The gauges of the commits after a version up to the position."""
        self._know()
        window, recent = (
            Window(),
            Follower(self._lake, METRIC_POINTS, Gap.ANEW, None, READ, needed=NEEDED, most_bytes=0),
        )
        for step in recent.steps(replace(self._position, version=after), self.version):
            if step.first is None:
                log.info("export: gauges begin with the next points")
                break
            self._sums.take(step.rows)
            window.add(step.first, self._sums.newest(), self._sums.values())
            window.drop(self._clock() - self._selection.window_s)
        return window

    def _store(self) -> None:
        families = [
            {"dimension": dimension, "measure": measure} | family.stored()
            for (dimension, measure), family in self.families.items()
        ]
        oldest = self._window.oldest(self.version + 1)
        self._note.write({**self._position.stored(), "window_version": oldest, "families": families})

    def _restore(self) -> bool:
        content = self._note.read()
        if content is None:
            return False
        try:
            for stored in content["families"]:
                if (family := self.families.get((stored["dimension"], stored["measure"]))) is not None:
                    family.restore(stored)
            self._position = Position.of(content)
            after = content["window_version"] - 1
        except (KeyError, TypeError, ValueError) as error:
            raise self._note.damaged(error) from None
        self._window = self._recent(after)
        return True
