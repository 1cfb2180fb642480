"""Reads the racks (broker.rack, often a cloud's zone) of a cluster's brokers from Kafka's Admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, admin_client


@dataclass(frozen=True)
class Brokers:
    """The brokers of a cluster that are alive: keys and values of table `brokers`."""

    cluster_id: str
    rows: tuple[dict[str, Any], ...]


def read_brokers(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> Brokers:
    """Read the brokers of a cluster. Needs no permission but to connect.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access.
    """
    with admin_client(java, bootstrap_servers, options) as client:
        cluster = client.describeCluster()
        rows = tuple({"broker_id": node.id(), "rack": node.rack()} for node in cluster.nodes().get().iterator())
        return Brokers(str(cluster.clusterId().get()), rows)
