"""Events of client instances as columns, and the rows of table `client_events` that they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, Objects
from kafka_telemetry_lake.udfs.lifecycle.clients import ORDER, PLACE, Clients, Partition
from kafka_telemetry_lake.udfs.lifecycle.rows import STATES, TERMINATED
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER
from kafka_telemetry_lake.udfs.rows import CLIENT_EVENTS, TIMESTAMP

MINUTE_US = 60_000_000
# L12: rows per event, minute and partition. Mass events count all events, and view `clients` has every client's state.
MOST_PER_MINUTE = 10_000
COUNTED_MINUTES = 60
_EVENT_ORDER = (*ORDER, "at")  # then by kind
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# L7: Java pauses telemetry for 5 or 30 minutes after errors; it returns within its first interval.
BACK_OFFS_MS = (300_000, 1_800_000)
BACK_OFF_SLACK_MS = 15_000


class Event(IntEnum):
    """What happens to a client. The numbers give the order of the events of one push."""

    FIRST_SEEN = 0
    WENT_SILENT = 1
    RESUMED = 2
    SOFTWARE_CHANGED = 3
    DUPLICATE_INSTANCE = 4
    TERMINATED = 5
    REBOOTSTRAP = 6
    DATA_PATH_DEAD = 7
    DATA_PATH_RESTORED = 8


EVENT_NAMES = pa.array([event.name.lower() for event in Event])  # by number
# The numbers that an event's detail is made of, in the order of the columns of `Events.numbers`. Times are µs.
NUMBERS: dict[Event, tuple[str, ...]] = {
    Event.FIRST_SEEN: (),
    Event.WENT_SILENT: ("push_interval_ms",),
    Event.RESUMED: ("state_before", "gap_us", "silent_at"),
    Event.SOFTWARE_CHANGED: (),
    Event.DUPLICATE_INSTANCE: ("client_port", "other_port"),
    Event.TERMINATED: (),
    Event.REBOOTSTRAP: ("bootstrap", "usual_bootstrap", "connections_created"),
    Event.DATA_PATH_DEAD: ("answered_at", "unheard_pushes", "metadata_age_s"),
    Event.DATA_PATH_RESTORED: ("answered_at", "unheard_us"),
}
MOST_NUMBERS = max(map(len, NUMBERS.values()))


@dataclass(frozen=True)
class Events:
    """Events as columns, one row per event.

    An event has the place of the push that shows it; a silence that of the client's last push before.
    """

    kind: Int64s  # of `Event`
    slot: Int64s  # of the client
    at: Int64s  # when it happened, µs
    landed: Int64s  # landing time of that push, µs
    partition: Int64s  # code of its partition
    offset: Int64s  # its offset
    numbers: Int64s  # shape (rows, MOST_NUMBERS); `NUMBERS` names the columns of each kind, the others are 0
    before: Objects  # text, or None
    after: Objects

    @classmethod
    def of(
        cls, kind: Event, slot: Int64s, at: Int64s, landed: Int64s, partition: Int64s, offset: Int64s,
        **numbers: Int64s,
    ) -> Events:  # fmt: skip
        """Events of one kind, with the numbers that `NUMBERS` names for it."""
        values = np.zeros((len(slot), MOST_NUMBERS), np.int64)
        for column, name in enumerate(NUMBERS[kind]):
            values[:, column] = numbers[name]
        no_text = np.full(len(slot), None, object)
        return cls(np.full(len(slot), int(kind)), slot, at, landed, partition, offset, values, no_text, no_text)

    @classmethod
    def none(cls) -> Events:
        return cls.of(Event.FIRST_SEEN, *[np.zeros(0, np.int64)] * 5)

    @classmethod
    def all_of(cls, parts: Sequence[Events]) -> Events:
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def with_texts(self, before: Objects, after: Objects) -> Events:
        return replace(self, before=before, after=after)

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> Events:
        return Events(*(getattr(self, each.name)[rows] for each in fields(self)))

    def in_order(self) -> Events:
        """By partition and offset of their pushes."""
        return self.take(np.lexsort([self.kind, self.at, self.offset, self.partition]))


class EventMinute(NamedTuple):
    """The events of one kind and partition within a minute since 1970."""

    event: str
    partition: Partition
    minute: int


class LimitedEvents(NamedTuple):
    """Rows of ``rows.CLIENT_EVENTS``, the first `MOST_PER_MINUTE` of each minute, and how many there are of each."""

    rows: pa.Table
    counts: Counter[EventMinute]


def limited(clients: Clients, events: Events) -> LimitedEvents:
    """The rows of events of some clients, and their numbers."""
    minute = events.at // MINUTE_US
    keys, group = np.unique(np.stack([events.kind, events.partition, minute], axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    places = [EventMinute(Event(kind).name.lower(), clients.partitions[code], at) for kind, code, at in keys.tolist()]
    counts = Counter(dict(zip(places, np.bincount(group, minlength=len(places)).tolist(), strict=True)))
    is_silence = events.kind == Event.WENT_SILENT
    place = _place(group, np.where(is_silence, events.at, events.offset), events.offset)
    return LimitedEvents(event_rows(clients, events.take(place < MOST_PER_MINUTE)), counts)


class EventLimit:
    """Limits single events to `MOST_PER_MINUTE` per kind, partition and minute, however the pushes come in steps (L12).

    Args:
        counts: events so far, as of `content`.
        partitions: of `content`.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, partitions: Sequence[Partition] = ()) -> None:
        self.counts: Counter[EventMinute] = Counter()
        for name, count in (counts or {}).items():
            kind, code, minute = map(int, name.split(":"))
            self.counts[EventMinute(Event(kind).name.lower(), partitions[code], minute)] = count

    def content(self, partitions: Sequence[Partition]) -> dict[str, int]:
        """Events so far by ``kind:partition:minute``, with the numbers of kind and partition."""
        codes = {partition: code for code, partition in enumerate(partitions)}
        return {
            f"{Event[key.event.upper()].value}:{codes[key.partition]}:{key.minute}": count
            for key, count in self.counts.items()
        }

    def apply(self, parts: Sequence[LimitedEvents]) -> pa.Table:
        """The rows within the limit, in the order of partition and offset; all are counted."""
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        kinds = pc.index_in(rows["event"], EVENT_NAMES)
        order = rows.append_column("kind", kinds).sort_by([(name, "ascending") for name in (*_EVENT_ORDER, "kind")])
        rows = order.drop_columns(["kind"])
        at, offset = rows["at"].cast(pa.int64()).to_numpy(), rows["offset"].to_numpy()
        events = rows["event"].to_pylist()
        partitions = zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
        groups: dict[EventMinute, int] = {}
        keys = map(EventMinute, events, partitions, (at // MINUTE_US).tolist())
        group = np.fromiter((groups.setdefault(key, len(groups)) for key in keys), np.int64, len(events))
        before = np.fromiter((self.counts[key] for key in groups), np.int64, len(groups))
        is_silence = order["kind"].to_numpy() == Event.WENT_SILENT
        place = _place(group, np.where(is_silence, at, offset), offset)
        for part in parts:
            self.counts.update(part.counts)
        return rows.filter(pa.array(place + before[group] < MOST_PER_MINUTE))

    def forget(self, clocks: Mapping[Partition, int]) -> None:
        """Drop the counts of minutes that ended an hour before their partition's clock, µs."""
        for key in list(self.counts):
            if key.minute < clocks.get(key.partition, 0) // MINUTE_US - COUNTED_MINUTES:
                del self.counts[key]


def _place(group: Int64s, first: Int64s, then: Int64s) -> Int64s:
    """Each event's place within its group: silences are decided by their times, others by offsets, then by offsets."""
    order = np.lexsort([then, first, group])
    sizes = np.bincount(group)
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place


def event_rows(clients: Clients, events: Events) -> pa.Table:
    """Rows of ``rows.CLIENT_EVENTS``, in order."""
    events = events.in_order()
    places = [clients.partitions[code] for code in events.partition.tolist()]
    texts = {
        name: pa.array(clients.objects[name][events.slot], pa.string())
        for name in ("cluster_id", "client_instance_id", "client_id")
    }
    columns = {
        **texts,
        "source": pa.array([place[0] for place in places], pa.string()),
        "topic": pa.array([place[1] for place in places], pa.string()),
        "partition": pa.array([place[2] for place in places], pa.int32()),
        "offset": pa.array(events.offset),
        "landed_at": pa.array(events.landed).cast(TIMESTAMP),
        "at": pa.array(events.at).cast(TIMESTAMP),
        "event": EVENT_NAMES.take(pa.array(events.kind)),
        "detail": pa.array([list(detail.items()) for detail in _details(events)], CLIENT_EVENTS.field("detail").type),
    }
    return pa.table([columns[name] for name in CLIENT_EVENTS.names], schema=CLIENT_EVENTS)


def _details(events: Events) -> list[dict[str, str]]:
    columns = (events.kind, events.at, events.landed, events.numbers, events.before, events.after)
    kinds = [(kind, NUMBERS[kind]) for kind in Event]  # looked up by code: an enum's constructor is slow
    details = []
    for code, at, landed, numbers, before, after in zip(*(column.tolist() for column in columns), strict=True):
        kind, names = kinds[code]
        details.append(_detail(kind, at, landed, dict(zip(names, numbers, strict=False)), before, after))
    return details


def _detail(
    kind: Event, at: int, landed: int, numbers: dict[str, int], before: str | None, after: str | None
) -> dict[str, str]:
    if kind == Event.WENT_SILENT:
        interval_ms = numbers["push_interval_ms"]
        interval = {"push_interval_ms": str(interval_ms)} if interval_ms else {}
        return {"last_seen": time_text(landed), "threshold_ms": str((at - landed) // 1000), **interval}
    if kind == Event.RESUMED:
        return _resumed(numbers["state_before"], numbers["gap_us"] // 1000, numbers["silent_at"], at)
    if kind == Event.SOFTWARE_CHANGED:
        return {"from": str(before), "to": str(after)}
    if kind == Event.DUPLICATE_INSTANCE:
        return {name: str(number) for name, number in numbers.items()}
    return _connections(numbers)


def _connections(numbers: dict[str, int]) -> dict[str, str]:
    """The detail of an event of a client's connections; a negative number is unknown and left out."""
    detail: dict[str, str] = {}
    for name, number in numbers.items():
        if name == "answered_at":
            detail[name] = time_text(number)
        elif name == "unheard_us":
            detail["unheard_ms"] = str(number // 1000)
        elif number >= 0:
            detail[name] = str(number)
    return detail


def _resumed(state_before: int, gap_ms: int, silent_at: int, at: int) -> dict[str, str]:
    detail = {"from": STATES[state_before].as_py(), "gap_ms": str(gap_ms)}
    if state_before == TERMINATED or silent_at == NEVER:
        return detail
    if at <= silent_at:  # L8: processed after the partition's clock had passed: the client never was silent
        return {**detail, "corrects": "went_silent"}
    if any(pause <= gap_ms < pause + BACK_OFF_SLACK_MS for pause in BACK_OFFS_MS):
        return {**detail, "likely_cause": "telemetry_back_off"}
    return detail


def time_text(micros: int) -> str:
    """A time as text, ISO 8601, UTC."""
    return f"{EPOCH + timedelta(microseconds=micros):%Y-%m-%dT%H:%M:%S.%f}Z"
