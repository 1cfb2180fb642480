"""Answers to an agent's SQL: JSON of bounded rows, size and time that says where it was cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.agents.relations_only import check_relations
from kafka_telemetry_lake.pipelines.findings.overrides import Overrides
from kafka_telemetry_lake.pipelines.query.empty_results import why_empty
from kafka_telemetry_lake.pipelines.query.formats import plain_rows
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable_json
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError

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
