"""Settings of ``telemetry-lake query``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings import JobSettings


class QuerySettings(JobSettings):
    """Run SQL over the lake's tables and views with DuckDB: telemetry-lake query --lake DIR "SELECT ..." """

    sql: CliPositionalArg[str]
    """the query, in DuckDB's dialect"""
    lake: str
    """folder or URI of the lake"""
    format: Literal["table", "csv", "jsonl"] = "table"
    """output format; jsonl prints one JSON object per line"""
    allow_files: bool = False
    """let the query read, write and attach any file this user can, and load DuckDB extensions"""
    memory: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "2GB"
    """memory limit of the query"""
    spill: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "8GB"
    """disk limit for temporary files, in the system's temporary folder, when the memory is exceeded"""
