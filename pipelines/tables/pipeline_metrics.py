"""Table `pipeline_metrics`: one row for each micro-batch of each stream."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined

PIPELINE_METRICS = defined("pipeline_metrics")
