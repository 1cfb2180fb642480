"""Records of a range of offsets, read by Kafka's consumer in an existing JVM, one at a time and slowly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaUnavailableError, consumer, message_of
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package

POLL_MS = 1000
MAX_EMPTY_POLLS = 30


class KafkaRecord(NamedTuple):
    """One record; `timestamp` is the number that it has, which needn't be a time in milliseconds."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: list[tuple[str, bytes | None]]


def records_between(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str, partition: int, begin: int, end: int
) -> Iterator[KafkaRecord]:
    """Yield the records of a partition with offsets from `begin` up to, without, `end`.

    Args:
        options: as of Spark's Kafka source; ``kafka.auto.offset.reset`` says what happens if `begin` is gone.

    Raises:
        KafkaUnavailableError: the brokers don't answer, refuse access, or no longer have the records.
    """
    jvm = java._jvm
    settings = {
        "isolation.level": options.get("kafka.isolation.level", "read_uncommitted"),  # as Spark's source reads it
        "auto.offset.reset": options.get("kafka.auto.offset.reset", "none"),
    }
    try:
        with consumer(java, bootstrap_servers, options, binary=True, **settings) as opened:
            place, only = kafka_package(jvm).common.TopicPartition(topic, partition), jvm.java.util.ArrayList()
            only.add(place)
            opened.assign(only)
            opened.seek(place, begin)
            empty = 0
            while opened.position(place) < end:
                polled = opened.poll(jvm.java.time.Duration.ofMillis(POLL_MS))
                empty = 0 if polled.count() else empty + 1
                if empty > MAX_EMPTY_POLLS:
                    raise KafkaUnavailableError(f"{topic}/{partition}: no record before offset {end} came in {empty} s")
                for record in polled.iterator():
                    if record.offset() < end:
                        yield _record(record)
    except Py4JJavaError as error:
        raise KafkaUnavailableError(f"reading topic {topic} failed: {message_of(error)}") from None


def _record(record: Any) -> KafkaRecord:
    return KafkaRecord(
        _bytes(record.key()),
        _bytes(record.value()),
        record.topic(),
        record.partition(),
        record.offset(),
        record.timestamp(),
        get_field(record.timestampType(), "id"),
        [(header.key(), _bytes(header.value())) for header in record.headers().toArray()],
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
