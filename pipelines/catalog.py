"""What a lake answers by name: every table with its columns, whichever of them a lake has by now. Needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from pipelines.quotas import QUOTAS
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import QUOTA_SAMPLES, QUOTA_USAGE, TABLES

# Columns of each table, the partition included.
CATALOG: dict[str, pa.Schema] = {
    **{table.name: table.stored for table in (*TABLES, QUOTA_SAMPLES, QUOTA_USAGE)},
    **{table.name: table.schema for table in (SUBSCRIPTIONS, QUOTAS)},
}
