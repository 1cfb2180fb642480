"""Kafka's producer in an existing JVM: sends records of text, and waits until the topic has acknowledged them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, client_properties
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import for_jvm, kafka_package

log = logging.getLogger(__name__)

Record = tuple[str | None, str]
Send = Callable[[Sequence[Record]], None]

DELIVERY_MS = 30_000


@contextmanager
def producing(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str) -> Iterator[Send]:
    """Open a producer, and close it at the end of the block. It connects when it sends.

    Args:
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the producer's (SASL, SSL).

    Yields:
        Sends records (key and value); returns after the topic has acknowledged all, otherwise raises
        ``Py4JJavaError``.
    """
    jvm = java._jvm
    properties = _properties(java, bootstrap_servers, options)
    kafka = kafka_package(jvm)
    producer = kafka.clients.producer.KafkaProducer(properties)

    def send(records: Sequence[Record]) -> None:
        # Without the topic's metadata `send` would wait for it with each record, each time for `max.block.ms`.
        producer.partitionsFor(topic)
        record = kafka.clients.producer.ProducerRecord
        errors = []
        for future in [producer.send(record(topic, key, value)) for key, value in records]:
            try:
                future.get()
            except Py4JJavaError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    try:
        yield send
    finally:
        try:
            producer.close(jvm.java.time.Duration.ofSeconds(1))
        except Py4JError:  # a signal that ends the process may have ended the JVM too
            log.debug("the producer's JVM has ended")


def _properties(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> Any:
    properties = client_properties(java, bootstrap_servers, options)
    text = "org.apache.kafka.common.serialization.StringSerializer"
    for key, value in for_jvm(java._jvm, {"key.serializer": text, "value.serializer": text}).items():
        properties.put(key, value)
    for key, value in {
        "acks": "all",
        "enable.idempotence": "true",
        "enable.metrics.push": "false",
        "linger.ms": "5",
        "delivery.timeout.ms": str(DELIVERY_MS),
        "max.block.ms": str(DELIVERY_MS),
    }.items():
        properties.put(key, value)
    return properties
