"""Settings of ``telemetry-lake compare``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings
from kafka_telemetry_lake.jobs.settings.shared import Time


class CompareSettings(JobSettings):
    """Say what changed of an application at a moment: its measures after and before it, beside their noise."""

    lake: str
    """folder or URI of the lake"""
    application: Annotated[str, Field(min_length=1)]
    """name of the application, as `telemetry-lake sync --aliases-file` stores it"""
    at: Time
    """the moment, such as 2026-11-30T08:00Z"""
    window: Literal["15m", "1h", "6h", "24h"] = "1h"
    """how much before and after it is compared"""
    show: Literal["changed", "all"] = "changed"
    """those that changed, appeared or vanished and those of which it can't be said; or all measures"""
    format: Literal["table", "vertical", "csv", "jsonl"] = "table"
    """output format, as of query; table leaves out some columns"""
