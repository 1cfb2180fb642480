"""Table `lost_records`: landing records, or rows of the lake's tables, that were gone before they were read."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined

EXPIRED, SKIPPED, DROPPED = "expired", "skipped", "dropped"  # why

LOST_RECORDS = defined("lost_records")
