"""Polls of a cluster's configuration, recorded as `telemetry-lake sync` does."""

from __future__ import annotations

from datetime import datetime

from kafka_telemetry_lake.pipelines.lake.config_history import ConfigChanges, record
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS


def record_subscriptions(lake: str, now: datetime, configured: ConfiguredSubscriptions) -> ConfigChanges:
    """Record a poll of the subscriptions."""
    return record(SUBSCRIPTIONS, lake, configured.cluster_id, configured.rows(), now)


def record_quotas(lake: str, now: datetime, configured: ConfiguredQuotas) -> ConfigChanges:
    """Record a poll of the quotas."""
    return record(QUOTAS, lake, configured.cluster_id, configured.quotas, now)
