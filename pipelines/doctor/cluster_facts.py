"""Asks a cluster what the checks need to know: brokers, topics, rights and the receivers' last statuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import (
    HasJvm,
    admin_client,
    topic_consumer,
)
from kafka_telemetry_lake.pipelines.runtime.kafka_answers import answer_of
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import Advertised, advertised
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import TopicDescription, describe_topics

STATUSES = 200  # records at the end of each partition of the status topic
POLL_MS, POLLS = 500, 8


@dataclass(frozen=True)
class BrokerFacts:
    """A broker as the clients see it. Without `advertised` it didn't answer, for the reason in `problem`."""

    node_id: int
    address: str
    advertised: Advertised | None = None
    problem: str = ""
    ms: float = 0.0


@dataclass(frozen=True)
class TopicFacts:
    """A topic. `config` is empty if this user may not see it; `newest_ms` is None for an empty topic."""

    partitions: int
    replication_factor: int
    without_leader: int
    under_replicated: int
    config: Mapping[str, str]
    operations: frozenset[str]
    newest_ms: int | None


@dataclass(frozen=True)
class ReceiverStatus:
    """The last status of a broker's receiver."""

    time_ms: int
    received: int
    landed: int
    dropped: Mapping[str, int]
    queue_depth: int


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster at one moment.

    A topic that isn't in `topics` doesn't exist, or this user may not see it, or it is in `undescribed`: the brokers
    list it, and don't describe it, for the reason given.
    """

    cluster_id: str
    operations: frozenset[str]
    brokers: Sequence[BrokerFacts]
    topics: Mapping[str, TopicFacts]
    undescribed: Mapping[str, str] = field(default_factory=dict)


def read_cluster(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topics: Iterable[str]
) -> ClusterFacts:
    """Read the facts of a cluster and of those of the topics that exist. Raises ``KafkaUnavailableError``."""
    jvm = java._jvm
    admin = kafka_package(jvm).clients.admin
    with admin_client(java, bootstrap_servers, options) as client:
        cluster = client.describeCluster(admin.DescribeClusterOptions().includeAuthorizedOperations(True))
        nodes = [(node.id(), str(node.host()), node.port()) for node in cluster.nodes().get().toArray()]
        described, undescribed = describe_topics(jvm, client, topics)
        newest, config = _newest(jvm, client, described), _config(jvm, client, described)
        facts = {name: _topic(topic, config[name], newest.get(name)) for name, topic in described.items()}
        cluster_id, operations = str(cluster.clusterId().get()), _names(cluster.authorizedOperations().get())
    tls = options.get("kafka.security.protocol", "").strip().upper().endswith("SSL")
    return ClusterFacts(cluster_id, operations, ask_brokers(nodes, tls), facts, undescribed)


def ask_brokers(nodes: Sequence[tuple[int, str, int]], tls: bool) -> list[BrokerFacts]:
    """Ask all brokers (id, host, port) at once what they advertise."""

    def ask(node: tuple[int, str, int]) -> BrokerFacts:
        node_id, host, port = node
        began = time.monotonic()
        try:
            found = advertised(host, port, tls=tls)
        except TimeoutError:
            return BrokerFacts(node_id, f"{host}:{port}", problem="no answer within 3 s")
        except OSError as error:
            return BrokerFacts(node_id, f"{host}:{port}", problem=error.strerror or str(error))
        return BrokerFacts(node_id, f"{host}:{port}", found, ms=1000 * (time.monotonic() - began))

    with ThreadPoolExecutor(max(1, min(16, len(nodes)))) as pool:
        return list(pool.map(ask, sorted(nodes)))


def read_statuses(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str
) -> dict[int | None, ReceiverStatus]:
    """The last status of each broker's receiver, by broker id. Raises ``KafkaUnavailableError``.

    Those in partitions without a leader are missing.
    """
    with topic_consumer(java, bootstrap_servers, options, topic) as (consumer, partitions, _):
        begins, ends = dict(consumer.beginningOffsets(partitions)), dict(consumer.endOffsets(partitions))
        for partition, end in ends.items():
            consumer.seek(partition, max(begins[partition], end - STATUSES))
        values: list[str | None] = []
        for _ in range(POLLS):
            if all(consumer.position(partition) >= end for partition, end in ends.items()):
                break
            values += [
                each.value() for each in consumer.poll(java._jvm.java.time.Duration.ofMillis(POLL_MS)).iterator()
            ]
    return last_statuses(values)


def last_statuses(values: Iterable[str | None]) -> dict[int | None, ReceiverStatus]:
    """The latest of each broker's status records; what isn't one is passed over: the job reports it.

    A receiver in a proxy tells no broker, and nothing tells several of them apart: the latest of all is at None.
    """
    last: dict[int | None, ReceiverStatus] = {}
    for value in values:
        try:
            content = json.loads(value or "")
            status = ReceiverStatus(
                int(content["time_ms"]),
                int(content["received"]),
                int(content["landed"]),
                {reason: int(count) for reason, count in content["dropped"].items() if count},
                int(content["queue_depth"]),
            )
            own = content.get("broker_id")
            broker_id = None if own is None else int(own)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        if broker_id not in last or last[broker_id].time_ms <= status.time_ms:
            last[broker_id] = status
    return last


def _topic(topic: TopicDescription, config: Mapping[str, str], newest_ms: int | None) -> TopicFacts:
    partitions = list(topic.details.partitions())
    return TopicFacts(
        partitions=topic.partitions,
        replication_factor=min(len(each.replicas()) for each in partitions),
        without_leader=len(topic.without_leader),
        under_replicated=sum(len(each.isr()) < len(each.replicas()) for each in partitions),
        config=config,
        operations=topic.operations or frozenset(),
        newest_ms=newest_ms,
    )


def _newest(jvm: Any, client: Any, topics: Mapping[str, TopicDescription]) -> dict[str, int]:
    """The highest timestamp of each topic that has records."""
    kafka, asked = kafka_package(jvm), jvm.java.util.HashMap()
    for name, topic in topics.items():
        for number in range(topic.partitions):
            if number not in topic.without_leader:  # Admin would ask for it until its timeout
                place = kafka.common.TopicPartition(name, number)
                asked.put(place, kafka.clients.admin.OffsetSpec.maxTimestamp())
    newest: dict[str, int] = {}
    results = client.listOffsets(asked)
    for place in asked.keySet().toArray():
        # Without the right to read the topic there is no answer; other checks say so.
        answer = answer_of(results.partitionResult(place))
        if answer.problem is None and (timestamp := int(answer.value.timestamp())) >= 0:
            newest[place.topic()] = max(newest.get(place.topic(), 0), timestamp)
    return newest


def _config(jvm: Any, client: Any, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configuration of each topic; empty if this user may not see it."""
    resource_of = kafka_package(jvm).common.config.ConfigResource
    resources = {topic: resource_of(resource_of.Type.TOPIC, topic) for topic in topics}
    futures = client.describeConfigs(_list(jvm, resources.values())).values()
    answers = {topic: answer_of(futures[resource]) for topic, resource in resources.items()}
    return {topic: {} if answer.problem else _entries(answer.value) for topic, answer in answers.items()}


def _entries(config: Any) -> dict[str, str]:
    return {str(each.name()): str(each.value()) for each in config.entries().toArray() if each.value() is not None}


def _names(operations: Any) -> frozenset[str]:
    """Names of ACL operations; a broker that doesn't tell them gives none."""
    return frozenset() if operations is None else frozenset(each.name() for each in operations.toArray())


def _list(jvm: Any, items: Iterable[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return found
