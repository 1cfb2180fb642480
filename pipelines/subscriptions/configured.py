"""Reads a cluster's client-metrics subscriptions (KIP-714) from Kafka's Admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaUnavailableError, admin_client
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.udfs.subscriptions.matching import (
    ALL_METRICS,
    INTERVAL_MS,
    METRICS,
    Subscription,
    from_config,
)


@dataclass(frozen=True)
class ConfiguredSubscriptions:
    """All subscriptions of a cluster at one moment, each name once."""

    cluster_id: str
    subscriptions: tuple[Subscription, ...]

    @property
    def problems(self) -> list[str]:
        """Subscriptions whose matching clients can't be determined, each with the reason."""
        return [each.problem for each in self.subscriptions if each.problem is not None]

    def all_for_none(self) -> ConfiguredSubscriptions:
        """The same, of brokers that read a subscription without metrics as one to all metrics, as WarpStream's do."""
        own = (each if each.metrics else replace(each, metrics=(ALL_METRICS,)) for each in self.subscriptions)
        return ConfiguredSubscriptions(self.cluster_id, tuple(own))

    def rows(self) -> list[dict[str, Any]]:
        """Keys and values of `SUBSCRIPTIONS`."""
        return [
            {
                "name": each.name,
                "metrics": list(each.metrics),
                "interval_ms": each.interval_ms,
                "match": list(each.match),
            }
            for each in self.subscriptions
        ]


def read_subscriptions(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> ConfiguredSubscriptions:
    """Read a cluster's client-metrics resources. Needs DescribeConfigs on the cluster.

    Raises:
        KafkaUnavailableError: unreachable, not authorized, or without support for client metrics.
        SubscriptionError: a resource can't be parsed.
    """
    jvm = java._jvm
    resource_of = kafka_package(jvm).common.config.ConfigResource
    with admin_client(java, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        resources = jvm.java.util.ArrayList()
        try:
            for listing in client.listClientMetricsResources().all().get().toArray():
                resources.add(resource_of(resource_of.Type.CLIENT_METRICS, listing.name()))
        except Py4JJavaError as error:
            if "UnsupportedVersionException" not in str(error.java_exception):
                raise
            raise KafkaUnavailableError(
                f"the brokers at {bootstrap_servers} don't support client metrics subscriptions, which need Kafka 3.7 "
                "or newer in KRaft mode: use a file instead (--subscriptions-file)"
            ) from None
        configs = client.describeConfigs(resources).all().get()
        subscriptions = []
        for resource in resources:
            entries = configs.get(resource).entries()
            config = {each.name(): each.value() for each in entries.toArray() if not each.isDefault()}
            if config:  # empty if deleted after it was listed
                subscriptions.append(from_config(resource.name(), config))
    return ConfiguredSubscriptions(cluster_id, tuple(subscriptions))


def create_subscription(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], subscription: Subscription
) -> None:
    """Create a client-metrics resource that matches all clients. Needs AlterConfigs on the cluster.

    Raises:
        KafkaUnavailableError: unreachable, not authorized, or without support for client metrics.
    """
    jvm = java._jvm
    kafka = kafka_package(jvm)
    admin, config = kafka.clients.admin, kafka.common.config
    changes, entries = jvm.java.util.HashMap(), jvm.java.util.ArrayList()
    for key, value in ((METRICS, ",".join(subscription.metrics)), (INTERVAL_MS, str(subscription.interval_ms))):
        entries.add(admin.AlterConfigOp(admin.ConfigEntry(key, value), admin.AlterConfigOp.OpType.SET))
    changes.put(config.ConfigResource(config.ConfigResource.Type.CLIENT_METRICS, subscription.name), entries)
    with admin_client(java, bootstrap_servers, options) as client:
        client.incrementalAlterConfigs(changes).all().get()
