"""What a lake answers by name: every table with its columns, whichever of them a lake has by now. Needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from pipelines.client_matches import CACHE_TABLES
from pipelines.consumer_group_offsets import GROUP_OFFSETS
from pipelines.consumer_groups import GROUP_MEMBERS, GROUP_STATES
from pipelines.lifecycle_tables import CLIENT_ALIASES, CLIENT_CHANGES
from pipelines.pipeline_metrics import PIPELINE_METRICS
from pipelines.quality_results import QUALITY_RESULTS
from pipelines.quotas import QUOTAS
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import QUOTA_REPORTS, QUOTA_SAMPLES, QUOTA_USAGE, TABLES

# Columns of each table, the partition included.
CATALOG: dict[str, pa.Schema] = {
    **{table.name: table.stored for table in (*TABLES, PIPELINE_METRICS, QUALITY_RESULTS, CLIENT_CHANGES)},
    **{table.name: table.stored for table in (QUOTA_SAMPLES, QUOTA_REPORTS, QUOTA_USAGE)},
    **{table.name: table.schema for table in (SUBSCRIPTIONS, QUOTAS, CLIENT_ALIASES, *CACHE_TABLES)},
    **{table.name: table.schema for table in (GROUP_STATES, GROUP_MEMBERS, GROUP_OFFSETS)},
}
