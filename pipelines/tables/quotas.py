"""Table `quotas`: the history of configured client quotas."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import history_table
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT
from kafka_telemetry_lake.udfs.rows import column

# Quota types by Kafka's config names (QuotaConfig). Brokers send no samples of the last two, which limit neither bytes
# nor thread time.
QUOTA_TYPES = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request",
    "controller_mutation_rate": "controller_mutation",
    "connection_creation_rate": "connection",
}

QUOTAS = history_table(
    "quotas",
    "One version of a configured client quota, for as long as it was in force.",
    keys=(
        column("user", pa.string(), f"user name, {DEFAULT}, or empty: not part of the entity"),
        column("client_id", pa.string(), f"client id, {DEFAULT}, or empty: not part of the entity"),
        column("ip", pa.string(), f"address, {DEFAULT}, or empty: not part of the entity"),
        column("quota_type", pa.string(), f"{', '.join(QUOTA_TYPES.values())}, or another of Kafka's config names"),
    ),
    values=(
        column(
            "quota_limit", pa.float64(), "per broker: bytes/s, percent of a thread's time, mutations/s, connections/s"
        ),
    ),
)
