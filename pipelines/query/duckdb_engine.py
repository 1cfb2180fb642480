"""DuckDB connections that only read the lake's files, with bounded memory and disk space."""

from __future__ import annotations

import re
import tempfile
import uuid
from pathlib import Path

import duckdb

from kafka_telemetry_lake.pipelines.query.duckdb_tables import local_folder
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

MEMORY = "2GB"
SPILL = "8GB"  # of temporary files, for data that doesn't fit into memory
READS = {duckdb.StatementType.SELECT, duckdb.StatementType.MULTI}  # the latter is PIVOT
FIRST_WORDS = {"select", "from", "with", "values", "table", "pivot", "unpivot", "describe", "desc", "show", "summarize"}
EXPLAIN = re.compile(r"explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)


class NotAQueryError(TelemetryLakeError):
    """There are several statements, or the statement doesn't only read; the message is one line."""


def connect(
    lake: str = "", closed: bool = True, memory: str = MEMORY, spill: str = SPILL, **settings: str
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database with time zone UTC.

    Args:
        lake: folder or `file:` URI whose files queries may read. With another kind of URI they may read no files.
        closed: deny access to all other files, to extensions and to settings. It can't be undone.
        memory, spill: limits of DuckDB's memory and of its temporary files, such as "2GB".
        settings: other settings of DuckDB.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        # DuckDB creates the folder when needed and removes it with the database.
        "temp_directory": str(Path(tempfile.gettempdir()) / f"telemetry-lake-{uuid.uuid4().hex}"),
        "python_enable_replacements": "false",  # a name in a query is never a variable of this program
        **settings,
    }
    connection = duckdb.connect(config=config)
    connection.execute(f"SET max_temp_directory_size = '{spill}'")  # has no effect in `config`
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # it would be printed among a command's output
    if closed:
        listed = ", ".join("'" + folder.replace("'", "''") + "'" for folder in _folders(lake))
        connection.execute(f"SET allowed_directories = [{listed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    return connection


def check_reads(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise ``NotAQueryError`` unless this is one statement that only reads.

    The connection has access to the lake's files, so without this check COPY could overwrite them.

    Raises:
        duckdb.Error: the text isn't SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise NotAQueryError(f"one query at a time: got {len(statements)} statements")
    kind = statements[0].type
    text = sql[min((start for start, _ in duckdb.tokenize(sql)), default=0) :]
    explained = EXPLAIN.match(text)
    if kind == duckdb.StatementType.EXPLAIN and explained:
        check_reads(connection, text[explained.end() :])
        return
    word = re.match(r"\w*", text)
    first = word[0].lower() if word else ""
    if kind not in READS or (kind == duckdb.StatementType.MULTI and first not in FIRST_WORDS):
        raise NotAQueryError(
            f"{first.upper() or kind.name} is not a query: only statements that read the lake are allowed (SELECT, "
            "FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, PIVOT, EXPLAIN); --allow-files allows the others"
        )


def _folders(lake: str) -> list[str]:
    folder = local_folder(lake) if lake else None
    return [] if folder is None else sorted({str(folder.absolute()), str(folder.resolve())})
