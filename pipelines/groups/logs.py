"""Reads the ends and the retention of the logs that consumer groups read, from Kafka's Admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.kafka_answers import Answer, answer_of
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import describe_topics

Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True)
class Log:
    """A partition's log, as far as the brokers tell it.

    Attributes:
        start: offset from which on it has records.
        end: offset of the next record to be written.
        stable: the last stable offset: up to it no transaction is open, and read_committed consumers read.
        retention_ms: -1: unlimited; None: the topic's records aren't deleted by time, or its settings can't be read.
        is_compacted: None: its settings can't be read.
        topic_id: of the topic (KIP-516).
        may_read: whether this user may read its records.
        problem: why the offsets are unknown; None: they are known, or there is no such partition.
    """

    start: int | None = None
    end: int | None = None
    stable: int | None = None
    retention_ms: int | None = None
    is_compacted: bool | None = None
    topic_id: str = ""
    may_read: bool = False
    problem: str | None = None


def read_logs(jvm: Any, client: Any, partitions: Iterable[Place]) -> dict[Place, Log]:
    """The logs of these partitions, by topic and number. Needs Describe on the topics, for retention DescribeConfigs.

    Partitions that don't exist or may not be seen are missing. Those without a leader, of which Admin would ask until
    its timeout, aren't asked for. All requests are made before any is waited for.
    """
    wanted = sorted(set(partitions))
    topics, problems = describe_topics(jvm, client, {topic for topic, _ in wanted}, internal=True)
    there = [place for place in wanted if place[0] in topics and place[1] < topics[place[0]].partitions]
    places = [place for place in there if place[1] not in topics[place[0]].without_leader]
    unknown = {place: Log(problem="no leader") for place in there if place not in places}
    unknown |= {place: Log(problem=problems[place[0]]) for place in wanted if place[0] in problems}
    kafka = kafka_package(jvm)
    asked = {place: kafka.common.TopicPartition(*place) for place in places}
    spec, level = kafka.clients.admin.OffsetSpec, kafka.common.IsolationLevel
    requests = [
        _request(jvm, client, asked, *each)
        for each in (
            (spec.earliest(), level.READ_UNCOMMITTED),
            (spec.latest(), level.READ_COMMITTED),
            (spec.latest(), level.READ_UNCOMMITTED),
        )
    ]
    settings = _settings(jvm, client, {topic for topic, _ in places})
    logs = {}
    for place, partition in asked.items():
        answers = [answer_of(request.partitionResult(partition)) for request in requests]
        topic = topics[place[0]]
        logs[place] = _log(answers, settings.get(place[0], {}), topic.topic_id, topic.may("READ"))
    return unknown | {place: log for place, log in logs.items() if log is not None}


def _request(jvm: Any, client: Any, asked: Mapping[Place, Any], spec: Any, level: Any) -> Any:
    specs = jvm.java.util.HashMap()
    for partition in asked.values():
        specs.put(partition, spec)
    return client.listOffsets(specs, kafka_package(jvm).clients.admin.ListOffsetsOptions(level))


def _log(answers: list[Answer], settings: Mapping[str, str], topic_id: str, may_read: bool) -> Log | None:
    """The log with these answers: its start, stable end and end; None: it was deleted meanwhile."""
    if any(answer.is_gone for answer in answers):
        return None
    problem = next((answer.problem for answer in answers if answer.problem is not None), None)
    if problem is not None:
        return Log(problem=problem)
    start, stable, end = (int(answer.value.offset()) for answer in answers)
    policy = settings.get("cleanup.policy")
    return Log(
        start,
        end,
        min(stable, end),
        int(settings["retention.ms"]) if policy is not None and "delete" in policy else None,
        None if policy is None else "compact" in policy,
        topic_id,
        may_read,
    )


def _settings(jvm: Any, client: Any, topics: set[str]) -> dict[str, dict[str, str]]:
    """cleanup.policy and retention.ms of the topics whose settings may be read."""
    config = kafka_package(jvm).common.config
    resources = {topic: config.ConfigResource(config.ConfigResource.Type.TOPIC, topic) for topic in topics}
    listed = jvm.java.util.ArrayList()
    for resource in resources.values():
        listed.add(resource)
    futures = client.describeConfigs(listed).values()
    found = {topic: answer_of(futures[resource]).value for topic, resource in resources.items()}
    return {
        topic: {name: str(settings.get(name).value()) for name in ("cleanup.policy", "retention.ms")}
        for topic, settings in found.items()
        if settings is not None
    }
