"""Tables of consumer groups."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined, defined_history

GROUP_STATES = defined_history("group_states")
GROUP_MEMBERS = defined_history("group_members")
GROUP_OFFSETS = defined("group_offsets")
GROUP_LAG_SAMPLES = defined("group_lag_samples")
