"""The events of a lake as records of a Kafka topic, for those who must act at once: each at least once, in order.

A thread follows the commits of `client_events`, whoever makes them, and sends their rows in the order of `at`. The key
of a record is the client instance, so a client's events stay in order; `event_id` in its value is the same whenever an
event is sent: what is sent again after a crash is known by it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
import xxhash
from py4j.protocol import Py4JError, Py4JJavaError

from pipelines.delta_log import lake_uri, write_whole
from pipelines.kafka_admin import KafkaUnavailableError, client_properties, existing_topics, message_of
from pipelines.lifecycle_log import FollowedTable
from pipelines.state_manifest import StateError
from pipelines.tables import CLIENT_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Record = tuple[str | None, str]
Send = Callable[[Sequence[Record]], None]

PAUSE_S = 1.0
RECORDS = 1000  # that are awaited together
DELIVERY_MS = 30_000
ORDER = ("at", "source", "topic", "partition", "offset", "event", "client_instance_id")


class EventFeed:
    """Sends what a lake's table of events gets, from where it was left.

    A feed that is new to a lake begins with the next event; those before are in the table.

    Args:
        send: returns when all records, key and value, are safe in the topic; raises when they may not be.
    """

    def __init__(self, lake: str, send: Send) -> None:
        self._table = CLIENT_EVENTS.create(lake)
        self._events = FollowedTable(CLIENT_EVENTS.uri(lake))
        # Delta readers and vacuum leave names with an underscore alone.
        self._note = f"{CLIENT_EVENTS.uri(lake)}/_event_feed.json"
        self._filesystem, self._log = pafs.FileSystem.from_uri(lake_uri(f"{CLIENT_EVENTS.uri(lake)}/_delta_log"))
        self._send = send
        self._begun = False
        sent = self._read_note()
        self._sent = self._table.version() if sent is None else sent
        if sent is None:
            self._keep(self._sent)

    def send_new(self) -> int:
        """Send the rows of new commits; gives their number."""
        number = 0
        if self._begun and not self._has_next():
            return 0
        self._begun = True
        try:
            for commit in self._events.commits(self._sent):
                rows = self._events.read(list(commit.files), CLIENT_EVENTS.schema)
                records = [_record(row) for row in rows.sort_by([(name, "ascending") for name in ORDER]).to_pylist()]
                for first in range(0, len(records), RECORDS):
                    self._send(records[first : first + RECORDS])
                number += len(records)
                self._keep(commit.version)
        except StateError:
            self._table.update_incremental()
            log.warning(
                "events: those of commits that the log no longer has weren't sent; table client_events has them"
            )
            self._keep(self._table.version())
        return number

    def _has_next(self) -> bool:
        """Whether the log has another commit: cheaper than what `FollowedTable` does to tell that none is lost."""
        next_commit = f"{self._log}/{self._sent + 1:020d}.json"
        return bool(self._filesystem.get_file_info(next_commit).type != pafs.FileType.NotFound)

    def _keep(self, version: int) -> None:
        write_whole(self._note, {"version": version})
        self._sent = version

    def _read_note(self) -> int | None:
        filesystem, path = pafs.FileSystem.from_uri(lake_uri(self._note))
        if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        with filesystem.open_input_file(path) as stream:
            return int(json.loads(stream.read())["version"])


def _record(row: dict[str, Any]) -> Record:
    """Key and value of an event's record."""
    told = {name: _plain(value) for name, value in row.items()} | {"detail": dict(row["detail"] or ())}
    told = {name: value for name, value in told.items() if value is not None}
    event_id = xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())
    return row["client_instance_id"], json.dumps({"event_id": event_id, **told})


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(value, datetime) else value


@contextmanager
def feeding(
    spark: SparkSession, lake: str, topic: str | None, bootstrap_servers: str | None, options: Mapping[str, str]
) -> Iterator[None]:
    """Send a lake's events to a topic inside the block, where one is named, and what is left at its end.

    What can't be sent is told and tried again; it never ends the block.

    Args:
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the producer's (SASL, SSL).

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse us, or the topic isn't there.
    """
    if topic is None or bootstrap_servers is None:
        yield
        return
    if topic not in existing_topics(spark, bootstrap_servers, options):
        raise KafkaUnavailableError(
            f"topic {topic} of --events-topic isn't there: create it, with the partitions it needs"
        )
    ended = threading.Event()
    producer = _producer(spark, bootstrap_servers, options)
    feed = EventFeed(lake, _sender(spark, producer, topic))
    thread = threading.Thread(target=_follow, args=(feed, ended), name="event-feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        try:
            producer.close(spark._jvm.java.time.Duration.ofSeconds(1))  # type: ignore[union-attr]
        except Py4JError:  # a supervisor's signal reaches the JVM too
            log.debug("events: the producer's JVM has ended")


def _follow(feed: EventFeed, ended: threading.Event) -> None:
    last = False
    while not last:
        last = ended.wait(PAUSE_S)
        try:
            feed.send_new()
        except Py4JJavaError as error:
            log.warning("events: %s; they are sent later", message_of(error))
        except (Py4JError, OSError) as error:
            if not ended.is_set():
                log.warning("events: %s; they are sent later", error)


def _producer(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> Any:
    properties = client_properties(spark, bootstrap_servers, options)
    for key, value in {
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "acks": "all",
        "enable.idempotence": "true",
        "enable.metrics.push": "false",
        "linger.ms": "5",
        "delivery.timeout.ms": str(DELIVERY_MS),
        "max.block.ms": str(DELIVERY_MS),
    }.items():
        properties.put(key, value)
    jvm: Any = spark._jvm
    return jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)


def _sender(spark: SparkSession, producer: Any, topic: str) -> Send:
    jvm: Any = spark._jvm

    def send(records: Sequence[Record]) -> None:
        record = jvm.org.apache.kafka.clients.producer.ProducerRecord
        for future in [producer.send(record(topic, key, value)) for key, value in records]:
            future.get()

    return send
