"""Client aliases from a Kafka topic: a JSON object per record, the last of each key counts, no value ends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from pipelines.client_aliases import AliasError, check_alias
from pipelines.kafka_admin import KafkaUnavailableError, client_properties, existing_topics, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_MS = 1000
PATIENT_POLLS = 30


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
    """Keys and values of table `client_aliases`, and the records that aren't understood and are left out."""

    rows: list[dict[str, Any]]
    problems: list[str]


def aliases_of(records: Iterable[AliasRecord]) -> TopicAliases:
    """What the records of a topic say together: of two keys for one client the later record counts."""
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
            except ValueError as error:
                problems.append(f"{place}: not JSON: {error}")
            except AliasError as error:
                problems.append(f"{place}: {error}")
            else:
                rows[alias["client_instance_id"], alias["client_id"]] = alias
    return TopicAliases(list(rows.values()), problems)


def read_aliases_topic(
    spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str], topic: str
) -> TopicAliases:
    """Read a topic from its beginning to its end as of now. Needs Read on it; no group is joined.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse us, or the topic isn't there.
    """
    if topic not in existing_topics(spark, bootstrap_servers, options):
        raise KafkaUnavailableError(f"topic {topic} of --aliases-topic isn't there: create it, compacted")
    jvm: Any = spark._jvm  # the session's gateway has no public name
    properties = client_properties(spark, bootstrap_servers, options)
    text = "org.apache.kafka.common.serialization.StringDeserializer"
    for key, value in {
        "key.deserializer": text,
        "value.deserializer": text,
        "enable.auto.commit": "false",
        "enable.metrics.push": "false",
        "isolation.level": "read_committed",
    }.items():
        properties.put(key, value)
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    try:
        return aliases_of(_records(jvm, consumer, topic))
    except Py4JJavaError as error:
        raise KafkaUnavailableError(f"reading topic {topic} failed: {message_of(error)}") from None
    finally:
        consumer.close()


def _records(jvm: Any, consumer: Any, topic: str) -> list[AliasRecord]:
    partitions = jvm.java.util.ArrayList()
    for each in consumer.partitionsFor(topic):
        partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, each.partition()))
    consumer.assign(partitions)
    consumer.seekToBeginning(partitions)
    ends = dict(consumer.endOffsets(partitions))
    found: list[AliasRecord] = []
    for _ in range(PATIENT_POLLS):
        if all(consumer.position(each) >= end for each, end in ends.items()):
            return found
        found += [
            AliasRecord(each.key(), each.value(), each.partition(), each.offset(), each.timestamp())
            for each in consumer.poll(jvm.java.time.Duration.ofMillis(POLL_MS)).iterator()
        ]
    raise KafkaUnavailableError(f"topic {topic} isn't read to its end in {PATIENT_POLLS * POLL_MS // 1000} s")
