"""Reads client aliases from a compacted Kafka topic: a JSON object per record. A record without value ends an alias."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.applications.aliases import AliasError, check_alias
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import (
    HasJvm,
    KafkaUnavailableError,
    existing_topics,
    topic_consumer,
)

POLL_MS = 1000
MAX_POLLS = 30


@dataclass(frozen=True)
class AliasRecord:
    """A record of the topic."""

    key: str | None
    value: str | None
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class TopicAliases:
    """Keys and values of table `client_aliases`, and a message for each invalid record.

    Unless `is_complete`, there are partitions that nobody can read now: aliases that are missing may be in them.
    """

    rows: list[dict[str, Any]]
    problems: list[str]
    is_complete: bool = True


def aliases_of(records: Iterable[AliasRecord]) -> TopicAliases:
    """Compute the aliases in force from a topic's records. If two keys have the same client, the later record wins."""
    last: dict[str | None, AliasRecord] = {}
    for each in sorted(records, key=lambda each: (each.timestamp_ms, each.partition, each.offset)):
        last.pop(each.key, None)
        last[each.key] = each
    rows: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    problems = []
    for each in last.values():
        place = f"partition {each.partition}, offset {each.offset}"
        if each.key is None:
            problems.append(f"{place}: a record without key, allowed: one key per alias")
        elif each.value is not None:
            try:
                alias = check_alias(json.loads(each.value))
            except (ValueError, RecursionError) as error:  # deeply nested JSON raises RecursionError
                problems.append(f"{place}: not JSON: {error}")
            except AliasError as error:
                problems.append(f"{place}: {error}")
            else:
                rows[alias["client_instance_id"], alias["client_id"]] = alias
    return TopicAliases(list(rows.values()), problems)


def read_aliases_topic(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str) -> TopicAliases:
    """Read a topic from its beginning to its current end. Needs Read on the topic, but no consumer group.

    Partitions without a leader are left out.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access, or the topic doesn't exist.
    """
    if topic not in existing_topics(java, bootstrap_servers, options):
        raise KafkaUnavailableError(f"topic {topic} of --aliases-topic does not exist: create it, compacted")
    with topic_consumer(java, bootstrap_servers, options, topic) as (consumer, partitions, without_leader):
        found = aliases_of(_records(java._jvm, consumer, partitions, topic))
    if not without_leader:
        return found
    numbers = ", ".join(map(str, without_leader))
    problem = f"topic {topic}: partitions without a leader: {numbers}; aliases in them stay as they were"
    return TopicAliases(found.rows, [*found.problems, problem], is_complete=False)


def _records(jvm: Any, consumer: Any, partitions: Any, topic: str) -> list[AliasRecord]:
    consumer.seekToBeginning(partitions)
    ends = dict(consumer.endOffsets(partitions))
    records: list[AliasRecord] = []
    for _ in range(MAX_POLLS):
        if all(consumer.position(each) >= end for each, end in ends.items()):
            return records
        records += [
            AliasRecord(each.key(), each.value(), each.partition(), each.offset(), each.timestamp())
            for each in consumer.poll(jvm.java.time.Duration.ofMillis(POLL_MS)).iterator()
        ]
    raise KafkaUnavailableError(f"topic {topic} could not be read to its end in {MAX_POLLS * POLL_MS // 1000} s")
