"""Settings of ``telemetry-lake reshard``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings

MOST_SHARDS = 10_000  # each is a task and a file of every batch


class ReshardSettings(JobSettings):
    """Distribute the state of a lake's clients to another number of shards, so that ingest uses as many cores."""

    lake: str
    """folder or URI of the lake"""
    shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)]
    """number of shards from now on: the cores that ingest has"""
    checkpoints: str | None = None
    """folder or URI for checkpoints [<lake>/_checkpoints]"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
