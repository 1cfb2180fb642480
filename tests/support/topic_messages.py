"""What a topic of a local cluster holds."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message, TopicPartition

from kafka_telemetry_lake.sandbox.cluster import LocalCluster

WAIT = 120.0  # s, of a machine with other work


def messages(cluster: LocalCluster, topic: str) -> list[Message]:
    """All records of a topic until now, in the order of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "tests", "enable.metrics.push": False}
    )
    try:
        partitions = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, 30).topics[topic].partitions]
        awaited = sum(consumer.get_watermark_offsets(each, 30)[1] for each in partitions)
        consumer.assign(partitions)
        found: list[Message] = []
        deadline = time.monotonic() + WAIT
        while len(found) < awaited:
            assert time.monotonic() < deadline, f"{topic}: {len(found)} of {awaited} records in {WAIT:.0f} s"
            found += [message for message in consumer.consume(1000, 0.2) if message.error() is None]
        return found[:awaited]
    finally:
        consumer.close()
