"""``telemetry-lake query``: runs SQL over a lake, without Spark. Stdout gets results only."""

from __future__ import annotations

import os
import sys

from kafka_telemetry_lake.jobs.query_settings import QuerySettings
from kafka_telemetry_lake.pipelines.query.lake_query import run_query, write_csv, write_jsonl, write_table


def run_job(settings: QuerySettings) -> int:
    """Print the query's result."""
    write = {"table": write_table, "csv": write_csv, "jsonl": write_jsonl}
    try:
        rows = run_query(settings.lake, settings.sql, settings.allow_files, settings.memory, settings.spill)
        write[settings.format](rows, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
