"""History of the configured client quotas: table `quotas`, kept by asking the cluster's Admin (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.config_history import Changes, ConfigTable, check, record
from pipelines.kafka_admin import admin_client
from udfs.quota_precedence import DEFAULT
from udfs.rows import column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Quota types by Kafka's config names (QuotaConfig). The last two limit no bytes and no thread time of a client's
# requests: brokers give no samples of them.
QUOTA_TYPES = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request",
    "controller_mutation_rate": "controller_mutation",
    "connection_creation_rate": "connection",
}
_ENTITY_COLUMNS = {"user": "user", "client-id": "client_id", "ip": "ip"}


QUOTAS = ConfigTable(
    "quotas",
    "One version of a configured client quota, as long as it was in force.",
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


@dataclass(frozen=True)
class ConfiguredQuotas:
    """All client quotas of a cluster at one moment, as rows of the keys and values of `QUOTAS`."""

    cluster_id: str
    quotas: tuple[dict[str, Any], ...]


def configured_quotas(entities: Iterable[tuple[Mapping[str, str | None], Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Entries of ``Admin.describeClientQuotas`` as rows; an entity of a type that isn't known here gives none.

    Each entry has the parts of its entity by type, with None for the default entity, and its limits by config name.
    """
    rows = []
    for entity, limits in entities:
        if not entity.keys() <= _ENTITY_COLUMNS.keys():
            continue
        parts = dict.fromkeys(_ENTITY_COLUMNS.values(), "")
        parts |= {_ENTITY_COLUMNS[kind]: DEFAULT if name is None else name for kind, name in entity.items()}
        rows += [
            {**parts, "quota_type": QUOTA_TYPES.get(key, key), "quota_limit": limit} for key, limit in limits.items()
        ]
    return rows


def read_quotas(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> ConfiguredQuotas:
    """Ask a cluster for its client quotas. Needs DescribeConfigs on the cluster. Raises ``KafkaUnavailableError``."""
    with admin_client(spark, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        everything = spark._jvm.org.apache.kafka.common.quota.ClientQuotaFilter.all()  # type: ignore[union-attr]
        found = client.describeClientQuotas(everything).entities().get()
        entities = [(dict(entry.getKey().entries()), dict(entry.getValue())) for entry in found.entrySet()]
    return ConfiguredQuotas(cluster_id, tuple(configured_quotas(entities)))


def check_quotas(lake: str, now: datetime, configured: ConfiguredQuotas) -> Changes:
    """What `sync_quotas` would write; the lake isn't changed."""
    return check(QUOTAS, lake, configured.cluster_id, configured.quotas, now)


def sync_quotas(lake: str, now: datetime, configured: ConfiguredQuotas) -> Changes:
    """Bring table `quotas` up to what is configured at `now`: one commit when something changed."""
    return record(QUOTAS, lake, configured.cluster_id, configured.quotas, now)
