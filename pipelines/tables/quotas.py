"""Table `quotas`: the history of configured client quotas."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined_history

# Quota types by Kafka's config names (QuotaConfig). Brokers send no samples of the last two, which limit neither bytes
# nor thread time.
QUOTA_TYPES = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request",
    "controller_mutation_rate": "controller_mutation",
    "connection_creation_rate": "connection",
}

QUOTAS = defined_history("quotas")
