"""Answers to an agent's SQL: JSON of bounded rows, size and time that says where it was cut.

Queries that name files or functions that read them are refused, so that agents read tables and views only.
`check_reads` and DuckDB's closed configuration already keep every query from writing, and from files outside the lake.
The lake's own files stay readable there, with rows that retention has dropped and states of clients; not here.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.query.duckdb_engine import NotAQueryError
from kafka_telemetry_lake.pipelines.query.formats import plain_rows
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable_json
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError, why_empty

# Table functions that read nothing but their arguments. `query` and `query_table` would run text made by the query.
HARMLESS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})
LIKE_A_PATH = re.compile(r"[./\\:*?\[~]")  # DuckDB opens a file where no table has the name: `FROM 'x.parquet'`


def check_relations(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise ``NotAQueryError`` unless all that a SELECT reads are tables, views and its own subqueries.

    It looks at the tree that DuckDB parsed, so comments, quotes and nesting hide nothing.

    Raises:
        duckdb.Error: the text isn't SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise NotAQueryError(f"one query at a time: got {len(statements)} statements")
    rows = connection.execute("SELECT json_serialize_sql(?)", [statements[0].query]).fetchall()
    try:
        tree = json.loads(rows[0][0])
    except RecursionError as error:
        raise NotAQueryError("the query is nested too deeply") from error
    if tree["error"]:
        raise NotAQueryError("only SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW and SUMMARIZE are answered here")
    for node in _nodes(tree):
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in HARMLESS:
                raise NotAQueryError(f"{name}() is not allowed here: read tables and views by their names")
        elif kind in ("BASE_TABLE", "SHOW_REF") and LIKE_A_PATH.search(str(node.get("table_name", ""))):
            raise NotAQueryError(f"{node['table_name']} is not the name of a table or view: files are not read here")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON value. A loop: the tree is as deep as the query's author likes."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


LONGEST_QUERY = 50_000  # characters
MOST_NESTED = 100  # parentheses; 10,000 that aren't closed take DuckDB's parser a minute, and nothing interrupts it
LONGEST_VALUE = 2_000  # characters of a value in an answer; payloads have megabytes
AGAIN_S = 0.05  # an interrupt that comes between two steps of DuckDB is lost, so it is repeated


@dataclass(frozen=True)
class AnswerLimits:
    """What one answer may take: rows, characters of JSON, seconds, and DuckDB's memory and temporary files."""

    rows: int = 200
    characters: int = 50_000
    seconds: float = 60
    memory: str = "1GB"
    spill: str = "2GB"


def answer(lake: str, sql: str, limits: AnswerLimits, overrides: Overrides = ()) -> dict[str, Any]:
    """Answer one query: columns with their Arrow types, rows as lists, and what was left out.

    Returns:
        ``columns``, ``rows``, ``truncated`` (None: the answer is whole); ``note`` if rows are missing for a reason that
        the lake shows, or the query adds up levels.

    Raises:
        QueryError: it isn't a query of the lake's tables and views, it fails, or it takes longer than allowed.
    """
    _check_text(sql)
    notes: list[str] = []
    clock = _Clock()

    def check(connection: duckdb.DuckDBPyConnection, text: str) -> None:
        clock.connection = connection
        check_relations(connection, text)

    with clock.limit(limits.seconds):
        try:
            rows = run_query(
                lake, sql, memory=limits.memory, spill=limits.spill, overrides=overrides, warn=notes.append, check=check
            )
            columns = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
            taken, truncated = _taken(rows, limits)
        except QueryError as error:
            if clock.is_over:
                raise QueryError(f"stopped after {limits.seconds:g} s: read fewer days or rows") from error
            raise
    result: dict[str, Any] = {"columns": columns, "rows": taken, "truncated": truncated}
    if not taken and truncated is None and (reason := why_empty(lake, sql)):
        notes.append(reason)
    return result | ({"note": "; ".join(notes)} if notes else {})


def _check_text(sql: str) -> None:
    """Refuse what DuckDB's parser, which no time limit ends, would take long for."""
    if len(sql) > LONGEST_QUERY:
        raise QueryError(f"the query has {len(sql):,} characters; allowed: {LONGEST_QUERY:,}")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError("the query is not text in Unicode") from error
    depths = accumulate({"(": 1, ")": -1}.get(char, 0) for char in sql)
    if max(depths, default=0) > MOST_NESTED:
        raise QueryError(f"the query has more than {MOST_NESTED} nested parentheses")


def _taken(rows: pa.RecordBatchReader, limits: AnswerLimits) -> tuple[list[list[Any]], str | None]:
    """The rows that fit, and a sentence about those that don't."""
    taken: list[list[Any]] = []
    size = 0
    for row in plain_rows(rows):
        if len(taken) == limits.rows:
            return taken, f"only the first {limits.rows:,} rows: aggregate, filter or LIMIT the query"
        values = [_shortened(value) for value in row]
        size += len(printable_json(values))
        if size > limits.characters:
            least = "no row" if not taken else f"only the first {len(taken):,} rows"
            return taken, f"{least}: more than {limits.characters:,} characters: select fewer columns"
        taken.append(values)
    return taken, None


def _shortened(value: Any) -> Any:
    """A value whose text isn't longer than `LONGEST_VALUE`."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}… ({len(value):,} characters)"
    if isinstance(value, list | dict) and len(text := printable_json(value)) > LONGEST_VALUE:
        return f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"
    return value


class _Clock:
    """Interrupts a query that takes too long."""

    def __init__(self) -> None:
        self.connection: duckdb.DuckDBPyConnection | None = None
        self.is_over = False

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            if done.wait(seconds):
                return
            self.is_over = True
            while not done.wait(AGAIN_S):
                if self.connection is not None:
                    self.connection.interrupt()

        watcher = threading.Thread(target=watch, name="time limit of a query", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
