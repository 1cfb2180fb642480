"""Settings of ``telemetry-lake views``."""

from __future__ import annotations

from pathlib import Path

from kafka_telemetry_lake.jobs.settings.shared import NamedLakeSettings


class ViewsSettings(NamedLakeSettings):
    """Create the views over the lake's tables in a database of Spark's catalog; without a lake list the views."""

    database: str = "client_telemetry"
    """database for tables and views of a folder; created if missing"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    driver_memory: str = "1g"
    """memory of a local Spark driver"""

    def check_together(self) -> None:
        if (self.lake, self.catalog, self.schema_) != (None, None, None):
            self.check_place_of_lake()
