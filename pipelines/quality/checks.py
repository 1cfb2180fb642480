"""Counts the rows that break each data quality rule, with DuckDB over the rows added since the last check.

Memory is bounded: a table is checked one landed date after the other, rules of single rows in one pass, the others by
keys. DuckDB spills to disk what doesn't fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.moments import newest_moment
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table, rows_by_day, rows_in
from kafka_telemetry_lake.pipelines.quality.note import ALL_DAYS, CheckNote
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

    def plus(self, broken: int, examples: Iterable[str], open_from: date | None, seconds: float) -> Finding:
        """The finding with the result of a further landed date."""
        firsts = [day for day in (self.open_from, open_from) if day is not None]
        return replace(
            self,
            broken=self.broken + broken,
            examples=(*self.examples, *examples)[:EXAMPLES],
            open_from=min(firsts, default=None),
            seconds=self.seconds + seconds,
        )


@dataclass(frozen=True)
class _Before:
    """Where the last check of a table ended."""

    version: int
    open_from: date | None
    checked_at: datetime


class CheckedLake:
    """The tables of a lake's newest moment, and the rows added since the last check; with `full` all rows.

    Args:
        begun: what an interrupted check has found. It goes on with the versions of the tables that this one had.

    Raises:
        QualityError: no lake there, or a table was written by a newer version.
    """

    def __init__(self, path: str, *, full: bool, begun: CheckNote | None = None) -> None:
        self._path = path.rstrip("/")
        self._note = begun or CheckNote()
        self._snapshots: dict[str, _Snapshot] = {}
        self._database = connect(preserve_insertion_order="false")
        before = {} if full else self._before()
        self._moment = newest_moment(self._path)
        names = tables_with_rules()
        for name in [*names, *({other for rule in RULES for other in rule.reads} - set(names))]:
            snapshot = self._open(name, before.get(name))
            if snapshot is not None:
                self._snapshots[name] = snapshot
        if "pushes" not in self._snapshots:
            raise QualityError(no_lake(path))

    @property
    def tables(self) -> list[str]:
        """The tables with rules that the lake has."""
        return [name for name in tables_with_rules() if name in self._snapshots]

    def check(self, name: str, now: datetime, stale_hours: float | None) -> list[Finding]:
        """Check the rules of a table, one `Finding` each.

        Args:
            now: UTC; the newest push must have landed within `stale_hours` before it (None: not checked).
        """
        snapshot = self._snapshots[name]
        rules = [rule for rule in RULES if rule.table == name]
        none = Finding(rules[0], 0, 0, (), snapshot.since, snapshot.version, None, 0.0)
        findings = {rule.name: replace(none, rule=rule) for rule in rules}
        noted = self._note.table(name, snapshot.version, snapshot.since)
        for found in noted.findings:
            findings[found["rule"]] = replace(findings[found["rule"]], **_known(found))
        with self._database.cursor() as connection:
            self._relate(connection, snapshot, now, stale_hours)
            across = [rule for rule in rules if rule.across]
            if across:
                self._register(connection, across, snapshot, snapshot.recent)
            for rule in across:
                connection.execute(f"CREATE TEMP TABLE across AS {rule.across}")
            days = sorted({*snapshot.recent(snapshot.files)["day"].to_pylist()}, key=lambda day: day or "")
            for number, day in enumerate([*days, ALL_DAYS]):
                if day in noted.days:
                    continue
                asked = [rule for rule in rules if rule.at_once == (day is ALL_DAYS)]
                self._check_day(connection, snapshot, asked, day, findings)
                done = f"quality: {name}: {number} of {len(days)} days"
                self._note.checked(name, day, [_noted(each) for each in findings.values()], done)
        return list(findings.values())

    def _check_day(
        self,
        connection: duckdb.DuckDBPyConnection,
        snapshot: _Snapshot,
        rules: list[Rule],
        day: str | None,
        findings: dict[str, Finding],
    ) -> None:
        """Add what a landed date's rows say to the findings."""
        if not rules:
            return
        self._register(connection, rules, snapshot, snapshot.recent if day == ALL_DAYS else lambda f: _of_day(f, day))
        begun = time.monotonic()
        counted = _count(connection, [rule for rule in rules if rule.breaks]) if day != ALL_DAYS else {"": 0}
        rows = counted.pop("")
        if rows:
            findings |= {key: replace(each, rows=each.rows + rows) for key, each in findings.items()}
        each_took = (time.monotonic() - begun) / max(1, len(counted))
        for rule in rules:
            begun = time.monotonic()
            select = rule.select or f"SELECT * FROM added WHERE {rule.breaks}"
            broken = counted[rule.name] if rule.breaks else _one(connection, f"SELECT count(*) FROM ({select})")
            examples = tuple(_examples(connection, select, rule)) if broken else ()
            open_from = _one(connection, rule.open_from) if rule.open_from else None
            seconds = time.monotonic() - begun + (each_took if rule.breaks else 0)
            findings[rule.name] = findings[rule.name].plus(broken, examples, open_from, seconds)

    def _register(
        self,
        connection: duckdb.DuckDBPyConnection,
        rules: list[Rule],
        snapshot: _Snapshot,
        chosen: Callable[[pa.Table], pa.Table],
    ) -> None:
        """Register `added` and the other tables that rules read, with the rows of the chosen files."""
        name, selects = rules[0].table, " ".join(rule.select for rule in rules)
        connection.register("added", self._rows(name, chosen(snapshot.added)))
        for other in {other for rule in rules for other in rule.reads}:
            files = self._snapshots[other].files if other in self._snapshots else None
            connection.register(other, self._rows(other, None if files is None else chosen(files)))
            if f"all_{other}" in selects:
                connection.register(f"all_{other}", self._rows(other, files))

    def _relate(
        self, connection: duckdb.DuckDBPyConnection, snapshot: _Snapshot, now: datetime, stale_hours: float | None
    ) -> None:
        """Register the small relations that rules read (see `Rule.select`)."""
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
        """The rows of some files of a table."""
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
            table = self._at(name, self._note.version(name))
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
        self._note.table(name, int(table.version()), since)  # an interrupted check goes on with all of its tables
        added = files if is_new is None else files.filter(is_new)
        days = {date.fromisoformat(day): rows or 0 for day, rows in rows_by_day(files).items() if day is not None}
        known = "max" in files.column_names and files["max"].type.get_field_index("landed_at") >= 0
        newest = pc.max(pc.struct_field(files["max"], "landed_at")).as_py() if known else None
        first = pc.min(added["day"]).as_py()
        days_to_check = [] if first is None else [date.fromisoformat(first)]
        days_to_check += [before.open_from] if before is not None and before.open_from is not None else []
        return _Snapshot(int(table.version()), since, files, added, days, newest, min(days_to_check, default=date.max))

    def _at(self, name: str, version: int | None) -> DeltaTable:
        """A table at the version that an interrupted check had; at the moment, where the log has forgotten it."""
        uri = f"{self._path}/{name}"
        if version is not None:
            try:
                return DeltaTable(uri, version=version)
            except TableNotFoundError:
                raise
            except DeltaError:
                pass
        return self._moment.at(name, DeltaTable(uri))

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

    def recent(self, files: pa.Table) -> pa.Table:
        """The files of a table that may have rows of the landed dates to check. Earlier ones aren't even listed."""
        return files.filter(pc.fill_null(pc.greater_equal(files["day"], f"{self.check_from}"), True))


def _of_day(files: pa.Table, day: str | None) -> pa.Table:
    return files.filter(pc.is_null(files["day"]) if day is None else pc.equal(files["day"], day))


def _noted(finding: Finding) -> dict[str, Any]:
    """What a note has of a finding."""
    open_from = None if finding.open_from is None else finding.open_from.isoformat()
    return {
        "rule": finding.rule.name,
        "rows": finding.rows,
        "broken": finding.broken,
        "examples": list(finding.examples),
        "open_from": open_from,
        "seconds": finding.seconds,
    }


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a finding that `_noted` has written."""
    open_from = None if found["open_from"] is None else date.fromisoformat(found["open_from"])
    fields = {name: value for name, value in found.items() if name != "rule"}
    return {**fields, "examples": tuple(found["examples"]), "open_from": open_from}


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
