"""Reads a cluster's client quotas from Kafka's Admin (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, admin_client
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTA_TYPES
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT

_ENTITY_COLUMNS = {"user": "user", "client-id": "client_id", "ip": "ip"}


@dataclass(frozen=True)
class ConfiguredQuotas:
    """All client quotas of a cluster at one moment, as rows of the keys and values of `QUOTAS`."""

    cluster_id: str
    quotas: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = ()


def configured_quotas(entities: Iterable[tuple[Mapping[str, str | None], Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Convert entries of ``Admin.describeClientQuotas`` to rows; entities of unknown types give none.

    An entry has the parts of its entity by type, with None for the default entity, and its limits by config name.
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


def _unknown_types(entities: Iterable[tuple[Mapping[str, str | None], Mapping[str, float]]]) -> Iterator[str]:
    """A message about entities of types that aren't known here, if there are any."""
    unknown = [entity for entity, _ in entities if not entity.keys() <= _ENTITY_COLUMNS.keys()]
    types = sorted({kind for entity in unknown for kind in entity if kind not in _ENTITY_COLUMNS})
    if unknown:
        yield f"quotas: {len(unknown)} of entities with types that aren't known here are left out: {', '.join(types)}"


def read_quotas(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> ConfiguredQuotas:
    """Read a cluster's client quotas. Needs DescribeConfigs on the cluster. Raises ``KafkaUnavailableError``."""
    with admin_client(java, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        everything = kafka_package(java._jvm).common.quota.ClientQuotaFilter.all()
        quotas = client.describeClientQuotas(everything).entities().get()
        entities = [(dict(entry.getKey().entries()), dict(entry.getValue())) for entry in quotas.entrySet()]
    return ConfiguredQuotas(cluster_id, tuple(configured_quotas(entities)), tuple(_unknown_types(entities)))
