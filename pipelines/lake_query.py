"""SQL over a lake without Spark: DuckDB over the Delta tables, whose logs delta-rs reads, and the views over them."""

from __future__ import annotations

import csv
import json
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

from pipelines.catalog import CATALOG
from pipelines.delta_log import lake_uri
from pipelines.duckdb_tables import local_folder, register_table
from pipelines.subscription_views import BELOW, subscription_views
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import METRIC_POINTS, PUSHES
from pipelines.views import needed
from pipelines.views import views as views_by_name
from udfs.subscription_views import PREFIX

UNQUOTED_AT = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\bat\b(?!\s+time\s+zone\b)""", re.IGNORECASE)
COLUMN_WIDTH = 60  # characters; longer values are cut in the table format only


class QueryError(ValueError):
    """The query can't be answered; the message is one line for the person who asked."""


def run_query(lake: str, sql: str) -> pa.RecordBatchReader:
    """Answer a query over the lake's tables and the views of `sql/`, named by their contract names.

    Only what the query's text names is opened, so a lake with many tables starts as fast as one with few. Under a view,
    a table that the lake doesn't have yet is empty.

    Raises:
        QueryError: no such lake or table, or DuckDB's own message on one line.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    tables = _tables(lake)
    if SUBSCRIPTIONS.name in tables:
        sql = with_subscriptions(sql)
    named = {word.lower() for word in re.findall(r"\w+", sql)}
    own = _subscription_views(lake, named)
    views, below = needed((named | {BELOW} if own else named) & views_by_name().keys()) if is_lake(lake) else ([], [])
    try:
        for name in tables:
            if name.lower() in named or name in below:
                register_table(connection, name, DeltaTable(f"{lake.rstrip('/')}/{name}"), CATALOG.get(name))
        for name in set(below) - set(tables):
            connection.register(name, CATALOG[name].empty_table())
        for view in views:
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        for name, select in own.items():
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {select}')
        answer = _ask(connection, sql)
        return pa.Table.from_pylist([]).to_reader() if answer is None else answer.to_arrow_reader(10_000)
    except DeltaError as error:
        told = _one_line(error)
        newer = "the lake was written by a newer version: update kafka-telemetry-lake: "
        raise QueryError(f"{newer if is_of_newer_version(error) else ''}{told}") from error
    except duckdb.CatalogException as error:
        if not is_lake(lake):
            raise QueryError(f"no lake at {lake}: make one with `telemetry-lake ingest --lake {lake}`") from error
        raise QueryError(f"{_one_line(error)} (this lake's tables: {', '.join(tables)})") from error
    except duckdb.IOException as error:
        told = _one_line(error).partition(" LINE ")[0]
        gone = ": maintenance took it away just now (ask again), or someone did by hand" if "No files" in told else ""
        raise QueryError(f"{told}{gone}") from error
    except duckdb.Error as error:
        raise QueryError(_one_line(error)) from error


def with_subscriptions(sql: str) -> str:
    """The query over `metric_points` with column `subscriptions` filled, where it names that column.

    Who asked is known only as of the question, so the column isn't stored: view `point_subscriptions` has it.
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
    """The views of single subscriptions that are named, as name and SELECT."""
    if not any(word.startswith(PREFIX) for word in named - views_by_name().keys()):
        return {}
    return {name: select for name, select in subscription_views(lake, "duckdb").items() if name in named}


def _tables(lake: str) -> list[str]:
    """The lake's folders but those of checkpoints and locks: each is a table."""
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(lake))
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    names = [entry.base_name for entry in entries if entry.type == pafs.FileType.Directory]
    return sorted(name for name in names if not name.startswith(("_", ".")))


def _ask(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation | None:
    """The answer, or None for a statement without rows."""
    try:
        return connection.sql(sql)
    except duckdb.ParserException:
        # `at` is a column of client_events, and a reserved word of DuckDB alone.
        quoted = UNQUOTED_AT.sub(lambda found: f'"{found[0]}"' if found[0].lower() == "at" else found[0], sql)
        if quoted == sql:
            raise
        return connection.sql(quoted)


def is_lake(lake: str) -> bool:
    """Whether a folder or URI holds a lake."""
    folder = local_folder(lake)
    if folder is None:
        return bool(DeltaTable.is_deltatable(PUSHES.uri(lake)))
    return (folder / PUSHES.name / "_delta_log").is_dir()


def is_of_newer_version(error: Exception) -> bool:
    """Whether a table could not be read because this version knows too little."""
    return any(sign in str(error).lower() for sign in ("reader version", "reader feature", "unsupported"))


def write_jsonl(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """One JSON object a line: NaN as null, bigint exact, timestamps ISO-8601 UTC, maps as objects."""
    for row in _rows(rows):
        out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_csv(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """A header line and one line a row; NULL is empty, maps and lists are JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.schema.names)
    for row in _rows(rows):
        writer.writerow([_cell(value) for value in row.values()])


def write_table(rows: pa.RecordBatchReader, out: TextIO) -> None:
    """Aligned columns for a person; long values are cut, so take csv or jsonl for a program."""
    names = rows.schema.names
    lines = [[_short(_cell(value)) for value in row.values()] for row in _rows(rows)]
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numeric = [any(is_it(field.type) for is_it in number) for field in rows.schema]
    widths = [max(len(line[i]) for line in [names, *lines]) for i in range(len(names))]

    def put(line: list[str]) -> None:
        cells = (text.rjust(width) if number else text.ljust(width)
                 for text, width, number in zip(line, widths, numeric, strict=True))  # fmt: skip
        out.write("  ".join(cells).rstrip() + "\n")

    put(names)
    put(["-" * width for width in widths])
    for line in lines:
        put(line)


def _rows(rows: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    types = [field.type for field in rows.schema]
    for batch in _batches(rows):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield dict(zip(rows.schema.names, map(_plain, values, types), strict=True))


def _batches(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches; DuckDB finds them while they are read, so it is here that a damaged file shows."""
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
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    # A client's name must not reach the terminal as its escape sequences.
    text = "".join(char if char.isprintable() else " " if char == "\n" else repr(char)[1:-1] for char in text)
    return text if len(text) <= COLUMN_WIDTH else text[: COLUMN_WIDTH - 1] + "…"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
