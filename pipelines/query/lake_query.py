"""SQL on a lake without Spark: DuckDB queries on the Delta tables and views, and the output formats."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TextIO

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs
import sqlglot
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from sqlglot import exp

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.query.duckdb_engine import MEMORY, SPILL, NotAQueryError, check_reads, connect
from kafka_telemetry_lake.pipelines.query.duckdb_tables import local_folder, register_table
from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json
from kafka_telemetry_lake.pipelines.query.subscription_views import BELOW, subscription_views
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.query.views import views as views_by_name
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.subscriptions.view_names import PREFIX

UNQUOTED_AT = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\bat\b(?!\s+time\s+zone\b)""", re.IGNORECASE)
COLUMN_WIDTH = 60  # characters; only the table format cuts longer values


class QueryError(TelemetryLakeError):
    """The query failed; the message is one line for the user."""


def run_query(
    lake: str, sql: str, allow_files: bool = False, memory: str = MEMORY, spill: str = SPILL
) -> pa.RecordBatchReader:
    """Run a query on the lake's tables and the views of `sql/`.

    Only tables and views whose names occur in the query are opened, so the number of tables doesn't matter. If a view
    reads a table that the lake doesn't have yet, the table is empty.

    Args:
        allow_files: allow other statements than queries, and access to files outside the lake.
        memory, spill: limits of DuckDB's memory and of its temporary files, such as "2GB".

    Raises:
        QueryError: there is no such lake or table, the text isn't a query, or DuckDB reports an error.
    """
    connection = connect(lake, not allow_files, memory, spill)
    tables = _tables(lake)
    if SUBSCRIPTIONS.name in tables:
        sql = with_subscriptions(sql)
    named = {word.lower() for word in re.findall(r"\w+", sql)}
    own = _subscription_views(lake, named)
    views, below = needed((named | {BELOW} if own else named) & views_by_name().keys()) if is_lake(lake) else ([], [])
    try:
        for name in tables:
            if name.lower() in named or name in below:
                register_table(connection, name, DeltaTable(table_uri(lake, name)), CATALOG.get(name))
        for name in set(below) - set(tables):
            connection.register(name, CATALOG[name].empty_table())
        for view in views:
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        for name, select in own.items():
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {select}')
        answer = _ask(connection, sql, not allow_files)
        return pa.Table.from_pylist([]).to_reader() if answer is None else answer.to_arrow_reader(10_000)
    except DeltaError as error:
        newer = "the lake was written by a newer version: update kafka-telemetry-lake: "
        raise QueryError(f"{newer if is_of_newer_version(error) else ''}{_one_line(error)}") from error
    except NotAQueryError as error:
        raise QueryError(str(error)) from error
    except duckdb.CatalogException as error:
        if not is_lake(lake):
            raise QueryError(f"no lake at {lake}: create one with `telemetry-lake ingest --lake {lake}`") from error
        raise QueryError(f"{_one_line(error)} (this lake's tables: {', '.join(tables)})") from error
    except duckdb.Error as error:
        raise QueryError(_advice(error)) from error


def _advice(error: duckdb.Error) -> str:
    message = _one_line(error)
    if isinstance(error, duckdb.PermissionException):
        return f"{message}; --allow-files allows files outside the lake"
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"the query needs more than --memory and --spill allow: {message}"
    if isinstance(error, duckdb.IOException):
        message = message.partition(" LINE ")[0]
        deleted = ": maintenance has just deleted it (repeat the query), or somebody did manually"
        return f"{message}{deleted if 'No files' in message else ''}"
    return message


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
    if not any(word.startswith(PREFIX) for word in named - views_by_name().keys()):
        return {}
    return {name: select for name, select in subscription_views(lake, "duckdb").items() if name in named}


def _tables(lake: str) -> list[str]:
    """The names of the lake's tables: all folders except those of checkpoints and locks."""
    filesystem, root = filesystem_of(lake)
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    names = [entry.base_name for entry in entries if entry.type == pafs.FileType.Directory]
    return sorted(name for name in names if not name.startswith(("_", ".")))


def _ask(connection: duckdb.DuckDBPyConnection, sql: str, closed: bool) -> duckdb.DuckDBPyRelation | None:
    """Run a statement; returns None if it has no result."""

    def answer(text: str) -> duckdb.DuckDBPyRelation | None:
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


def write_jsonl(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """Write one JSON object per line: NaN as null, exact bigints, timestamps as ISO 8601 in UTC, maps as objects."""
    for row in _rows(rows):
        out.write(printable_json(row, separators=(",", ":")) + "\n")


def write_csv(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """Write CSV with a header line. NULL is empty; maps and lists are JSON; on a terminal all text is printable."""
    shown = printable if out.isatty() else str
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.schema.names)
    for row in _rows(rows):
        writer.writerow([shown(_cell(value)) for value in row.values()])


def write_table(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """Write aligned columns for people. Long values are cut; programs should read CSV or JSON lines."""
    names = rows.schema.names
    lines = [[_short(_cell(value)) for value in row.values()] for row in _rows(rows)]
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numeric = [any(is_it(field.type) for is_it in number) for field in rows.schema]
    widths = [max(len(line[i]) for line in [names, *lines]) for i in range(len(names))]

    def put(line: list[str]) -> None:
        cells = (text.rjust(width) if number else text.ljust(width)
                 for text, width, number in zip(line, widths, numeric, strict=True))  # fmt: skip
        out.write("  ".join(cells).rstrip() + "\n")

    put([printable(name) for name in names])
    put(["-" * width for width in widths])
    for line in lines:
        put(line)


def _rows(rows: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    types = [field.type for field in rows.schema]
    for batch in _batches(rows):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield dict(zip(rows.schema.names, map(_plain, values, types), strict=True))


def _batches(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches. DuckDB computes them while they are read, so errors from damaged files occur here."""
    try:
        yield from rows
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"a file of the lake can't be read: {_one_line(error)}") from error


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911  # one return for each kind of value
    if value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        utc = value.astimezone(UTC) if value.tzinfo else value
        return utc.replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):  # such as a sum of bigints
        return int(value) if kind.scale == 0 else float(value)
    if pa.types.is_map(kind):
        return {str(key): _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, int | str | bool):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else printable_json(value)


def _short(text: str) -> str:
    text = printable(text.replace("\n", " "))
    return text if len(text) <= COLUMN_WIDTH else text[: COLUMN_WIDTH - 1] + "…"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
