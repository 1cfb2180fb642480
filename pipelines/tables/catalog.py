"""All tables that a lake can have, with their columns. Needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.costs import BROKERS, PRICES
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_LAG_SAMPLES, GROUP_MEMBERS, GROUP_OFFSETS, GROUP_STATES
from kafka_telemetry_lake.pipelines.tables.lifecycle import APPLICATION_RULES, CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.operator import (
    BROKER_CONNECTIONS,
    QUOTA_REPORTS,
    QUOTA_SAMPLES,
    QUOTA_USAGE,
    TABLES,
)
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.subscriptions import CACHE_TABLES, SUBSCRIPTIONS

LAKE_TABLES = (
    *TABLES, LOST_RECORDS, PIPELINE_METRICS, QUALITY_RESULTS, CLIENT_CHANGES, FINDING_CHANGES, BROKER_CONNECTIONS,
    QUOTA_SAMPLES, QUOTA_REPORTS, QUOTA_USAGE, SUBSCRIPTIONS, QUOTAS, CLIENT_ALIASES, *CACHE_TABLES, GROUP_STATES,
    GROUP_MEMBERS, GROUP_OFFSETS, GROUP_LAG_SAMPLES, APPLICATION_RULES, PRICES, BROKERS,
)  # fmt: skip
# Columns of each table, including the partition, and what a row of it is.
CATALOG: dict[str, pa.Schema] = {table.name: table.stored for table in LAKE_TABLES}
MEANINGS = {table.name: table.meaning for table in LAKE_TABLES}
