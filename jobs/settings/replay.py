"""Settings of ``telemetry-lake replay``."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from kafka_telemetry_lake.jobs.settings.shared import LimitSettings


def _from(value: str) -> str:
    if value in ("earliest", "quarantine") or re.fullmatch(r"\d+:\d+", value):
        return value
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(
            "allowed: earliest, quarantine, PARTITION:OFFSET, or a time such as 2026-11-21T08:00Z"
        ) from error
    return value


class ReplaySettings(LimitSettings):
    """Decode and convert stored pushes again, after a fix, and swap the new rows in, with one commit per table."""

    lake: str
    """folder or URI of the lake"""
    checkpoints: str | None = None
    """folder or URI for checkpoints [<lake>/_checkpoints]"""
    from_: Annotated[str, AfterValidator(_from), Field(alias="from")] = "earliest"
    """replay pushes from here on: earliest (all), quarantine (the first quarantined push), PARTITION:OFFSET, or a landing time; starts at the newest state snapshot before it"""  # noqa: E501  # the help of the flag, in one line
    rebuild_state: bool = False
    """only rebuild the state of damaged shards from table pushes, so that ingest can resume; changes no rows"""
    master: str = "local[*,3]"
    """Spark master; without effect under spark-submit and Databricks"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """memory of the local Spark driver"""
    batch_mb: PositiveInt = 128
    """megabytes of stored pushes to process at a time"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
