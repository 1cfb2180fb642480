"""What a topic of a local cluster holds."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message, TopicPartition

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.patience import PATIENCE_S


def messages(cluster: LocalCluster, topic: str) -> list[Message]:
    """All records of a topic until now, in the order of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "tests", "enable.metrics.push": False}
    )
    try:
        partitions = [
            TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        ]
        awaited = sum(consumer.get_watermark_offsets(each, PATIENCE_S)[1] for each in partitions)
        consumer.assign(partitions)
        found: list[Message] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < awaited:
            assert time.monotonic() < deadline, f"{topic}: {len(found)} of {awaited} records in {PATIENCE_S:.0f} s"
            found += [message for message in consumer.consume(1000, 0.2) if message.error() is None]
        return found[:awaited]
    finally:
        consumer.close()
