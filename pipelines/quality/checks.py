"""Counts the rows that break each data quality rule, with DuckDB over the rows added since the last check.

Memory is bounded: rules of single rows are counted in one pass over a table, the others join only keys of the new
rows' landed dates, and DuckDB spills to disk what doesn't fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from kafka_telemetry_lake.pipelines.quality.rules import RULES, Rule, tables_with_rules
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.udfs.errors import CannotRunError

EXAMPLES = 3
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
            connection.register("added", snapshot.added)
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
        for name in {other for rule in rules for other in rule.reads}:
            other = self._snapshots.get(name)
            rows = CATALOG[name].empty_table() if other is None else other.rows
            connection.register(f"all_{name}", rows)
            has_date = LANDED_DATE.name in rows.schema.names
            begin = f"landed_date >= DATE '{snapshot.check_from}'" if has_date else "TRUE"
            connection.execute(f'CREATE TEMP VIEW "{name}" AS SELECT * FROM all_{name} WHERE {begin}')
        firsts = {name: min(table.days) for name, table in self._snapshots.items() if table.days}
        newest = {name: table.newest for name, table in self._snapshots.items()}
        for relation, columns in {
            "first_days": {"table_name": list(firsts), "landed_date": list(firsts.values())},
            "newest": {"table_name": list(newest), "landed_at": pa.array(newest.values(), pa.timestamp("us", "UTC"))},
            "days": {"landed_date": list(snapshot.days), "rows": list(snapshot.days.values())},
            "parameters": {"now": [now], "stale_hours": pa.array([stale_hours], pa.float64())},
        }.items():
            connection.register(relation, pa.table(columns))

    def _before(self) -> dict[str, _Before]:
        """Where the last check of each table ended, by table name."""
        try:
            results = DeltaTable(QUALITY_RESULTS.uri(self._path)).to_pyarrow_dataset()
        except TableNotFoundError:
            return {}
        with connect() as connection:
            connection.register("results", results)
            last = connection.sql(
                "SELECT table_name, max_by(to_version, checked_at), max_by(open, checked_at) FROM ("
                "SELECT table_name, checked_at, max(to_version) AS to_version, [min(open_from)] AS open FROM results "
                "WHERE to_version IS NOT NULL GROUP BY table_name, checked_at) GROUP BY table_name"
            ).fetchall()
        return {name: _Before(version, open_from) for name, version, (open_from,) in last}

    def _open(self, name: str, before: _Before | None) -> _Snapshot | None:
        try:
            table = DeltaTable(f"{self._path}/{name}")
            dataset = table.to_pyarrow_dataset()
        except TableNotFoundError:
            return None
        except (DeltaProtocolError, DeltaError) as error:
            raise QualityError(
                f"table {name} can't be read: {' '.join(str(error).split())}. Was it written by a newer version of "
                "telemetry-lake, or changed by another program? Upgrade kafka-telemetry-lake here"
            ) from error
        files = _files(table)
        known = self._files_at(name, before, table.version())
        since = None if before is None or known is None else before.version
        new = files if known is None else [row for row in files if row["path"] not in known]
        days: dict[date, int] = {}
        for row in files:
            if (day := _day(row)) is not None:
                days[day] = days.get(day, 0) + row["num_records"]
        newest = [at for row in files if (at := (row.get("max") or {}).get("landed_at")) is not None]
        days_to_check = [day for row in new if (day := _day(row)) is not None]
        days_to_check += [before.open_from] if before is not None and before.open_from is not None else []
        return _Snapshot(
            int(table.version()), since, _whole(dataset, name), _whole(_only(dataset, new), name), days,
            max(newest, default=None), min(days_to_check, default=date.max),
        )  # fmt: skip

    def _files_at(self, name: str, before: _Before | None, version: int) -> set[str] | None:
        """Paths of the table's files at the last check; None: no check yet, or that version no longer exists."""
        if before is None or before.version > version:  # a lake restored from an older copy
            return None
        try:
            return {row["path"] for row in _files(DeltaTable(f"{self._path}/{name}", version=before.version))}
        except DeltaError:  # the log of that version was cleaned up
            return None


@dataclass(frozen=True)
class _Snapshot:
    """A table at one version: all rows, new rows, row counts by landed date, and the first landed date to check."""

    version: int
    since: int | None
    rows: pads.Dataset
    added: pads.Dataset
    days: Mapping[date, int]
    newest: datetime | None
    check_from: date


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """The table's files: path, num_records, max and, for partitioned tables, partition."""
    files: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return files


def _day(file: Mapping[str, Any]) -> date | None:
    """The landed date of a file's rows."""
    day = (file.get("partition") or {}).get(LANDED_DATE.name)
    return None if day is None else date.fromisoformat(str(day))


def _only(dataset: pads.FileSystemDataset, files: list[dict[str, Any]]) -> pads.Dataset:
    """The dataset restricted to some files."""
    paths = {row["path"] for row in files}
    fragments = [each for each in dataset.get_fragments() if each.path.removeprefix("/") in paths or each.path in paths]
    assert len(fragments) == len(paths)
    return pads.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _whole(dataset: pads.Dataset, name: str) -> pads.Dataset:
    """Add the columns that a later version of the project defines, as NULL."""
    stored = dataset.schema
    new = [field for field in CATALOG[name] if field.name not in stored.names]
    return dataset.replace_schema(pa.schema([*stored, *new]))


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
