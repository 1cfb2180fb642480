"""Reads the ends and the retention of the logs that consumer groups read, from Kafka's Admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package


@dataclass(frozen=True)
class Log:
    """A partition's log: offsets of its first record and of the next to be written, and its topic's retention.

    `retention_ms` is -1 if it is unlimited, and None if the topic is compacted or its settings can't be read.
    """

    start: int
    end: int
    retention_ms: int | None


def read_logs(jvm: Any, client: Any, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Log]:
    """The logs of these partitions, by topic and number. Needs Describe on the topics, for retention DescribeConfigs.

    Partitions that don't exist, have no leader or may not be seen are missing.
    """
    kafka = kafka_package(jvm)
    # Admin would ask for a topic that is gone until its timeout.
    there = set(client.listTopics(kafka.clients.admin.ListTopicsOptions().listInternal(True)).names().get())
    asked = {
        (topic, number): kafka.common.TopicPartition(topic, number)
        for topic, number in sorted(set(partitions))
        if topic in there
    }
    if not asked:
        return {}
    starts, ends = (
        _offsets(jvm, client, asked, spec)
        for spec in (kafka.clients.admin.OffsetSpec.earliest(), kafka.clients.admin.OffsetSpec.latest())
    )
    retention = _retention(jvm, client, {topic for topic, _ in asked})
    return {place: Log(starts[place], end, retention.get(place[0])) for place, end in ends.items() if place in starts}


def _offsets(jvm: Any, client: Any, asked: Mapping[tuple[str, int], Any], spec: Any) -> dict[tuple[str, int], int]:
    specs = jvm.java.util.HashMap()
    for partition in asked.values():
        specs.put(partition, spec)
    result = client.listOffsets(specs)
    offsets = {place: _unless_refused(result.partitionResult(partition)) for place, partition in asked.items()}
    return {place: found.offset() for place, found in offsets.items() if found is not None}


def _retention(jvm: Any, client: Any, topics: set[str]) -> dict[str, int]:
    """retention.ms of the topics whose records are deleted by time."""
    config = kafka_package(jvm).common.config
    resources = {topic: config.ConfigResource(config.ConfigResource.Type.TOPIC, topic) for topic in topics}
    listed = jvm.java.util.ArrayList()
    for resource in resources.values():
        listed.add(resource)
    futures = client.describeConfigs(listed).values()
    found = {topic: _unless_refused(futures[resource]) for topic, resource in resources.items()}
    return {
        topic: int(settings.get("retention.ms").value())
        for topic, settings in found.items()
        if settings is not None and "delete" in settings.get("cleanup.policy").value()
    }


def _unless_refused(future: Any) -> Any:
    """The answer about one partition or topic; None if the brokers refused it, or the topic was deleted meanwhile."""
    try:
        return future.get()
    except Py4JJavaError:
        return None
