"""Settings of ``telemetry-lake mcp``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError


class McpSettings(JobSettings):
    """Answer agents' questions about a lake over stdin and stdout, by the Model Context Protocol. It only reads."""

    lake: str
    """folder or URI of the lake"""
    max_rows: Annotated[int, Field(ge=1, le=10_000)] = 200
    """most rows of an answer; one that has more says so"""
    max_characters: Annotated[int, Field(ge=1_000, le=10_000_000)] = 50_000
    """most characters of an answer's rows"""
    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """longest time of a query, s"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    memory: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "1GB"
    """memory limit of a query; one runs at a time"""
    spill: Annotated[str, Field(pattern=r"^\d+[MG]B$")] = "2GB"
    """disk limit for a query's temporary files, in the system's temporary folder"""

    def check_together(self) -> None:
        if sys.stdin.isatty():
            raise UsageError("mcp: a program speaks to this command, not a person; docs/agents.md says how to start it")
