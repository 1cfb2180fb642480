"""The metrics that pages plot, without the prefix `org.apache.kafka.`, and the set of all of them.

A page asks for the sums of all these metrics at once, so that the next page of the same range has its own already.
"""

from __future__ import annotations

PREFIX = "org.apache.kafka."


class Producer:
    """Metrics of producers."""

    SENT, RETRIED, FAILED = "producer.record.send.total", "producer.record.retry.total", "producer.record.error.total"
    BYTES, LATENCY = "producer.topic.byte.total", "producer.request.latency.avg"
    LATENCY_MAX, QUEUE = "producer.request.latency.max", "producer.record.queue.time.avg"
    PER_REQUEST, BATCH = "producer.records.per.request.avg", "producer.batch.size.avg"
    COMPRESSION, THROTTLE = "producer.compression.rate.avg", "producer.produce.throttle.time.max"
    METADATA_AGE = "producer.metadata.age"
    OVER_TIME = (SENT, RETRIED, FAILED, BYTES, LATENCY, LATENCY_MAX, QUEUE, PER_REQUEST, BATCH)


class Consumer:
    """Metrics of consumers and of their groups."""

    RECORDS, BYTES = "consumer.fetch.manager.records.consumed.total", "consumer.fetch.manager.bytes.consumed.total"
    LAG, FETCH = "consumer.fetch.manager.records.lag.max", "consumer.fetch.manager.fetch.latency.avg"
    IDLE, BETWEEN_POLLS = "consumer.poll.idle.ratio.avg", "consumer.time.between.poll.max"
    REBALANCES, FAILED = "consumer.coordinator.rebalance.total", "consumer.coordinator.failed.rebalance.total"
    COMMIT, THROTTLE = "consumer.coordinator.commit.latency.avg", "consumer.fetch.manager.fetch.throttle.time.max"
    OVER_TIME = (RECORDS, BYTES, LAG, FETCH, IDLE, REBALANCES, FAILED, COMMIT)
    OF_GROUPS = (LAG, REBALANCES, FAILED, COMMIT, IDLE, BETWEEN_POLLS)


class Connections:
    """Metrics of connections: name to the kind of client that has it."""

    CREATED, CLOSED, REFUSED = (
        {f"{kind}.{what}.total": kind.replace(".", " ") for kind in ("producer", "consumer", "admin.client")}
        for what in ("connection.creation", "connection.close", "failed.authentication")
    )
    OVER_TIME = (*CREATED, *CLOSED, *REFUSED, Producer.METADATA_AGE)


SUMMED_TOGETHER = frozenset(
    PREFIX + metric
    for metric in (
        *Producer.OVER_TIME,
        Producer.COMPRESSION,
        Producer.THROTTLE,
        *Consumer.OVER_TIME,
        *Consumer.OF_GROUPS,
        Consumer.THROTTLE,
        *Connections.OVER_TIME,
    )
)
