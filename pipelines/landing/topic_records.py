"""The newest landing records of a topic. Needs Java, and Read on the topic, but no consumer group."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_telemetry_lake.pipelines.landing.records import Placed, RecordsError
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, existing_topics, topic_consumer
from kafka_telemetry_lake.udfs.landing.problems import LandingRecord

log = logging.getLogger("telemetry-lake")

POLL_MS = 1000
MAX_EMPTY_POLLS = 15
NO_TIME = -1  # Kafka's NO_TIMESTAMP


def newest_records(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str, most: int
) -> Iterator[Placed]:
    """The newest records of each partition, in the order in which they come, `most` of them in all.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access.
        RecordsError: the topic doesn't exist, or can't be read to its end.
    """
    if topic not in existing_topics(java, bootstrap_servers, options):
        raise RecordsError(f"topic {topic} does not exist at {bootstrap_servers}, or this user may not see it")
    with topic_consumer(java, bootstrap_servers, options, topic, binary=True) as (consumer, partitions, without_leader):
        if without_leader:
            log.warning(
                "topic %s: partitions without a leader aren't read: %s", topic, ", ".join(map(str, without_leader))
            )
        begins, ends = dict(consumer.beginningOffsets(partitions)), dict(consumer.endOffsets(partitions))
        each = max(1, most // max(1, len(ends)))
        for partition, end in ends.items():
            consumer.seek(partition, max(begins[partition], end - each))
        count = empty = 0
        while count < most and any(consumer.position(partition) < end for partition, end in ends.items()):
            polled = consumer.poll(java._jvm.java.time.Duration.ofMillis(POLL_MS))
            empty = 0 if polled.count() else empty + 1
            if empty > MAX_EMPTY_POLLS:
                raise RecordsError(f"topic {topic} could not be read to its end: no record came in {empty} s")
            for record in polled.iterator():
                if count < most:
                    yield _placed(record)
                    count += 1


def _placed(record: Any) -> Placed:
    headers = [(header.key(), _bytes(header.value())) for header in record.headers().toArray()]
    time = record.timestamp()
    return Placed(
        f"partition {record.partition()}, offset {record.offset()}",
        record.topic(),
        LandingRecord(_bytes(record.key()), _bytes(record.value()), headers, None if time == NO_TIME else time),
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
