"""SQL on a lake without Spark: DuckDB queries on the Delta tables and views."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import sqlglot
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from sqlglot import exp

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.lake.moments import (
    MOMENTS,
    Moment,
    NoMomentError,
    moments_table,
    newest_moment,
    noted_moment,
)
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.query.duckdb_engine import MEMORY, SPILL, NotAQueryError, check_reads, connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import local_folder, register_table, table_columns
from kafka_telemetry_lake.pipelines.query.formats import with_distinct_names
from kafka_telemetry_lake.pipelines.query.needed_days import days_of, needed_days, stand_in
from kafka_telemetry_lake.pipelines.query.plain_values import as_arrow_holds
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError, explained, one_line
from kafka_telemetry_lake.pipelines.query.subscription_views import BELOW, subscription_views
from kafka_telemetry_lake.pipelines.query.summed_levels import summed_levels
from kafka_telemetry_lake.pipelines.query.views import create_views, needed, view_names
from kafka_telemetry_lake.pipelines.query.views import views as views_by_name
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG, MEANINGS
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import check_table, table_uri
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.subscriptions.view_names import PREFIX

UNQUOTED_AT = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\bat\b(?!\s+time\s+zone\b)""", re.IGNORECASE)
SHOW_TABLES = re.compile(r"\s*show\s+(?:all\s+)?(?:tables|views)\s*;?\s*", re.IGNORECASE)
Check = Callable[[duckdb.DuckDBPyConnection, str], None]


def run_query(
    lake: str, sql: str, allow_files: bool = False, memory: str = MEMORY, spill: str = SPILL,
    overrides: Overrides = (), warn: Callable[[str], None] | None = None, moment: int | Moment | None = None,
    check: Check | None = None,
) -> pa.RecordBatchReader:  # fmt: skip
    """Run a query on the lake's tables and the views of `sql/`. Columns of the result have distinct names.

    Only tables and views whose names occur in the query are opened, so the number of tables doesn't matter. A table
    that the lake doesn't have yet is empty. Tables of batches are read at one moment (`lake.moments`). SHOW TABLES
    lists tables and views with their meaning.

    Args:
        allow_files: allow other statements than queries, and access to files outside the lake.
        memory, spill: limits of DuckDB's memory and of its temporary files, such as "2GB".
        overrides: other bounds of the findings for some client ids.
        warn: is called with the sentence of `summed_levels` about the query, if there is one; None: don't look.
        moment: the number of an earlier one that the log still has; or one that was the newest just now, so that
            several queries read the same rows; None: the newest.
        check: is called with the connection and the query before it runs, and may raise ``NotAQueryError``.

    Raises:
        QueryError: there is no such lake or table, a table has another format, the text isn't a query, or DuckDB
            reports an error.
    """
    connection = connect(lake, not allow_files, memory, spill)
    tables = _tables(lake)
    there = not CATALOG.keys().isdisjoint(tables)
    if SUBSCRIPTIONS.name in tables:
        sql = with_subscriptions(sql)
    missing = no_lake(lake)
    opened: list[str] = []
    try:
        named = {word.lower() for word in re.findall(r"\w+", sql)}
        opened += _open(connection, lake, tables if there else [], named, overrides, sql, moment)
        if SHOW_TABLES.fullmatch(sql):
            if not there:
                raise QueryError(missing)
            connection.register("relations", relations(lake))
            sql = "FROM relations"
        answer = _ask(connection, sql, not allow_files, check)
        if answer is None:
            return pa.Table.from_pylist([]).to_reader()
        if warn is not None and (sentence := summed_levels(connection, sql)):
            warn(sentence)
        return with_distinct_names(as_arrow_holds(answer).to_arrow_reader(10_000))
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"{lake} can't be read: {one_line(error)}") from error
    except DeltaError as error:
        newer = "the lake was written by a newer version: update kafka-telemetry-lake: "
        raise QueryError(f"{newer if is_of_newer_version(error) else ''}{one_line(error)}") from error
    except (NotAQueryError, NoMomentError, OtherFormatError) as error:
        raise QueryError(str(error)) from error
    except duckdb.Error as error:
        if isinstance(error, duckdb.CatalogException) and not there:
            raise QueryError(missing) from error
        columns = (column for name in opened for column in connection.table(f'"{name}"').columns)
        raise QueryError(explained(error, tables, [*view_names(), *CATALOG, *opened], columns)) from error


def _open(
    connection: duckdb.DuckDBPyConnection,
    lake: str,
    tables: list[str],
    named: set[str],
    overrides: Overrides,
    sql: str,
    moment: int | Moment | None,
) -> list[str]:
    """Create the tables and views whose names occur in a query, and those below them; returns their names.

    Of large tables only the files of landed days that the query reads.
    """
    if not tables:
        return []
    own = _subscription_views(lake, named)
    views, below = needed((named | {BELOW} if own else named) & (view_names() | CATALOG.keys()), overrides)
    existing = [name for name in tables if name.lower() in named or name in below]
    opened = _at_moment(lake, existing, moment) if isinstance(moment, int) else _at_newest(lake, existing, moment)
    large = {name: days for name, (table, _) in opened.items() if (days := days_of(table)) is not None}
    for name, (table, days) in opened.items():
        if name in CATALOG:
            check_table(table, name, CATALOG[name])
        if name in large:
            large[name] = large[name] if days is None else large[name] & days
            stand_in(connection, name, table_columns(table), large[name])
        else:
            register_table(connection, name, table, days=days)
    for name in set(below) - set(tables):
        connection.register(name, CATALOG[name].empty_table())
    asked = [view.name for view in views if view.name.lower() in named or (own and view.name == BELOW)]
    create_views(connection, asked, views)
    for name, select in own.items():
        connection.execute(f'CREATE TEMP VIEW "{name}" AS {select}')
    for name, read in needed_days(connection, sql, large).items() if large else ():
        register_table(connection, name, opened[name][0], days=read)
    if MOMENTS in named and MOMENTS not in tables:
        connection.register(MOMENTS, moments_table(lake))
    return list(dict.fromkeys([*existing, *below, *asked, *own]))


def _at_newest(
    lake: str, names: Iterable[str], moment: Moment | None
) -> dict[str, tuple[DeltaTable, frozenset[str] | None]]:
    """The tables at the newest moment, or what it was just now, and the landed days to read; None: all."""
    moment = moment or newest_moment(lake)
    return {name: (moment.at(name, DeltaTable(table_uri(lake, name))), None) for name in names}


def _at_moment(lake: str, names: Iterable[str], number: int) -> dict[str, tuple[DeltaTable, frozenset[str] | None]]:
    """The tables of a lake at an earlier moment. Days that retention has dropped since then stay dropped."""
    versions = noted_moment(lake, number).versions
    opened = {}
    for name in names:
        table, days = DeltaTable(table_uri(lake, name)), None
        if name in versions:
            days = frozenset(pc.unique(files_table(table)["day"]).to_pylist())
            table = DeltaTable(table_uri(lake, name), version=versions[name])
        opened[name] = table, days
    return opened


def relations(lake: str) -> pa.Table:
    """Name, kind and meaning of each table of a lake and of each view; tables that the lake doesn't have yet last."""
    tables = _tables(lake)
    rows = [(name, "table", MEANINGS.get(name)) for name in tables]
    rows += [(name, "view", f"{view.question.partition('?')[0]}?") for name, view in sorted(views_by_name().items())]
    rows += [
        (name, "view", "One subscription's rows of subscription_metrics") for name in subscription_views(lake, "duckdb")
    ]
    rows += [(MOMENTS, "relation", "The moments that readers may ask for, with the version of each table")]
    rows += [(name, "table, empty", MEANINGS[name]) for name in CATALOG if name not in tables]
    return pa.table(dict(zip(("name", "kind", "meaning"), map(list, zip(*rows, strict=True)), strict=True)))


def view_columns() -> dict[str, list[str]]:
    """The columns of each view, in order of the views' names."""
    with duckdb.connect() as connection:
        for name, schema in CATALOG.items():
            connection.register(name, schema.empty_table())
        views = views_by_name()
        create_views(connection, views, views.values())
        return {name: connection.table(f'"{name}"').columns for name in sorted(views_by_name())}


def with_subscriptions(sql: str) -> str:
    """If a query on `metric_points` names column `subscriptions`, let it read view `point_subscriptions` instead.

    The column isn't stored, because the subscriptions that requested a point may be known only later.
    """
    if not all(re.search(rf"\b{word}\b", sql, re.IGNORECASE) for word in (METRIC_POINTS.name, "subscriptions")):
        return sql
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
    except sqlglot.errors.SqlglotError:
        return sql
    if all(column.name.lower() != "subscriptions" for column in tree.find_all(exp.Column)):
        return sql
    for table in tree.find_all(exp.Table):
        if table.name.lower() == METRIC_POINTS.name:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias or table.name)))
            table.set("this", exp.to_identifier("point_subscriptions"))
    return tree.sql("duckdb")


def _subscription_views(lake: str, named: set[str]) -> dict[str, str]:
    """Name and SELECT of each view of a single subscription that the query names."""
    if not any(word.startswith(PREFIX) for word in named - view_names()):
        return {}
    return {name: select for name, select in subscription_views(lake, "duckdb").items() if name in named}


def _tables(lake: str) -> list[str]:
    """The names of the lake's tables: all folders except those of checkpoints and locks."""
    try:
        filesystem, root = filesystem_of(lake)
        entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"{lake} can't be read: {one_line(error)}") from error
    names = [entry.base_name for entry in entries if entry.type == pafs.FileType.Directory]
    return sorted(name for name in names if not name.startswith(("_", ".")))


def _ask(
    connection: duckdb.DuckDBPyConnection, sql: str, closed: bool, check: Check | None
) -> duckdb.DuckDBPyRelation | None:
    """Run a statement; returns None if it has no result."""

    def answer(text: str) -> duckdb.DuckDBPyRelation | None:
        if check is not None:
            check(connection, text)
        if closed:
            check_reads(connection, text)
        return connection.sql(text)

    try:
        return answer(sql)
    except duckdb.ParserException:
        # `at` is a column of client_events, and a reserved word in DuckDB but not in Spark.
        quoted = UNQUOTED_AT.sub(lambda match: f'"{match[0]}"' if match[0].lower() == "at" else match[0], sql)
        if quoted == sql:
            raise
        return answer(quoted)


def is_lake(lake: str) -> bool:
    """Whether a folder or URI contains a lake."""
    folder = local_folder(lake)
    if folder is None:
        return bool(DeltaTable.is_deltatable(PUSHES.uri(lake)))
    return (folder / PUSHES.name / "_delta_log").is_dir()


def is_of_newer_version(error: Exception) -> bool:
    """Whether a table can't be read because a newer version wrote it."""
    return any(sign in str(error).lower() for sign in ("reader version", "reader feature", "unsupported"))
