"""Table `finding_changes`: when findings opened, changed and were resolved, and what people said about them."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined

FINDING_CHANGES = defined("finding_changes")
