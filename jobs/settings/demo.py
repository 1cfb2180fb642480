"""Settings of ``telemetry-lake demo``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError


class DemoSettings(JobSettings):
    """Start a broker with a receiver and real clients, ingest what they push, and print a report."""

    lake: str = "demo-lake"
    """folder of the demo's lake; an existing lake is added to"""
    files: bool = False
    """start no broker: ingest captured pushes of real clients (all codecs, both temporalities, some damaged)"""
    proxy: bool = False
    """start a broker without the plugin, and before it a proxy whose filter receives; only in a checkout"""
    seconds: Annotated[float, Field(ge=3, le=600)] = 90
    """longest time that the clients run; a killed one counts as silent after 60 s, and then the demo ends"""
    franz_go: bool = False
    """add a producer of franz-go, which Go compiles first: half a minute on two cores"""
    driver_memory: str = "1g"
    """memory of the local Spark driver"""

    def check_together(self) -> None:
        if self.files and self.proxy:
            raise UsageError("proxy: not together with --files, which starts no broker")
