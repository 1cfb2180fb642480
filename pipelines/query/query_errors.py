"""What a query says besides its rows: an error in one line, with what to write instead, or why there are no rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.pipelines.sql_text import sql_yaml
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.nearest import did_you_mean

LONGEST = 300  # characters
# What DuckDB adds to a message: the query's text, all variants of a function, names of its own system tables.
ADDED = re.compile(r"\s*(?:\bLINE \d+:|\bCandidate (?:functions|bindings):|\bDid you mean \").*", re.DOTALL)
KIND = re.compile(r"^(?:Binder|Catalog|Conversion|Parser|Invalid Input) Error: ")
RELATION = re.compile(r"Table with name \"?(.+?)\"? does not exist")
COLUMN = re.compile(r'Referenced column "(.+?)" (?:was )?not found|does not have a column named "(.+?)"')
# Errors of values that the query converts, in contrast to those of files that can't be read.
OF_VALUES = re.compile(r"\b(?:Conversion|Out of Range|Invalid Input|Interrupt|Binder) Error: .*", re.DOTALL)


class QueryError(TelemetryLakeError):
    """The query failed; the message is one line for the user."""


def one_line(error: Exception) -> str:
    """The text of an error without line breaks."""
    return " ".join(str(error).split())


def explained(error: duckdb.Error, tables: Sequence[str], others: Iterable[str], columns: Iterable[str]) -> str:
    """What is wrong with a query, in one line.

    Args:
        tables: names of the lake's tables.
        others: names of views, and of tables that the lake doesn't have yet.
        columns: columns of the tables and views that the query names; used only if one of them may be meant.
    """
    text = str(error)
    if match := RELATION.search(text):
        if "/" in match[1] or match[1].endswith((".csv", ".json", ".parquet")):
            return f"{match[1]} is not a table; --allow-files lets a query read files"
        known = f" (this lake's tables: {', '.join(tables)}; SHOW TABLES lists the views too)"
        return f"no table or view is called {match[1]}{did_you_mean(match[1], [*tables, *others]) or known}"
    if match := COLUMN.search(text):
        return f"no column is called {match[1] or match[2]}{did_you_mean(match[1] or match[2], columns)}"
    message = short(text)
    if isinstance(error, duckdb.PermissionException):
        message += "; --allow-files allows files outside the lake"
    elif isinstance(error, duckdb.OutOfMemoryException):
        message = f"the query needs more than --memory and --spill allow: {message}"
    elif isinstance(error, duckdb.IOException) and "No files" in message:
        message += ": maintenance has just deleted it (repeat the query), or somebody did manually"
    return message


def of_reading(error: Exception) -> QueryError:
    """The error of rows that couldn't be computed or read, while they were fetched."""
    if match := OF_VALUES.search(str(error)):
        return QueryError(short(match[0]))
    return QueryError(f"a file of the lake can't be read: {short(str(error))}")


def short(text: str) -> str:
    """A message of DuckDB in one line, without what it repeats of the query."""
    line = " ".join(KIND.sub("", ADDED.sub("", text)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def why_empty(lake: str, sql: str) -> str | None:
    """The reason why a query has no rows; None: the tables that it names have rows, so its conditions exclude them."""
    known = sql_yaml("query", "empty.yml")
    tables, views = known["tables"], known["views"]
    named = list(dict.fromkeys(word.lower() for word in re.findall(r"\w+", sql)))
    asked = [name for name in named if name in tables or name in views]
    for name in asked:
        for table in views.get(name, (name,)):
            missing, empty = tables[table]
            if (rows := _rows(lake, table)) is None:
                return str(missing)
            if rows == 0:
                return str(empty)
    whole = len(asked) == 1 and not re.search(r"\b(where|having|limit|join)\b", sql, re.IGNORECASE)
    nothing: str | None = known["nothing"].get(asked[0]) if whole else None
    return nothing


def _rows(lake: str, table: str) -> int | None:
    """Rows of a table as its log has them; None: the lake has no such table."""
    try:
        counts = DeltaTable(table_uri(lake, table)).get_add_actions()["num_records"].to_pylist()
    except TableNotFoundError:
        return None
    except DeltaError:
        return 1
    return sum(1 if count is None else count for count in counts)
