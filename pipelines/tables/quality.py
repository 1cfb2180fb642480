"""Table `quality_results`: results of the data quality checks, and the versions that they covered."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined

QUALITY_RESULTS = defined("quality_results")
