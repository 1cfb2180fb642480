"""Settings of ``telemetry-lake quality``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings


class QualitySettings(JobSettings):
    """Check rows added since the last check: nothing lost or duplicated, tables consistent, values known."""

    lake: str
    """folder or URI of the lake"""
    tables: Annotated[list[str], Field(default_factory=list)]
    """tables to check [all with rules]"""
    full: bool = False
    """check all rows, not only those added since the last check"""
    stale_hours: Annotated[float, Field(gt=0)] | None = None
    """fail if the newest push landed more than so many hours ago [off]"""
    docs: Path | None = None
    """folder for an HTML report (index.html) with Great Expectations' Data Docs below it [off]"""
