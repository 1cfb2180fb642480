"""Settings of ``telemetry-lake iceberg``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError


class IcebergSettings(JobSettings):
    """Let Iceberg readers read a lake: Iceberg metadata over the same Parquet files, now or after each commit."""

    lake: str
    """folder or URI of the lake"""
    to: str | None = None
    """folder or URI for the Iceberg tables' metadata [<lake>/_iceberg]"""
    follow: bool = False
    """go on until stopped, with a snapshot for what each look finds; without it, once"""
    refresh_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 10
    """follow: look at the lake every so many seconds"""
    keep_snapshots: Annotated[int, Field(ge=1, le=1000)] = 20
    """most snapshots of a table; those before a merge, replay, retention or erasure go at once, as their files do"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
    log_format: Literal["text", "json"] = "text"
    """log lines as text or as one JSON object per line"""

    def check_together(self) -> None:
        if "refresh_seconds" in self.model_fields_set and not self.follow:
            raise UsageError("refresh_seconds: needs --follow")
