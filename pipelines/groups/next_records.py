"""Finds the first unread record of consumer groups that are behind: not every offset has one.

Markers of transactions, records of aborted ones and those that compaction removed take up offsets too, and nothing that
Admin tells distinguishes them. So a consumer without a group looks: it fetches from the committed offset on, at most to
the last stable offset, until there is a record, and stores nothing of it but its offset.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.groups.logs import Log, Place
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, consumer, root_of
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package

POLL_MS = 500
LIMIT_S = 5.0  # for all that a poll of the cluster looks for; what isn't found by then stays unknown
# Few bytes of each partition: one record is enough, and the heap of a JVM that runs without Spark is small.
SETTINGS = {"max.partition.fetch.bytes": str(1 << 16), "fetch.max.bytes": str(1 << 22)}

At = tuple[str, int, int]  # topic, partition, and an offset at which a group would go on reading


@dataclass
class NextRecords:
    """Looks for records, and remembers what it found in topics that aren't compacted until a poll doesn't ask for it.

    Attributes:
        problems: of the partitions that the last call couldn't read, by name.
    """

    limit_s: float = LIMIT_S
    problems: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, At], int] = field(default_factory=dict)

    def find(
        self,
        java: HasJvm,
        bootstrap_servers: str,
        options: Mapping[str, str],
        logs: Mapping[Place, Log],
        offsets: Iterable[At],
    ) -> dict[At, int]:
        """The offset of the first committed record at or after each offset, or where the search for it ended.

        Args:
            offsets: to go on reading from, each at least the start of its log.

        Returns:
            Less than the log's `stable`: there is a record at that offset. Else there is none before it. Missing: this
            user may not read the topic, nothing is left up to `stable`, or the search took too long.
        """
        self.problems = {}
        asked = {at for at in offsets if _may_have_record(at, logs.get(at[:2]))}
        found = {at: self._known[key] for at in asked if (key := (logs[at[:2]].topic_id, at)) in self._known}
        missing = _by_place(asked - found.keys())
        if missing:
            with consumer(java, bootstrap_servers, options, binary=True, **SETTINGS) as reader:
                found |= _Search(java._jvm, reader, logs, self.limit_s, self.problems).run(missing)
        self._known = {
            (logs[at[:2]].topic_id, at): offset for at, offset in found.items() if _stays(offset, logs[at[:2]])
        }
        return found


def _may_have_record(at: At, log: Log | None) -> bool:
    return log is not None and log.stable is not None and at[2] < log.stable and log.may_read


def _stays(offset: int, log: Log) -> bool:
    """Whether a record at that offset is there until the log begins after it."""
    return log.stable is not None and offset < log.stable and log.is_compacted is False and log.topic_id != ""


def _by_place(asked: Iterable[At]) -> dict[Place, list[int]]:
    offsets: dict[Place, list[int]] = {}
    for topic, partition, offset in sorted(asked):
        offsets.setdefault((topic, partition), []).append(offset)
    return offsets


class _Search:
    """One search. A partition that can't be read is left out, with its problem; the others are read."""

    def __init__(
        self, jvm: Any, reader: Any, logs: Mapping[Place, Log], limit_s: float, problems: dict[str, str]
    ) -> None:
        self._jvm, self._reader, self._logs, self._problems = jvm, reader, logs, problems
        self._end = time.monotonic() + limit_s
        self.found: dict[At, int] = {}

    def run(self, missing: Mapping[Place, list[int]]) -> dict[At, int]:
        """Find the record for each offset, from the first offset of each partition on, then from the next one left."""
        left = dict(missing)
        while left and time.monotonic() < self._end:
            self._together(left)
            rest = {place: [own for own in left[place] if (*place, own) not in self.found] for place in left}
            # Without an answer a partition isn't asked again.
            left = {place: own for place, own in rest.items() if own and len(own) < len(left[place])}
        return self.found

    def _together(self, wanted: Mapping[Place, list[int]]) -> None:
        try:
            self._read(wanted)
        except Py4JJavaError:  # of one partition: each by itself
            for place, offsets in wanted.items():
                if (*place, offsets[0]) not in self.found and time.monotonic() < self._end:
                    try:
                        self._read({place: offsets})
                    except Py4JJavaError as error:
                        self._problems[f"{place[0]}-{place[1]}"] = str(root_of(error).getClass().getSimpleName())

    def _read(self, wanted: Mapping[Place, list[int]]) -> None:
        """Read each partition until it has records or its stable end is reached."""
        kafka = kafka_package(self._jvm)
        partitions = {place: kafka.common.TopicPartition(*place) for place in wanted}
        assigned = self._jvm.java.util.ArrayList()
        for partition in partitions.values():
            assigned.add(partition)
        self._reader.assign(assigned)
        for place, partition in partitions.items():
            self._reader.seek(partition, wanted[place][0])
        while partitions and time.monotonic() < self._end:
            polled = self._reader.poll(self._jvm.java.time.Duration.ofMillis(POLL_MS))
            read = {(each.topic(), each.partition()): each for each in polled.partitions().toArray()}
            for place, partition in read.items():
                self._note(place, wanted[place], polled.records(partition))
            if not read:  # it went on, over offsets without a record
                for place, partition in partitions.items():
                    if (position := self._reader.position(partition)) >= (self._logs[place].stable or 0):
                        read[place] = partition
                        self.found |= {(*place, own): position for own in wanted[place] if own <= position}
            for place in read:
                self._reader.pause(self._jvm.java.util.Collections.singletonList(partitions.pop(place)))

    def _note(self, place: Place, offsets: list[int], records: Any) -> None:
        """Note the first record at or after each offset, up to the last of these records."""
        size = len(records)
        first, last = records[0].offset(), records[size - 1].offset()
        for own in offsets:
            if own <= first:
                self.found[(*place, own)] = first
            elif own <= last:
                # Each offset in between has a record, or it is looked for: a call to the JVM costs more than these.
                is_dense = last - first + 1 == size
                index = 0 if is_dense else bisect_left(range(size), own, key=lambda number: records[number].offset())
                self.found[(*place, own)] = own if is_dense else records[index].offset()
