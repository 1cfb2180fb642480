"""Settings of ``telemetry-lake query``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError


class QuerySettings(JobSettings):
    """Run SQL over the lake's tables and views with DuckDB: telemetry-lake query --lake DIR "SELECT ..." """

    sql: CliPositionalArg[str | None] = None
    """the query, in DuckDB's dialect; without it and --file it is read from stdin, on a terminal at a prompt"""
    lake: str
    """folder or URI of the lake"""
    file: Path | None = None
    """file with the query"""
    format: Literal["table", "vertical", "csv", "jsonl", "parquet", "arrow"] = "table"
    """output format: table and vertical (a line per column) round for people; jsonl is one JSON object per line"""
    allow_files: bool = False
    """let the query read, write and attach any file this user can, and load DuckDB extensions"""
    at_moment: Annotated[int, Field(ge=1)] | None = None
    """number of an earlier moment, by relation `moments`, whose tables are read; without it, the newest"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    memory: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "2GB"
    """memory limit of the query"""
    spill: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "8GB"
    """disk limit for temporary files, in the system's temporary folder, when the memory is exceeded"""

    def check_together(self) -> None:
        if self.sql is not None and self.file is not None:
            raise UsageError("file: give the query as an argument or by --file, not both")
