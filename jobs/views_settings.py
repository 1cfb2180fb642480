"""Settings of ``telemetry-lake views``."""

from __future__ import annotations

from pathlib import Path

from kafka_telemetry_lake.jobs.settings import JobSettings


class ViewsSettings(JobSettings):
    """Create the views over the lake's tables in a database of Spark's catalog; without --lake list the views."""

    lake: str | None = None
    """folder or URI of the lake; without it the views are listed with the questions they answer"""
    database: str = "client_telemetry"
    """database for tables and views; created if missing"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    driver_memory: str = "1g"
    """memory of a local Spark driver"""
