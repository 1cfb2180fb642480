"""Sends the events of a lake to a Kafka topic, for immediate reaction: each at least once, in order per client.

A thread follows all commits of `client_events` and sends their rows in the order of `at`. The key of a record is the
client instance, so a client's events stay in order. An event that is sent again has the same `event_id` in its value,
so consumers can drop it. Events are sent again after a crash, and where the table's log no longer has the next commits:
then the rows of all files are sent that may have been written since.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
from py4j.protocol import Py4JError, Py4JJavaError

from kafka_telemetry_lake.pipelines.events.event_id import ORDER, event_id, plain_event
from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.json_files import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_files import files_since, rows_in
from kafka_telemetry_lake.pipelines.runtime.beside import beside
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError, existing_topics, message_of
from kafka_telemetry_lake.pipelines.runtime.kafka_producer import Record, Send, producing
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS
from kafka_telemetry_lake.udfs.errors import check_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STREAM = "event_feed"
PAUSE_S = 1.0
RECORDS = 1000  # sent before waiting for their acknowledgements
FORMAT = 1  # of the note


class EventFeed:
    """Sends new rows of a lake's `client_events`, continuing after the last commit that was sent.

    The first feed of a lake starts with the next event; earlier ones are only in the table.

    Args:
        send: sends records (key and value); returns after the topic has acknowledged all, otherwise raises.

    Raises:
        OtherFormatError: the note has another format.
    """

    def __init__(self, lake: str, send: Send) -> None:
        self._lake, self._table = lake, CLIENT_EVENTS.create(lake)
        self._events = FollowedTable(CLIENT_EVENTS.uri(lake))
        self._note = f"{CLIENT_EVENTS.uri(lake)}/_event_feed.json"
        self._filesystem, self._log = filesystem_of(f"{CLIENT_EVENTS.uri(lake)}/_delta_log")
        self._send = send
        self._begun = False
        noted = self._read_note()
        if noted is None:
            self._set_sent(self._table.version(), datetime.now(UTC))
        else:
            self._sent, self._at = noted

    def send_new(self) -> int:
        """Send the rows of new commits; returns their number."""
        if self._begun and not self._has_next():
            return 0
        self._begun = True
        number, at = 0, datetime.now(UTC)
        try:
            for commit in self._events.commits(self._sent):
                number += self._send_rows(self._events.read(list(commit.files), CLIENT_EVENTS.schema))
                self._set_sent(commit.version, at)
        except (LogGapError, FileNotFoundError) as error:
            log.info("events: sends the rows of the table's files, not of its commits: %s", error)
            self._table.update_incremental()
            record_dropped(self._lake, STREAM, CLIENT_EVENTS, self._sent, self._at)
            files = files_since(self._table, self._at)
            number += self._send_rows(rows_in(self._events.uri, CLIENT_EVENTS.schema, files).to_table())
            self._set_sent(self._table.version(), at)
        return number

    def _send_rows(self, rows: pa.Table) -> int:
        records = [_record(row) for row in rows.sort_by([(name, "ascending") for name in ORDER]).to_pylist()]
        for first in range(0, len(records), RECORDS):
            self._send(records[first : first + RECORDS])
        return len(records)

    def _has_next(self) -> bool:
        """Whether the log has another commit. Cheaper than `FollowedTable.commits`, which also checks for gaps."""
        next_commit = f"{self._log}/{self._sent + 1:020d}.json"
        return bool(self._filesystem.get_file_info(next_commit).type != pafs.FileType.NotFound)

    def _set_sent(self, version: int, at: datetime) -> None:
        """Note the version up to which all is sent, and a time before which it was the latest."""
        write_json(*filesystem_of(self._note), {"format": FORMAT, "version": version, "at": at.isoformat()})
        self._sent, self._at = version, at

    def _read_note(self) -> tuple[int, datetime] | None:
        note = read_json(*filesystem_of(self._note))
        if note is None:
            return None
        advice = "delete it (the feed begins with the next event), or use the build that wrote it"
        check_format(self._note, note.get("format"), FORMAT, advice)
        return int(note["version"]), datetime.fromisoformat(note["at"])


def _record(row: dict[str, Any]) -> Record:
    """Key and value of an event's record."""
    event = plain_event(row)
    return row["client_instance_id"], json.dumps({"event_id": event_id(event), **event})


@contextmanager
def feeding(
    spark: SparkSession, lake: str, topic: str | None, bootstrap_servers: str | None, options: Mapping[str, str]
) -> Iterator[None]:
    """Send a lake's events to a topic while the block runs, and the remaining ones when it ends.

    A failure to send is logged and retried; it never ends the block.

    Args:
        topic: name of the topic; None: nothing is sent.
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the producer's (SASL, SSL).

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access, or the topic doesn't exist.
    """
    if topic is None or bootstrap_servers is None:
        yield
        return
    if topic not in existing_topics(spark, bootstrap_servers, options):
        raise KafkaUnavailableError(
            f"topic {topic} of --events-topic does not exist: create it, with the partitions it needs"
        )
    with (
        producing(spark, bootstrap_servers, options, topic) as send,
        beside("event-feed", partial(_follow, EventFeed(lake, send))),
    ):
        yield


def _follow(feed: EventFeed, ended: threading.Event) -> None:
    last = False
    while not last:
        last = ended.wait(PAUSE_S)
        try:
            feed.send_new()
        except Py4JJavaError as error:
            log.warning("events: sending failed, will be retried: %s", message_of(error))
        except (Py4JError, OSError) as error:
            if not ended.is_set():
                log.warning("events: sending failed, will be retried: %s", error)
