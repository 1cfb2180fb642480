"""Settings of ``telemetry-lake findings``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kafka_telemetry_lake.jobs.settings import JobSettings, UsageError


class FindingsSettings(JobSettings):
    """List the rules of the findings: what they look for, and which client libraries they can judge."""

    list_: Annotated[bool, Field(alias="list")] = False
    """list the rules: id, severity, title and libraries"""
    format: Literal["text", "json"] = "text"
    """of the list: a line for each rule, or one JSON array"""

    def check_together(self) -> None:
        if not self.list_:
            raise UsageError("list: needed: telemetry-lake findings --list")
