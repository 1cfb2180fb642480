"""Settings of ``telemetry-lake maintain``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from kafka_telemetry_lake.jobs.settings.shared import NamedLakeSettings, require_checkpoints


class MaintainSettings(NamedLakeSettings):
    """Drop rows past their retention, compact small files of past days, and delete files no table version uses."""

    checkpoints: str | None = None
    """folder or URI for checkpoints, and with --catalog for notes and locks [<lake>/_checkpoints]"""
    retention_days: Annotated[dict[str, PositiveInt], Field(default_factory=dict)]
    """table=days: keep rows landed in the last so many days (UTC); tables not named keep all rows"""
    target_mb: Annotated[int, Field(ge=1, le=4096)] = 128
    """target size of compacted files in MB"""
    vacuum_hours: Annotated[int, Field(ge=24)] = 168
    """delete files unused for so many hours; must be longer than any query and any downtime of the job"""
    snapshot_days: PositiveInt = 7
    """days to keep state snapshots, from which `replay` can start"""
    master: str = "local[*,3]"
    """with --catalog: Spark master; without effect under spark-submit and Databricks"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """with --catalog: memory of a local Spark driver"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""

    def check_together(self) -> None:
        self.check_place_of_lake()
        require_checkpoints(self.names, self.checkpoints)
