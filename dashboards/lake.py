"""A lake as the pages see it: read only, followed, asked through DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from dashboards.questions import CHOSEN, Grain, question
from pipelines.catalog import CATALOG
from pipelines.duckdb_tables import dataset, native_select
from pipelines.lake_query import is_lake, is_of_newer_version
from pipelines.views import needed, views

Parameter = datetime | str | int | list[str]
Versions = tuple[tuple[str, int], ...]


class LakeError(Exception):
    """The lake can't be shown; the message tells a person what to do."""


class Lake:
    """A lake, followed: every question is answered from its tables as they are by then. Safe to share by threads.

    Answers of a table behind a URI come through delta-rs; DuckDB reads the files of others by itself (`duckdb_tables`).
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._lock = threading.Lock()
        self._tables: dict[str, DeltaTable] = {}
        self._viewed: dict[str, int] = {}
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute("CREATE SCHEMA empty")
        self._made: set[str] = set()
        self._foreign: set[str] = set()  # tables that only delta-rs can read

    def versions(self) -> Versions:
        """The version of each table that is there, by now: what cached answers stand for.

        Raises:
            LakeError: no lake, or one that can't be read.
        """
        if not is_lake(self.uri):
            raise LakeError(
                f"There is no lake at {self.uri}. Make one with `telemetry-lake demo --lake {self.uri}` or "
                f"`telemetry-lake ingest --lake {self.uri} ...`, then reload this page."
            )
        with self._lock:
            for name in CATALOG:
                self._refresh(name)
            return tuple((name, table.version()) for name, table in sorted(self._tables.items()))

    def ask(
        self,
        name: str,
        parameters: Mapping[str, Parameter],
        chosen: pa.Table | None = None,
        grain: Grain = "minutes",
    ) -> pa.Table:
        """The answer to a question of `sql/dashboard/`.

        Args:
            parameters: values of its parameters; others are left out.
            chosen: the client instances that the filters leave, rows of question `instances`.
            grain: which rollups it reads, where it reads any.

        Raises:
            LakeError: a table or a view can't be read.
        """
        asked = question(name, grain)
        values = {key: value for key, value in parameters.items() if key in asked.parameters}
        return self._run(name, asked.duckdb, asked.reads - {CHOSEN}, values, chosen)

    def knows(self, name: str) -> bool:
        """Whether a table or view of this name is part of this installation, with or without rows."""
        return name in CATALOG or name in views()

    def rows(self, name: str, between: tuple[str, datetime, datetime] | None = None, top: int = 10_000) -> pa.Table:
        """The first rows of a table or view; `between`: those with a column from one time to before another."""
        if between is None:
            return self._run(name, f'FROM "{name}" LIMIT {top}', frozenset({name}), {}, None)
        column, start, stop = between
        sql = f'FROM "{name}" WHERE "{column}" >= $start AND "{column}" < $stop ORDER BY "{column}" DESC LIMIT {top}'
        return self._run(name, sql, frozenset({name}), {"start": start, "stop": stop}, None)

    def sizes(self) -> list[dict[str, str | int]]:
        """Version, live files, bytes and rows of each table that is there."""
        with self._lock:
            return [
                {"table": name, "version": table.version(), **_size(table)}
                for name, table in sorted(self._tables.items())
            ]

    def _run(
        self, name: str, sql: str, reads: frozenset[str], values: Mapping[str, Parameter], chosen: pa.Table | None
    ) -> pa.Table:
        try:
            with self._lock:
                self._prepare(reads)
                cursor = self._database.cursor()
            cursor.execute("SET TimeZone = 'UTC'")
            for table in self._foreign & set(needed(reads)[1]):
                cursor.register(table, dataset(self._tables[table], CATALOG[table]))
            if chosen is not None:
                cursor.register(CHOSEN, chosen)
            answer = _of_machine_numbers(cursor.sql(sql, params=dict(values)).to_arrow_table())
        except (duckdb.Error, DeltaError) as error:
            raise LakeError(_advice(name, error)) from error
        return answer

    def _refresh(self, name: str) -> None:
        try:
            if name in self._tables:
                self._tables[name].update_incremental()
            else:
                self._tables[name] = DeltaTable(f"{self.uri}/{name}")
        except TableNotFoundError:
            self._tables.pop(name, None)
        except (DeltaError, OSError) as error:
            raise LakeError(_advice(name, error)) from error

    def _prepare(self, reads: frozenset[str]) -> None:
        """Make the views and tables under a question, as of the tables' latest known versions."""
        wanted, below = needed(reads)
        for name in below:
            if name not in CATALOG:
                raise LakeError(f"Neither a table nor a view is called {name}: this installation's sql/ is damaged.")
            version = self._tables[name].version() if name in self._tables else -1
            if self._viewed.get(name) != version:
                self._view(name)
                self._viewed[name] = version
        for view in wanted:
            if view.name not in self._made:
                self._database.execute(f'CREATE OR REPLACE VIEW "{view.name}" AS {view.duckdb}')
                self._made.add(view.name)

    def _view(self, name: str) -> None:
        table = self._tables.get(name)
        select = None if table is None else native_select(self._database, table, CATALOG[name])
        self._foreign.discard(name)
        if select is None:
            self._database.register("_empty", CATALOG[name].empty_table())
            self._database.execute(f'CREATE OR REPLACE TABLE empty."{name}" AS FROM _empty')
            self._database.unregister("_empty")
            select = f'FROM empty."{name}"'
            if table is not None:
                self._foreign.add(name)
        self._database.execute(f'CREATE OR REPLACE VIEW "{name}" AS {select}')


def _of_machine_numbers(rows: pa.Table) -> pa.Table:
    """DuckDB's sums of whole numbers are decimals, which pandas would keep as objects."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            kind = pa.int64() if field.type.scale == 0 else pa.float64()
            rows = rows.set_column(index, field.name, rows.column(index).cast(kind, safe=False))
    return rows


def _size(table: DeltaTable) -> dict[str, int]:
    files = table.get_add_actions(flatten=True)
    return {
        "files": len(files["path"]),
        "bytes": sum(files["size_bytes"].to_pylist()),
        "rows": sum(rows or 0 for rows in files["num_records"].to_pylist()),
    }


def _advice(name: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if is_of_newer_version(error):
        return f"Table {name} was written by a newer version than this one reads: update kafka-telemetry-lake. ({text})"
    if "no such file" in text.lower() or "no files found" in text.lower():
        return f"Files of {name} went away while they were read, by maintenance or by hand: reload this page. ({text})"
    return f"{name} can't be answered: {text}"
