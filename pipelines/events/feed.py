"""Sends the events of a lake to a Kafka topic, for immediate reaction: each at least once, in order per client.

A follower reads all commits of `client_events` and sends their rows in the order of `at`. The key of a record is the
client instance, so a client's events stay in order. An event that is sent again has the same `event_id` in its value,
so consumers can drop it. Events are sent again after a crash, and where the table's log no longer has the next commits:
then the rows of all files are sent that may have been written since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.events.event_id import ORDER, event_id, plain_event
from kafka_telemetry_lake.pipelines.lake.follower import FIELDS, Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError, existing_topics, message_of
from kafka_telemetry_lake.pipelines.runtime.kafka_producer import Record, Send, producing
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STREAM = "event_feed"
PAUSE_S = 1.0
STEP_ROWS = 100_000  # a step sends whole commits until they have this many events
RECORDS = 1000  # sent before waiting for their acknowledgements
ANEW = "delete it, and the feed begins with the next event"


class EventFeed:
    """Sends new rows of a lake's `client_events`, continuing after the last commit that was sent.

    The first feed of a lake starts with the next event; earlier ones are only in the table.

    Args:
        send: sends records (key and value); returns after the topic has acknowledged all, otherwise raises.

    Raises:
        OtherFormatError: the note has another format.
    """

    def __init__(self, lake: str, send: Send) -> None:
        self._follower = Follower(lake, CLIENT_EVENTS, Gap.GO_ON, STREAM, CLIENT_EVENTS.schema, most_rows=STEP_ROWS)
        self._note = FencedNote(CLIENT_EVENTS.uri(lake), "_event_feed", FIELDS, ANEW)
        self._send = send
        noted = self._note.read()
        self._position = self._follower.now() if noted is None else Position.of(noted)
        if noted is None:
            self._note.write(self._position.stored())

    def send_new(self) -> int:
        """Send the rows of new commits; returns their number."""
        number = 0
        for step in self._follower.steps(self._position):
            rows = step.rows.sort_by([(name, "ascending") for name in ORDER])
            for first in range(0, rows.num_rows, RECORDS):
                self._send([_record(row) for row in rows.slice(first, RECORDS).to_pylist()])
            number += rows.num_rows
            self._position = step.position
            self._note.write(self._position.stored())
        return number


def _record(row: dict[str, Any]) -> Record:
    """Key and value of an event's record."""
    event = plain_event(row)
    return row["client_instance_id"], json.dumps({"event_id": event_id(event), **event})


def begin(spark: SparkSession, lake: str, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    """Check that a topic exists. The first feed of a lake begins with the next event.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access, or the topic doesn't exist.
    """
    if topic not in existing_topics(spark, bootstrap_servers, options):
        raise KafkaUnavailableError(
            f"topic {topic} of --events-topic does not exist: create it, with the partitions it needs"
        )
    EventFeed(lake, lambda _: None)


@contextmanager
def sending(
    spark: SparkSession, lake: str, topic: str, bootstrap_servers: str, options: Mapping[str, str]
) -> Iterator[Callable[[object], None]]:
    """Open a producer for a lake's events; yields what sends those that are new.

    Args:
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the producer's (SASL, SSL).
    """
    with producing(spark, bootstrap_servers, options, topic) as send:
        feed = EventFeed(lake, send)

        def step(_: object) -> None:
            try:
                feed.send_new()
            except Py4JJavaError as error:
                raise KafkaUnavailableError(f"sending failed: {message_of(error)}") from None

        yield step
