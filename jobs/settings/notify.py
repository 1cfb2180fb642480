"""Settings of ``telemetry-lake notify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError


class NotifySettings(JobSettings):
    """Send changes of findings (table finding_changes) to whoever owns the client, once each."""

    lake: str
    """folder or URI of the lake"""
    notify: Path
    """YAML file of sinks, such as conf/notify.yml; ${NAME} in a sink is an environment variable"""
    follow: bool = False
    """go on sending until stopped [send what there is, and end]"""
    dry_run: bool = False
    """print what would be sent now, one JSON object per line; send and write nothing"""
    poll_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 5
    """with --follow: look for new changes every so many seconds"""
    give_up_seconds: Annotated[float, Field(ge=0, le=3600)] = 60
    """without --follow: try a sink that doesn't answer for so long; the next run sends what it misses"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
    log_format: Literal["text", "json"] = "text"
    """log lines as text or as one JSON object per line"""

    def check_together(self) -> None:
        if self.dry_run and self.follow:
            raise UsageError("dry_run, follow: set one of both")
