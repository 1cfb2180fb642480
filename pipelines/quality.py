"""How many rows of a lake break the rules of ``quality_rules``, by DuckDB over the rows that are new: without Spark.

Memory is bounded: rules of single rows are counted in one pass over a table, the others join keys of the landed dates
that the new rows are of, and DuckDB spills what doesn't fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from pipelines.catalog import CATALOG
from pipelines.quality_results import QUALITY_RESULTS
from pipelines.quality_rules import RULES, Rule, tables_with_rules
from pipelines.tables import LANDED_DATE

EXAMPLES = 3
MEMORY = "2GB"  # of DuckDB; what doesn't fit goes to the folder of temporary files
TOLD = (
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


class QualityError(RuntimeError):
    """The lake can't be checked as asked; the message says why, and what to do."""


@dataclass(frozen=True)
class Finding:
    """What a rule found, before it is judged: `broken` rows, a few of them as `examples`, among `rows` new ones."""

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
    """How far the last check of a table came."""

    version: int
    open_from: date | None


class Lake:
    """A lake's tables as they are now, and the rows that came since the last check.

    Raises:
        QualityError: no such lake, or a table of a newer version.
    """

    def __init__(self, path: str, *, full: bool) -> None:
        self._path = path.rstrip("/")
        self._held: dict[str, _Held] = {}
        before = {} if full else self._before()
        names = tables_with_rules()
        for name in [*names, *({other for rule in RULES for other in rule.reads} - set(names))]:
            held = self._open(name, before.get(name))
            if held is not None:
                self._held[name] = held
        if "pushes" not in self._held:
            raise QualityError(f"no lake at {path}: make one with `telemetry-lake ingest --lake {path}`")

    @property
    def tables(self) -> list[str]:
        """The tables with rules that the lake has."""
        return [name for name in tables_with_rules() if name in self._held]

    def check(self, name: str, now: datetime, stale_hours: float | None) -> Iterator[Finding]:
        """What the rules of a table find.

        Args:
            now: UTC; with `stale_hours` what "newest" is held against; without it freshness isn't.
        """
        held = self._held[name]
        rules = [rule for rule in RULES if rule.table == name]
        with TemporaryDirectory(prefix="telemetry-lake-quality-") as spill, duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
            connection.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{spill}'")
            connection.register("added", held.added)
            begun = time.monotonic()
            counted = _count(connection, [rule for rule in rules if rule.breaks])
            rows = counted.pop("")
            each = (time.monotonic() - begun) / max(1, len(counted))
            self._relate(connection, held, rules, now, stale_hours)
            for rule in rules:
                begun = time.monotonic()
                select = rule.select or f"SELECT * FROM added WHERE {rule.breaks}"
                broken = counted[rule.name] if rule.breaks else _one(connection, f"SELECT count(*) FROM ({select})")
                told = tuple(_examples(connection, select, rule)) if broken else ()
                open_from = _one(connection, rule.open_from) if rule.open_from else None
                seconds = time.monotonic() - begun + (each if rule.breaks else 0)
                yield Finding(rule, rows, broken, told, held.since, held.version, open_from, seconds)

    def _relate(
        self,
        connection: duckdb.DuckDBPyConnection,
        held: _Held,
        rules: list[Rule],
        now: datetime,
        stale_hours: float | None,
    ) -> None:
        """The relations that a table's rules name beside `added`."""
        for name in {other for rule in rules for other in rule.reads}:
            other = self._held.get(name)
            rows = CATALOG[name].empty_table() if other is None else other.rows
            connection.register(f"all_{name}", rows)
            begin = "TRUE" if LANDED_DATE.name not in rows.schema.names else f"landed_date >= DATE '{held.look_from}'"
            connection.execute(f'CREATE TEMP VIEW "{name}" AS SELECT * FROM all_{name} WHERE {begin}')
        firsts = {name: min(table.days) for name, table in self._held.items() if table.days}
        newest = {name: table.newest for name, table in self._held.items()}
        for relation, columns in {
            "first_days": {"table_name": list(firsts), "landed_date": list(firsts.values())},
            "newest": {"table_name": list(newest), "landed_at": pa.array(newest.values(), pa.timestamp("us", "UTC"))},
            "days": {"landed_date": list(held.days), "rows": list(held.days.values())},
            "asked": {"now": [now], "stale_hours": pa.array([stale_hours], pa.float64())},
        }.items():
            connection.register(relation, pa.table(columns))

    def _before(self) -> dict[str, _Before]:
        """Version, by table, that the last check of it came to."""
        try:
            results = DeltaTable(QUALITY_RESULTS.uri(self._path)).to_pyarrow_dataset()
        except TableNotFoundError:
            return {}
        with duckdb.connect() as connection:
            connection.register("results", results)
            found = connection.sql(
                "SELECT table_name, max_by(to_version, checked_at), max_by(open, checked_at) FROM ("
                "SELECT table_name, checked_at, max(to_version) AS to_version, [min(open_from)] AS open FROM results "
                "WHERE to_version IS NOT NULL GROUP BY table_name, checked_at) GROUP BY table_name"
            ).fetchall()
        return {name: _Before(version, open_from) for name, version, (open_from,) in found}

    def _open(self, name: str, before: _Before | None) -> _Held | None:
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
        looked = [day for row in new if (day := _day(row)) is not None]
        looked += [before.open_from] if before is not None and before.open_from is not None else []
        return _Held(
            int(table.version()), since, _whole(dataset, name), _whole(_only(dataset, new), name), days,
            max(newest, default=None), min(looked, default=date.max),
        )  # fmt: skip

    def _files_at(self, name: str, before: _Before | None, version: int) -> set[str] | None:
        """Paths of the files that were there at the last check; None: there was none, or its version is gone."""
        if before is None or before.version > version:  # a lake restored from an older copy
            return None
        try:
            return {row["path"] for row in _files(DeltaTable(f"{self._path}/{name}", version=before.version))}
        except DeltaError:  # its log has been cleaned up since
            return None


@dataclass(frozen=True)
class _Held:
    """A table: all rows and those that are new, rows by landed date, and from which date on rules look at others."""

    version: int
    since: int | None
    rows: pads.Dataset
    added: pads.Dataset
    days: Mapping[date, int]
    newest: datetime | None
    look_from: date


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """The table's files: path, num_records, max; and partition, for tables that have any."""
    found: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return found


def _day(file: Mapping[str, Any]) -> date | None:
    """The landed date of a file's rows."""
    day = (file.get("partition") or {}).get(LANDED_DATE.name)
    return None if day is None else date.fromisoformat(str(day))


def _only(dataset: pads.FileSystemDataset, files: list[dict[str, Any]]) -> pads.Dataset:
    """The dataset's files of these paths."""
    paths = {row["path"] for row in files}
    fragments = [each for each in dataset.get_fragments() if each.path.removeprefix("/") in paths or each.path in paths]
    assert len(fragments) == len(paths)
    return pads.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _whole(dataset: pads.Dataset, name: str) -> pads.Dataset:
    """With the columns that came after the table was made, NULL."""
    held = dataset.schema
    new = [field for field in CATALOG[name] if field.name not in held.names]
    return dataset.replace_schema(pa.schema([*held, *new]))


def _count(connection: duckdb.DuckDBPyConnection, rules: list[Rule]) -> dict[str, int]:
    """Rows of `added` that break each rule, in one pass; under the empty name: all rows."""
    counts = [f"count(*) FILTER ({rule.breaks})" for rule in rules]
    (found,) = connection.execute(f"SELECT {', '.join(['count(*)', *counts])} FROM added").fetchall()
    return dict(zip(["", *(rule.name for rule in rules)], found, strict=True))


def _one(connection: duckdb.DuckDBPyConnection, select: str) -> Any:
    ((found,),) = connection.execute(select).fetchall()
    return found


def _examples(connection: duckdb.DuckDBPyConnection, select: str, rule: Rule) -> Iterator[str]:
    """A few rows as a person finds them again, with what the rule looks at."""
    found = connection.sql(f"SELECT * FROM ({select}) LIMIT {EXAMPLES}")
    asked = set(re.findall(r"\w+", rule.breaks)) | set(found.columns) - set(CATALOG[rule.table].names)
    names = [name for name in found.columns if name in TOLD] + [
        name for name in found.columns if name in asked and name not in TOLD
    ]
    for row in found.select(*[duckdb.ColumnExpression(name) for name in names or found.columns]).fetchall():
        cells = zip(names or found.columns, row, strict=True)
        yield ", ".join(f"{name} {_text(value)}" for name, value in cells if value is not None)


def _text(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
