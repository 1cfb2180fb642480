"""``telemetry-lake query``: runs SQL over a lake, without Spark. Stdout gets results only."""

from __future__ import annotations

import contextlib
import os
import sys

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.query import QuerySettings
from kafka_telemetry_lake.jobs.support.query_prompt import ask_repeatedly
from kafka_telemetry_lake.jobs.support.signals import leave_signals
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.query.formats import BINARY_FORMATS, TEXT_FORMATS
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.query.query_errors import why_empty

FOR_PEOPLE = ("table", "vertical")


def run_job(settings: QuerySettings) -> int:
    """Print the query's result, or those of all queries that are typed at the prompt."""
    if settings.format in BINARY_FORMATS and sys.stdout.isatty():
        raise UsageError(f"format: {settings.format} is binary: redirect it, such as > rows.{settings.format}")
    with contextlib.suppress(BrokenPipeError):  # the reader, such as `head`, closed the pipe
        if settings.sql is None and settings.file is None and sys.stdin.isatty() and sys.stdout.isatty():
            leave_signals()  # at the prompt Ctrl-C ends a query
            ask_repeatedly(settings.lake, lambda sql: answer(settings, sql))
        else:
            answer(settings, _text(settings))
    return 0


def answer(settings: QuerySettings, sql: str) -> None:
    """Print the result of a query; for people also the number of rows, on stderr, where warnings go too.

    Raises:
        QueryError: see `run_query`.
    """
    overrides = read_overrides(settings.rules)
    rows = run_query(
        settings.lake, sql, settings.allow_files, settings.memory, settings.spill, overrides, _warn, settings.at_moment
    )
    if settings.format in BINARY_FORMATS:
        BINARY_FORMATS[settings.format](rows, sys.stdout.buffer)
        sys.stdout.flush()
        return
    count = TEXT_FORMATS[settings.format](rows, sys.stdout)
    sys.stdout.flush()
    if settings.format in FOR_PEOPLE and rows.schema.names:
        reason = None if count else why_empty(settings.lake, sql)
        print(f"{count:,} {'row' if count == 1 else 'rows'}{f': {reason}' if reason else ''}", file=sys.stderr)


def _warn(sentence: str) -> None:
    print(f"warning: {printable(sentence)}", file=sys.stderr)


def _text(settings: QuerySettings) -> str:
    """The query: the argument, or the content of the file or of stdin."""
    where = settings.file or ("stdin" if settings.sql is None else "the query")
    try:
        if settings.sql is not None:
            content = os.fsencode(settings.sql)  # bytes that the locale's encoding lacks, such as UTF-8 in `LC_ALL=C`
        else:
            content = sys.stdin.buffer.read() if settings.file is None else settings.file.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"file: {where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not text in UTF-8") from error
    if settings.sql is None and not text.strip():
        raise UsageError(f'{where} has no query: give it as an argument ("SELECT ..."), by --file, or on stdin')
    return text
