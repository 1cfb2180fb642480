"""Counts the rows that break each data quality rule, with DuckDB over the rows added since the last check.

Memory is bounded: rules of single rows are counted in one pass over a table, the others join only keys of the new
rows' landed dates, and DuckDB spills to disk what doesn't fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.stored_files import files_table, rows_by_day, rows_in
from kafka_telemetry_lake.pipelines.quality.rules import RULES, Rule, tables_with_rules
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from kafka_telemetry_lake.udfs.errors import CannotRunError

EXAMPLES = 3
COMMIT_TAKES = timedelta(minutes=10)  # at most, from the time that a file says to its commit
IDENTIFYING_COLUMNS = (
    "cluster_id",
    "topic",
    "partition",
    "offset",
    "client_id",
    "metric",
    "points",
    "broker_id",
    "user",
    "name",
    "window_start",
)
NO_TABLE, PASSED, FAILED = "no_table", "passed", "failed"


class QualityError(CannotRunError):
    """The lake can't be checked; the message says why, and what to do."""


@dataclass(frozen=True)
class Finding:
    """The result of one rule: `broken` of `rows` new rows break it; `examples` describes a few of them."""

    rule: Rule
    rows: int
    broken: int
    examples: tuple[str, ...]
    from_version: int | None
    to_version: int
    open_from: date | None
    seconds: float


@dataclass(frozen=True)
class _Before:
    """Where the last check of a table ended."""

    version: int
    open_from: date | None
    checked_at: datetime


class Lake:
    """The current tables of a lake, and the rows added since the last check; with `full` all rows.

    Raises:
        QualityError: no lake there, or a table was written by a newer version.
    """

    def __init__(self, path: str, *, full: bool) -> None:
        self._path = path.rstrip("/")
        self._snapshots: dict[str, _Snapshot] = {}
        before = {} if full else self._before()
        names = tables_with_rules()
        for name in [*names, *({other for rule in RULES for other in rule.reads} - set(names))]:
            snapshot = self._open(name, before.get(name))
            if snapshot is not None:
                self._snapshots[name] = snapshot
        if "pushes" not in self._snapshots:
            raise QualityError(f"no lake at {path}: create one with `telemetry-lake ingest --lake {path}`")

    @property
    def tables(self) -> list[str]:
        """The tables with rules that the lake has."""
        return [name for name in tables_with_rules() if name in self._snapshots]

    def check(self, name: str, now: datetime, stale_hours: float | None) -> Iterator[Finding]:
        """Check the rules of a table, one `Finding` each.

        Args:
            now: UTC; the newest push must have landed within `stale_hours` before it (None: not checked).
        """
        snapshot = self._snapshots[name]
        rules = [rule for rule in RULES if rule.table == name]
        with connect(preserve_insertion_order="false") as connection:
            connection.register("added", self._rows(name, snapshot.added))
            begun = time.monotonic()
            counted = _count(connection, [rule for rule in rules if rule.breaks])
            rows = counted.pop("")
            each = (time.monotonic() - begun) / max(1, len(counted))
            self._relate(connection, snapshot, rules, now, stale_hours)
            for rule in rules:
                begun = time.monotonic()
                select = rule.select or f"SELECT * FROM added WHERE {rule.breaks}"
                broken = counted[rule.name] if rule.breaks else _one(connection, f"SELECT count(*) FROM ({select})")
                examples = tuple(_examples(connection, select, rule)) if broken else ()
                open_from = _one(connection, rule.open_from) if rule.open_from else None
                seconds = time.monotonic() - begun + (each if rule.breaks else 0)
                yield Finding(rule, rows, broken, examples, snapshot.since, snapshot.version, open_from, seconds)

    def _relate(
        self,
        connection: duckdb.DuckDBPyConnection,
        snapshot: _Snapshot,
        rules: list[Rule],
        now: datetime,
        stale_hours: float | None,
    ) -> None:
        """Register the relations that a table's rules read besides `added` (see `Rule.select`)."""
        selects = " ".join(rule.select for rule in rules)
        for name in {other for rule in rules for other in rule.reads}:
            other = self._snapshots.get(name)
            files = None if other is None else other.files
            # Files before the first landed date that is checked aren't even listed.
            recent = files if files is None else files.filter(
                pc.fill_null(pc.greater_equal(files["day"], f"{snapshot.check_from}"), True)
            )  # fmt: skip
            connection.register(name, self._rows(name, recent))
            if f"all_{name}" in selects:
                connection.register(f"all_{name}", self._rows(name, files))
        firsts = {name: min(table.days) for name, table in self._snapshots.items() if table.days}
        newest = {name: table.newest for name, table in self._snapshots.items()}
        for relation, columns in {
            "first_days": {"table_name": list(firsts), "landed_date": list(firsts.values())},
            "newest": {"table_name": list(newest), "landed_at": pa.array(newest.values(), pa.timestamp("us", "UTC"))},
            "days": {"landed_date": list(snapshot.days), "rows": list(snapshot.days.values())},
            "parameters": {"now": [now], "stale_hours": pa.array([stale_hours], pa.float64())},
        }.items():
            connection.register(relation, pa.table(columns))

    def _rows(self, name: str, files: pa.Table | None) -> pads.Dataset:
        """The rows of some files of a table. Columns that a later version of the project defines are NULL."""
        schema = CATALOG[name]
        return pads.dataset(schema.empty_table()) if files is None else rows_in(f"{self._path}/{name}", schema, files)

    def _before(self) -> dict[str, _Before]:
        """Where the last check of each table ended, by table name."""
        try:
            results = DeltaTable(QUALITY_RESULTS.uri(self._path)).to_pyarrow_dataset()
        except TableNotFoundError:
            return {}
        with connect() as connection:
            connection.register("results", results)
            last = connection.sql(
                "SELECT table_name, max_by(to_version, checked_at), max_by(open, checked_at), max(checked_at) FROM ("
                "SELECT table_name, checked_at, max(to_version) AS to_version, [min(open_from)] AS open FROM results "
                "WHERE to_version IS NOT NULL GROUP BY table_name, checked_at) GROUP BY table_name"
            ).fetchall()
        return {name: _Before(version, open_from, checked_at) for name, version, (open_from,), checked_at in last}

    def _open(self, name: str, before: _Before | None) -> _Snapshot | None:
        try:
            table = DeltaTable(f"{self._path}/{name}")
            files = files_table(table)
            if table.protocol().min_reader_version > 1:
                raise DeltaProtocolError(f"it has features of reader version {table.protocol().min_reader_version}")
        except TableNotFoundError:
            return None
        except (DeltaProtocolError, DeltaError) as error:
            raise QualityError(
                f"table {name} can't be read: {' '.join(str(error).split())}. Was it written by a newer version of "
                "telemetry-lake, or changed by another program? Upgrade kafka-telemetry-lake here"
            ) from error
        is_new = self._added(name, files, before, table.version())
        since = None if before is None or is_new is None else before.version
        added = files if is_new is None else files.filter(is_new)
        days = {date.fromisoformat(day): rows or 0 for day, rows in rows_by_day(files).items() if day is not None}
        known = "max" in files.column_names and files["max"].type.get_field_index("landed_at") >= 0
        newest = pc.max(pc.struct_field(files["max"], "landed_at")).as_py() if known else None
        first = pc.min(added["day"]).as_py()
        days_to_check = [] if first is None else [date.fromisoformat(first)]
        days_to_check += [before.open_from] if before is not None and before.open_from is not None else []
        return _Snapshot(int(table.version()), since, files, added, days, newest, min(days_to_check, default=date.max))

    def _added(self, name: str, files: pa.Table, before: _Before | None, version: int) -> pa.Array | None:
        """Which of the table's files are new since the last check; None: there was none, or the lake is an older copy.

        Where the log has forgotten the version of the last check, those that were added since its time: files that
        were merged since are checked again.
        """
        if before is None or before.version > version:
            return None
        try:
            then = files_table(DeltaTable(f"{self._path}/{name}", version=before.version))
            return pc.invert(pc.is_in(files["path"], then["path"].combine_chunks()))
        except DeltaError:
            since = (before.checked_at - COMMIT_TAKES).timestamp() * 1000
            return pc.greater_equal(files["modification_time"].cast(pa.int64()), int(since))


@dataclass(frozen=True)
class _Snapshot:
    """A table at one version: files, new files, row counts by landed date, and the first landed date to check."""

    version: int
    since: int | None
    files: pa.Table
    added: pa.Table
    days: Mapping[date, int]
    newest: datetime | None
    check_from: date


def _count(connection: duckdb.DuckDBPyConnection, rules: list[Rule]) -> dict[str, int]:
    """Number of rows of `added` that break each rule, in one pass; the empty name counts all rows."""
    counts = [f"count(*) FILTER ({rule.breaks})" for rule in rules]
    (row,) = connection.execute(f"SELECT {', '.join(['count(*)', *counts])} FROM added").fetchall()
    return dict(zip(["", *(rule.name for rule in rules)], row, strict=True))


def _one(connection: duckdb.DuckDBPyConnection, select: str) -> Any:
    ((value,),) = connection.execute(select).fetchall()
    return value


def _examples(connection: duckdb.DuckDBPyConnection, select: str, rule: Rule) -> Iterator[str]:
    """A few broken rows as text: the columns that identify them, and those that the rule checks."""
    rows = connection.sql(f"SELECT * FROM ({select}) LIMIT {EXAMPLES}")
    checked = set(re.findall(r"\w+", rule.breaks)) | set(rows.columns) - set(CATALOG[rule.table].names)
    names = [name for name in rows.columns if name in IDENTIFYING_COLUMNS] + [
        name for name in rows.columns if name in checked and name not in IDENTIFYING_COLUMNS
    ]
    for row in rows.select(*[duckdb.ColumnExpression(name) for name in names or rows.columns]).fetchall():
        cells = zip(names or rows.columns, row, strict=True)
        yield ", ".join(f"{name} {_text(value)}" for name, value in cells if value is not None)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
