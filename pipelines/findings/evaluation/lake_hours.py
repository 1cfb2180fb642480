"""Reads a lake hour by hour: which hours have pushes, their rows of view `findings`, and which subjects were seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import Times, register_table
from kafka_telemetry_lake.pipelines.query.views import create_views, needed
from kafka_telemetry_lake.pipelines.sql_text import sql_file
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    PUSH_OUTCOMES,
    PUSHES,
    QUARANTINE,
    QUOTA_USAGE,
)
from kafka_telemetry_lake.pipelines.tables.table import check_table, table_uri
from kafka_telemetry_lake.udfs.findings.states import FindingRow

WEEK = timedelta(days=7)
# Of these tables only the rows of some hours are read: by which column, and how long before the evaluated hours.
HOURS_READ = {
    **{each.name: ("landed_at", [timedelta()]) for each in (PUSHES, PUSH_OUTCOMES, METRIC_POINTS, QUARANTINE)},
    CLIENT_EVENTS.name: ("landed_at", [timedelta()]),
    QUOTA_USAGE.name: ("window_start", [timedelta()]),
    METRIC_ROLLUPS_1H.name: ("window_start", [timedelta(), WEEK]),  # a rule compares with a week before
}
LANDED = pa.schema([PUSH_OUTCOMES.schema.field(name) for name in ("cluster_id", "landed_at")])
STEP_ROWS = 1_000_000
SUBJECTS = pa.schema([("cluster_id", pa.string()), ("scope", pa.string()), ("subject", pa.string())])
SEEN_SCOPES = ("client_id", "principal")

ClusterHour = tuple[str | None, int]
Subject = tuple[str | None, str, str | None]  # cluster, scope, name
SeenIn = tuple[str | None, int, str, str | None]  # cluster, hour, scope, name
LingersIn = tuple[str | None, int, str, str | None, str]  # the same, and the finding


@dataclass(frozen=True)
class LandedHour:
    """Judged pushes of one cluster that landed in one hour: how many, and the latest landing (µs)."""

    cluster_id: str | None
    hour: int
    latest: int
    pushes: int


ALL, CLOSING = "all clients of ", "closing_of"
OF_CLOSING = f"EXISTS (SELECT 1 FROM {CLOSING} AS c WHERE c.client_id IS NOT DISTINCT FROM t.client_id)"


class Hours:
    """What view `findings` has of some hours, and which subjects were seen in them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def found(self) -> dict[ClusterHour, list[FindingRow]]:
        """Rows of view `findings` by cluster and hour, with principal, application and owner."""
        found: dict[ClusterHour, list[FindingRow]] = {}
        for row in self._connection.sql(sql_file("evaluation", "found")).to_arrow_table().to_pylist():
            hour = row.pop("hour")
            found.setdefault((row["cluster_id"], hour), []).append(cast(FindingRow, row))
        return found

    def seen(self, subjects: Collection[Subject]) -> set[SeenIn]:
        """In which hours these client ids and principals pushed. Subjects of other scopes aren't looked for."""
        asked = [dict(zip(SUBJECTS.names, each, strict=True)) for each in subjects if each[1] in SEEN_SCOPES]
        if not asked:
            return set()
        self._connection.register("subjects", pa.Table.from_pylist(asked, SUBJECTS))
        return set(self._connection.sql(sql_file("evaluation", "seen")).fetchall())


class LakeHours:
    """A lake as the evaluation of findings reads it.

    Args:
        overrides: other bounds for some client ids.
    """

    def __init__(self, lake: str, overrides: Overrides = ()) -> None:
        self._lake, self._overrides = lake, overrides
        self._follower = Follower(lake, PUSH_OUTCOMES, Gap.ANEW, None, LANDED, most_rows=STEP_ROWS)

    def landed(self, after: Position) -> tuple[Position, list[LandedHour]]:
        """Which hours have rows of `push_outcomes` that were added after a position, and the position after them.

        An hour may be there several times. Of a first look, and after a gap, all rows are there again.
        """
        hours = list[LandedHour]()
        for step in self._follower.steps(after):
            if step.first is None:
                stored = DeltaTable(PUSH_OUTCOMES.uri(self._lake), version=step.position.version)
                hours = _hours_of(stored.to_pyarrow_dataset())
            else:
                hours += _hours_of(step.rows)
            after = step.position
        return after, hours

    @contextmanager
    def hours(self, first: int, last: int) -> Iterator[Hours]:
        """The hours from `first` to `last`, both included."""
        with connect(self._lake) as connection:
            self._open(connection, first, last)
            yield Hours(connection)

    def lingering(self, first: int, last: int, asked: Collection[tuple[Subject, str]]) -> set[LingersIn]:
        """In which hours subjects of scope client_id were above the bounds at which these findings of theirs close."""
        rows = [{**dict(zip(SUBJECTS.names, subject, strict=True)), "finding": finding} for subject, finding in asked]
        client_ids = pa.array({name for (_, _, name), _ in asked}, pa.string())
        with connect(self._lake) as connection:
            self._open(connection, first, last, client_ids)
            connection.register(
                "lingering", pa.Table.from_pylist(rows, SUBJECTS.append(FINDING_CHANGES.schema.field("finding")))
            )
            return set(connection.sql(sql_file("evaluation", "lingering")).fetchall())

    def _open(
        self, connection: duckdb.DuckDBPyConnection, first: int, last: int, closing_of: pa.Array | None = None
    ) -> None:
        """Create view `findings` of some hours.

        Args:
            closing_of: client ids whose findings are judged with the bounds at which they close; others aren't read.
        """
        bounds = [datetime.fromtimestamp(hour * 3600, UTC) for hour in (first, last + 1)]
        views, below = needed(["findings", "clients"], self._overrides, closing_of is not None)
        if closing_of is not None:
            connection.register(CLOSING, pa.table({"client_id": closing_of}))
        for name in {*below, PUSHES.name, PUSH_OUTCOMES.name}:
            self._register(connection, name, *bounds)
            judged = closing_of is not None and "client_id" in CATALOG[name].names
            where = OF_CLOSING if judged else "TRUE"
            connection.execute(f'CREATE TEMP VIEW "{name}" AS SELECT * FROM "{ALL}{name}" AS t WHERE {where}')
        create_views(connection, ("findings", "clients"), views)

    def _register(self, connection: duckdb.DuckDBPyConnection, name: str, begin: datetime, end: datetime) -> None:
        times = None
        if name in HOURS_READ:
            column, earlier = HOURS_READ[name]
            times = Times(column, tuple((begin - by, end - by) for by in earlier))
        try:
            table = DeltaTable(table_uri(self._lake, name))
            check_table(table, name, CATALOG[name])
            register_table(connection, ALL + name, table, times)
        except TableNotFoundError:
            connection.register(ALL + name, CATALOG[name].empty_table())


def _hours_of(landed: pads.Dataset | pa.Table) -> list[LandedHour]:
    with connect() as connection:
        connection.register("landed", landed)
        return [LandedHour(*row) for row in connection.sql(sql_file("evaluation", "landed_hours")).fetchall()]
