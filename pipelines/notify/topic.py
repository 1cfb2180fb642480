"""Sends changes to a Kafka topic: each is a record, whose key is the finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from py4j.protocol import Py4JError, Py4JJavaError

from kafka_telemetry_lake.pipelines.notify.file import KafkaSink, Row
from kafka_telemetry_lake.pipelines.notify.http import RefusedError, SinkDownError
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import (
    HasJvm,
    KafkaUnavailableError,
    existing_topics,
    message_of,
    root_of,
)
from kafka_telemetry_lake.pipelines.runtime.kafka_producer import Send, is_too_large, producing
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

Machine = Callable[[], AbstractContextManager[HasJvm]]


class Topic:
    """A topic, with a producer that the first message opens, and after a failure the next one.

    Args:
        machine: provides the JVM of the producer, for as long as that is open.
    """

    def __init__(self, sink: KafkaSink, machine: Machine) -> None:
        self._sink, self._machine = sink, machine
        self._opened = ExitStack()
        self._send: Send | None = None

    def send(self, changes: Sequence[Row]) -> None:
        """Send changes; returns after the topic has acknowledged all.

        Raises:
            SinkDownError: it hasn't. It may have some of them.
            RefusedError: it has all but those that are too large for it.
        """
        try:
            if self._send is None:
                self._send = self._open()
            self._send([(change["finding_id"], json.dumps(change)) for change in changes])
        except Py4JJavaError as error:
            if is_too_large(error):
                raise RefusedError("a change is larger than the topic allows; it has the others") from None
            reason = message_of(error)  # before its JVM ends
            self.close()
            raise SinkDownError(reason) from None
        except (Py4JError, OSError):
            self.close()
            raise SinkDownError("the JVM of its producer has ended") from None
        except TelemetryLakeError as error:
            self.close()
            raise SinkDownError(" ".join(str(error).split())) from None

    def close(self) -> None:
        """Close the producer."""
        self._send = None
        with suppress(Py4JError, OSError):  # the JVM has ended
            self._opened.close()

    def _open(self) -> Send:
        servers, topic = self._sink.bootstrap_servers, self._sink.topic
        options = {name: value.get_secret_value() for name, value in self._sink.kafka_options.items()}
        check_brokers(servers, options)  # within seconds, and before a JVM starts
        java = self._opened.enter_context(self._machine())
        try:
            send = self._opened.enter_context(producing(java, servers, options, topic, batches=False))
        except Py4JJavaError as error:  # its text may quote an option
            kind = root_of(error).getClass().getSimpleName()
            raise KafkaUnavailableError(f"Kafka's producer refuses kafka_options ({kind})") from None
        if topic not in existing_topics(java, servers, options):
            raise KafkaUnavailableError(f"topic {topic} does not exist: create it, with the partitions it needs")
        return send
