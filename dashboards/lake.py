"""Read-only access of the pages to a lake, through DuckDB."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.dashboards.answers import Asked, LakeError
from kafka_telemetry_lake.dashboards.kept_pushes import KeptPushes
from kafka_telemetry_lake.dashboards.kept_windows import TABLES, KeptWindows
from kafka_telemetry_lake.dashboards.pushed import PushedInstances
from kafka_telemetry_lake.dashboards.questions import CHOSEN, CHOSEN_IDS, ROLLUPS, Grain, Parameter, question, view_sql
from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.lake.moments import Moment
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import dataset, native_select, select_nothing
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake, is_of_newer_version
from kafka_telemetry_lake.pipelines.query.views import needed, views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import check_table
from kafka_telemetry_lake.udfs.errors import OtherFormatError

Versions = tuple[tuple[str, int], ...]


BATCH_ROWS = 2048
# Views that many views or pages read, and that take seconds of a million clients: stored, once for each version of the
# tables below them. Each after those that it reads. `PREPARED` are stored when the server starts.
PREPARED = ("clients", "entity_owners", "applications")
SHARED = (*PREPARED, "telemetry_coverage")


class LakeReader:
    """A lake whose tables are read at the moment that the last call of `versions` saw. Safe for use by many threads.

    DuckDB reads the files of a local table itself. A table behind a URI is read through delta-rs (`duckdb_tables`).
    """

    def __init__(self, uri: str, overrides: Overrides = ()) -> None:
        self.uri, self.overrides = uri.rstrip("/"), overrides
        self._lock = threading.Lock()
        self._tables: dict[str, DeltaTable] = {}
        self._viewed: dict[str, int] = {}
        self._database = connect(self.uri)
        self._database.execute("CREATE SCHEMA shared")
        self._made: set[str] = set()
        self._versions: Versions = ()
        self._looked = float("-inf")
        self.look_every_s = 0.0
        self._shared: dict[str, Versions] = {}  # of the tables below them, when they were stored
        self._sharing = threading.Lock()
        self._windows, self._keeping = KeptWindows(), threading.Lock()
        self.pushes, self._keeping_pushes = KeptPushes(), threading.Lock()
        self._foreign: set[str] = set()  # tables that only delta-rs can read

    def versions(self) -> Versions:
        """Look up the newest moment, and the version of each existing table; cached answers are valid for these.

        If the last look is no longer ago than `look_every_s`, it gives that one's.

        Raises:
            LakeError: there is no lake, or it can't be read.
        """
        if not is_lake(self.uri):
            place = shlex.quote(self.uri)
            raise LakeError(
                f"There is no lake at {self.uri}. Create one with `telemetry-lake demo --lake {place}` or "
                f"`telemetry-lake ingest --lake {place} ...`, then reload this page."
            )
        with self._lock:
            if time.monotonic() < self._looked + self.look_every_s:
                return self._versions
            self._refresh(PUSH_OUTCOMES.name)
            moment = Moment.of(self.uri, self._tables.get(PUSH_OUTCOMES.name))
            for name in CATALOG:
                if name != PUSH_OUTCOMES.name:
                    self._refresh(name, moment)
            self._versions = tuple((name, table.version()) for name, table in sorted(self._tables.items()))
            self._looked = time.monotonic()
            return self._versions

    def look_again(self) -> None:
        """Let the next look find what was written just now."""
        with self._lock:
            self._looked = float("-inf")

    def ask(
        self,
        name: str,
        parameters: Mapping[str, Parameter],
        chosen: pa.Table | None = None,
        grain: Grain = "minutes",
        asked: Asked | None = None,
        rollups: pa.Table | None = None,
        everybody: bool = False,
    ) -> pa.Table:
        """Answer a question of `sql/dashboard/`.

        Args:
            parameters: values by name; names that the question doesn't have are ignored.
            chosen: the client instances that pass the filters, rows of question `instances`; None: not needed.
            grain: the rollups to read, if the question reads rollups.
            asked: whoever can end the question.
            rollups: the answer to question `client_windows`, if the grain is "windows".
            everybody: all pass, so that none need be looked for in `chosen`. If it is given, it has all of them.

        Raises:
            LakeError: a table or a view can't be read.
        """
        of = question(name, grain, everybody, listed=chosen is not None)
        values = {key: value for key, value in parameters.items() if key in of.parameters}
        supplied: dict[str, pa.Table] = {}
        if chosen is not None and CHOSEN in of.reads:
            supplied[CHOSEN] = chosen
        if chosen is not None and CHOSEN_IDS in of.reads:
            supplied[CHOSEN_IDS] = _ids(chosen)
        if rollups is not None:
            supplied[ROLLUPS] = rollups
        return self.run(name, of.duckdb, of.reads - {CHOSEN, CHOSEN_IDS, ROLLUPS}, values, supplied, asked)

    def pushed(self, start: datetime, stop: datetime, asked: Asked | None = None) -> PushedInstances | None:
        """The instances that pushed in a time range, by the pushes that are kept; None: not all of the range are.

        Raises:
            LakeError: a table can't be read.
        """
        names = frozenset((PUSHES.name, PUSH_OUTCOMES.name))
        try:
            with self._lock:
                self._prepare(names)
                tables = {name: self._tables[name] for name in names & self._tables.keys()}
                cursor = self._database.cursor()
            if asked is not None:
                asked.runs_on(cursor)
            with self._keeping_pushes:
                if names & self._foreign:
                    self.pushes = KeptPushes()
                    return None
                return self.pushes.between(cursor, tables, start, stop)
        except (duckdb.Error, DeltaError, OSError, pa.ArrowInvalid) as error:  # DuckDB's stream raises the latter two
            raise LakeError(_advice(PUSHES.name, error)) from error

    def windows(
        self,
        parameters: Mapping[str, Parameter],
        chosen: pa.Table | None,
        grain: Grain,
        asked: Asked | None = None,
    ) -> pa.Table:
        """The answer to question `client_windows`, of sums that are kept: the same, but a new range costs little.

        Args:
            parameters, grain, asked: as of `ask`; `metrics` should always be the same ones.
            chosen: as of `ask`; None: of everybody.

        Raises:
            LakeError: a table or a view can't be read.
        """
        name = TABLES.get(grain, "")
        step, metrics, start, stop = (parameters[key] for key in ("step_ms", "metrics", "first_window", "stop"))
        assert isinstance(step, int)
        assert isinstance(metrics, list)
        assert isinstance(start, datetime)
        assert isinstance(stop, datetime)
        with self._lock:
            self._prepare(frozenset({name} - {""}))
            table = None if name in self._foreign else self._tables.get(name)
        if table is None:
            return self.ask("client_windows", parameters, chosen, grain, asked, everybody=chosen is None)

        @contextmanager
        def see(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
            with self._keeping:
                self._windows.rollups(
                    cursor, table, grain, timedelta(milliseconds=step), metrics, start, stop, chosen is None
                )
                yield

        supplied = {} if chosen is None else {CHOSEN_IDS: _ids(chosen)}
        # Each window is kept as a whole or read at an end of the range: no two rows are to be added up.
        return self.run("client_windows", f"FROM {ROLLUPS}", frozenset(), {}, supplied, asked, see=see)

    def knows(self, name: str) -> bool:
        """Whether this installation has a table or view of this name; it may be empty."""
        return name in CATALOG or name in views()

    def rows(
        self,
        name: str,
        between: tuple[str, datetime, datetime] | None = None,
        top: int = 10_000,
        where: Mapping[str, Parameter] | None = None,
        asked: Asked | None = None,
    ) -> pa.Table:
        """The first rows of a table or view.

        Args:
            between: a column, its earliest time, and the time that it is before; the latest rows come first.
            where: values that columns must have; of a list, one of its values.
            asked: whoever can end the question.
        """
        sql, values = view_sql(name, between, where or {})
        # Of one instance little is read. To store what is shared would take seconds.
        store = "client_instance_id" not in (where or {})
        return self.run(name, f"{sql} LIMIT {top}", frozenset({name}), values, {}, asked, top, store=store)

    def sizes(self) -> list[dict[str, str | int]]:
        """Version, live files, bytes and rows of each existing table."""
        with self._lock:
            return [
                {"table": name, "version": table.version(), **_size(table)}
                for name, table in sorted(self._tables.items())
            ]

    def run(
        self, name: str, sql: str, reads: frozenset[str], values: Mapping[str, Parameter],
        supplied: Mapping[str, pa.Table], asked: Asked | None = None, top: int | None = None,
        see: Callable[[duckdb.DuckDBPyConnection], AbstractContextManager[None]] | None = None, store: bool = True,
    ) -> pa.Table:  # fmt: skip
        """The answer to a statement in DuckDB's dialect, which reads these tables and views, and what is supplied."""
        try:
            with self._lock:
                self._prepare(reads)
                cursor = self._database.cursor()
            if asked is not None:
                asked.runs_on(cursor)
            for table in self._foreign & set(needed(reads)[1]):
                cursor.register(table, dataset(self._tables[table]))
            self._share(reads, cursor, store)
            for given, rows in supplied.items():
                cursor.register(given, rows)
            with see(cursor) if see else nullcontext():
                relation = cursor.sql(sql, params=dict(values))
                answer = _without_decimals(relation.to_arrow_table() if top is None else _first(relation, top))
        except (duckdb.Error, DeltaError) as error:
            raise LakeError(_advice(name, error)) from error
        return answer

    def _refresh(self, name: str, moment: Moment | None = None) -> None:
        try:
            if name in self._tables:
                self._tables[name].update_incremental()
            else:
                table = DeltaTable(f"{self.uri}/{name}")
                check_table(table, name, CATALOG[name])
                self._tables[name] = table
            if moment is not None:
                self._tables[name] = moment.at(name, self._tables[name])
        except TableNotFoundError:
            self._tables.pop(name, None)
        except (DeltaError, OSError) as error:
            raise LakeError(_advice(name, error)) from error
        except OtherFormatError as error:
            raise LakeError(str(error)) from error

    def _prepare(self, reads: frozenset[str]) -> None:
        """Create the views that a question reads, and the tables below them at their latest known versions."""
        wanted, tables = needed(reads, self.overrides)
        for name in tables:
            if name not in CATALOG:
                raise LakeError(f"No table or view is called {name}: this installation's sql/ is damaged.")
            version = self._tables[name].version() if name in self._tables else -1
            if self._viewed.get(name) != version:
                self._view(name)
                self._viewed[name] = version
        for view in wanted:
            if view.name not in self._made:
                self._database.execute(f'CREATE OR REPLACE VIEW "{view.name}" AS {view.duckdb}')
                self._made.add(view.name)

    def _share(self, reads: frozenset[str], cursor: duckdb.DuckDBPyConnection, store: bool) -> None:
        """Let a question's cursor read `SHARED` views from stored rows, which are those of the tables' versions.

        Args:
            store: whether to store rows of views that have none yet.
        """
        views = {view.name: view for view in needed(reads, self.overrides)[0] if view.name in SHARED}
        for name in filter(views.__contains__, SHARED):
            below = tuple((table, self._viewed[table]) for table in sorted(needed([name], self.overrides)[1]))
            with self._sharing:
                if self._shared.get(name) != below:
                    if not store:
                        continue
                    cursor.execute(f'CREATE OR REPLACE TABLE shared."{name}" AS {views[name].duckdb}')
                    self._shared[name] = below
            # A cursor's own views come before those of the database.
            cursor.execute(f'CREATE TEMP VIEW "{name}" AS FROM shared."{name}"')

    def _view(self, name: str) -> None:
        table = self._tables.get(name)
        select = None if table is None else native_select(self._database, table)
        self._foreign.discard(name)
        if select is None:
            select = select_nothing(self._database, CATALOG[name])
            if table is not None:
                self._foreign.add(name)
        self._database.execute(f'CREATE OR REPLACE VIEW "{name}" AS {select}')


def _ids(chosen: pa.Table) -> pa.Table:
    return chosen.group_by(["cluster_id", "client_id"]).aggregate([])


def _first(relation: duckdb.DuckDBPyRelation, top: int) -> pa.Table:
    """The first rows, and no others are computed: DuckDB 2.0.0 may leave out a LIMIT over an outer join with its own
    tables, such as those of `SHARED` views (`select_nothing`)."""
    reader = relation.to_arrow_reader(BATCH_ROWS)
    batches, count = list[pa.RecordBatch](), 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count >= top:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, top)


def _without_decimals(rows: pa.Table) -> pa.Table:
    """Convert decimals to integers or doubles: DuckDB's sums of integers are decimals, slow objects in pandas."""
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
        return f"Files of {name} were deleted during the query, by maintenance or by hand: reload this page. ({text})"
    return f"{name} can't be read: {text}"
