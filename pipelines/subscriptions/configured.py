"""Reads a cluster's client-metrics subscriptions (KIP-714) from Kafka's Admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaRefusedError, admin_client
from kafka_telemetry_lake.pipelines.runtime.kafka_answers import answer_of, named
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.udfs.subscriptions.matching import (
    ALL_METRICS,
    INTERVAL_MS,
    METRICS,
    Subscription,
    as_configured,
)


@dataclass(frozen=True)
class ConfiguredSubscriptions:
    """All subscriptions of a cluster at one moment, each name once."""

    cluster_id: str
    subscriptions: tuple[Subscription, ...]
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """those that the brokers list without their configuration, each with the reason"""

    @property
    def problems(self) -> list[str]:
        """Subscriptions whose matching clients can't be determined, each with the reason."""
        problems = [each.problem for each in self.subscriptions if each.problem is not None]
        if self.unanswered:
            problems.append(f"subscriptions without an answer, which stay as they were: {named(self.unanswered)}")
        return problems

    def is_unknown(self, row: Mapping[str, Any]) -> bool:
        """Whether nothing is known about the subscription of a row of `SUBSCRIPTIONS`."""
        return row["name"] in self.unanswered

    def all_for_none(self) -> ConfiguredSubscriptions:
        """The subscriptions of brokers that read one without metrics as one to all metrics, as WarpStream's do."""
        own = (
            each if each.metrics or each.unread is not None else replace(each, metrics=(ALL_METRICS,))
            for each in self.subscriptions
        )
        return replace(self, subscriptions=tuple(own))

    def rows(self) -> list[dict[str, Any]]:
        """Keys and values of `SUBSCRIPTIONS`."""
        return [
            {
                "name": each.name,
                "metrics": list(each.metrics),
                "interval_ms": each.interval_ms,
                "match": list(each.match),
                "problem": each.unread,
            }
            for each in self.subscriptions
        ]


def read_subscriptions(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> ConfiguredSubscriptions:
    """Read a cluster's client-metrics resources. Needs DescribeConfigs on the cluster.

    One that can't be parsed has `unread`.

    Raises:
        KafkaUnavailableError: unreachable.
        KafkaRefusedError: not authorized, or without support for client metrics.
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
            raise KafkaRefusedError(
                f"the brokers at {bootstrap_servers} don't support client metrics subscriptions, which need Kafka 3.7 "
                "or newer in KRaft mode: use a file instead (--subscriptions-file)"
            ) from None
        futures = client.describeConfigs(resources).values()
        answers = {str(resource.name()): answer_of(futures[resource]) for resource in resources}
        configs = {name: _config(answer.value) for name, answer in answers.items() if answer.problem is None}
    # Empty if deleted after it was listed.
    subscriptions = tuple(as_configured(name, config) for name, config in configs.items() if config)
    unanswered = {name: answer.problem for name, answer in answers.items() if answer.problem is not None}
    return ConfiguredSubscriptions(cluster_id, subscriptions, unanswered)


def _config(config: Any) -> dict[str, str]:
    return {str(each.name()): each.value() for each in config.entries().toArray() if not each.isDefault()}


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
