"""Table `subscriptions`: the history of who asked for which metrics (KIP-714), kept by asking the cluster's Admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError

from pipelines.config_history import Changes, ConfigTable, check, record
from pipelines.kafka_admin import KafkaUnavailableError, admin_client
from udfs.rows import TEXT_LIST, TEXT_MAP, column
from udfs.subscriptions import Subscription, from_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SUBSCRIPTIONS = ConfigTable(
    "subscriptions",
    "One version of a client metrics subscription, as long as it was in force.",
    keys=(column("name", pa.string(), "name of the client-metrics resource"),),
    values=(
        column("metrics", TEXT_LIST, "prefixes of metric names asked for, as configured; empty: none; `*`: all"),
        column("interval_ms", pa.int32(), "push interval asked for, ms; more than five minutes takes no effect"),
        column("match", TEXT_MAP, "Java regular expression per client attribute, all must match; empty: all clients"),
    ),
)


@dataclass(frozen=True)
class ConfiguredSubscriptions:
    """All subscriptions of a cluster at one moment, each name once."""

    cluster_id: str
    subscriptions: tuple[Subscription, ...]

    @property
    def problems(self) -> list[str]:
        """Why it can't be said whom some of them match."""
        return [each.problem for each in self.subscriptions if each.problem is not None]

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


def read_subscriptions(
    spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]
) -> ConfiguredSubscriptions:
    """Ask a cluster for its client-metrics resources. Needs DescribeConfigs on the cluster.

    Raises:
        KafkaUnavailableError: unreachable, not allowed, or without client metrics.
        SubscriptionError: a resource that isn't understood.
    """
    jvm: Any = spark._jvm  # the session's gateway has no public name
    resource_of = jvm.org.apache.kafka.common.config.ConfigResource
    with admin_client(spark, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        resources = jvm.java.util.ArrayList()
        try:
            for listing in client.listClientMetricsResources().all().get().toArray():
                resources.add(resource_of(resource_of.Type.CLIENT_METRICS, listing.name()))
        except Py4JJavaError as error:
            if "UnsupportedVersionException" not in str(error.java_exception):
                raise
            raise KafkaUnavailableError(
                f"the brokers at {bootstrap_servers} have no client metrics subscriptions, which take Kafka 3.7 "
                "or newer in KRaft mode: keep them in a file instead (--subscriptions-file)"
            ) from None
        configs = client.describeConfigs(resources).all().get()
        found = []
        for resource in resources:
            entries = configs.get(resource).entries()
            config = {each.name(): each.value() for each in entries.toArray() if not each.isDefault()}
            if config:  # else it was deleted since it was listed
                found.append(from_config(resource.name(), config))
    return ConfiguredSubscriptions(cluster_id, tuple(found))


def check_subscriptions(lake: str, now: datetime, configured: ConfiguredSubscriptions) -> Changes:
    """What `sync_subscriptions` would write; the lake isn't changed."""
    return check(SUBSCRIPTIONS, lake, configured.cluster_id, configured.rows(), now)


def sync_subscriptions(lake: str, now: datetime, configured: ConfiguredSubscriptions) -> Changes:
    """Bring table `subscriptions` up to what is configured at `now`: one commit when something changed."""
    return record(SUBSCRIPTIONS, lake, configured.cluster_id, configured.rows(), now)
