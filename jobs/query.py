"""``telemetry-lake query``: SQL over a lake, without Spark. Only results go to stdout.

Exit codes: 0 answered, 1 the query failed, 2 can't run as asked.
"""

from __future__ import annotations

import os
import sys
from typing import Literal

from pydantic_settings import CliPositionalArg

from jobs.settings import JobSettings, UsageError, fail, parse


class QuerySettings(JobSettings):
    """Answer SQL over the lake's tables with DuckDB: telemetry-lake query --lake DIR "SELECT ..." """

    sql: CliPositionalArg[str]
    """the query, in DuckDB's dialect"""
    lake: str
    """folder or URI of the lake"""
    format: Literal["table", "csv", "jsonl"] = "table"
    """table for people, csv or jsonl (one object a line) for programs"""


def main(argv: list[str] | None = None) -> int:
    """Run the query; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(QuerySettings, sys.argv[1:] if argv is None else argv, "telemetry-lake query")
    except UsageError as error:
        return fail(str(error), 2)
    from pipelines import lake_query  # noqa: PLC0415  # DuckDB loads after the flags were found right

    write = {"table": lake_query.write_table, "csv": lake_query.write_csv, "jsonl": lake_query.write_jsonl}
    try:
        write[settings.format](lake_query.run_query(settings.lake, settings.sql), sys.stdout)
        sys.stdout.flush()
    except lake_query.QueryError as error:
        return fail(str(error), 1)
    except BrokenPipeError:  # the reader, such as `head`, had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
