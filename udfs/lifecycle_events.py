"""Events of client instances, found column by column and told as rows of `client_events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.lifecycle_rows import STATES, TERMINATED
from udfs.lifecycle_silence import NEVER
from udfs.lifecycle_state import Clients
from udfs.rows import CLIENT_EVENTS, TIMESTAMP

Int64s = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]

MINUTE_US = 60_000_000
# Rows of one event in one minute and partition; what is beyond is counted in mass events and told by view clients.
MOST_PER_MINUTE = 10_000
KEPT_MINUTES = 60
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Java pauses telemetry for 5 or 30 minutes after errors; it returns within its first interval.
BACK_OFFS_MS = (300_000, 1_800_000)
BACK_OFF_SLACK_MS = 15_000


class Event(IntEnum):
    """What happens to a client, in the order in which it is told of one push."""

    FIRST_SEEN = 0
    WENT_SILENT = 1
    RESUMED = 2
    SOFTWARE_CHANGED = 3
    DUPLICATE_INSTANCE = 4
    TERMINATED = 5
    REBOOTSTRAP = 6
    DATA_PATH_DEAD = 7
    DATA_PATH_RESTORED = 8


@dataclass(frozen=True)
class Found:
    """Events as columns of one length.

    `slot`: the client; `at`, `landed`: µs; `partition` code and `offset` of the push that it is told by (the last one
    before a silence); `first` to `third`: numbers that `detail` is made of; `before`, `after`: texts.
    """

    kind: Int64s
    slot: Int64s
    at: Int64s
    landed: Int64s
    partition: Int64s
    offset: Int64s
    first: Int64s
    second: Int64s
    third: Int64s
    before: Objects
    after: Objects

    @classmethod
    def of(
        cls, kind: Event, slot: Int64s, at: Int64s, landed: Int64s, partition: Int64s, offset: Int64s, first: Int64s,
        second: Int64s, third: Int64s | None = None,
    ) -> Found:  # fmt: skip
        size = len(slot)
        nothing = np.full(size, None, object)
        third = np.zeros(size, np.int64) if third is None else third
        kinds = np.full(size, int(kind))
        return cls(kinds, slot, at, landed, partition, offset, first, second, third, nothing, nothing)

    @classmethod
    def none(cls) -> Found:
        empty = np.zeros(0, np.int64)
        return cls.of(Event.FIRST_SEEN, *[empty] * 7)

    @classmethod
    def all_of(cls, parts: Sequence[Found]) -> Found:
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def with_texts(self, before: Objects, after: Objects) -> Found:
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return Found(**(columns | {"before": before, "after": after}))

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Found:
        return Found(*(getattr(self, each.name)[rows] for each in fields(self)))

    def in_order(self) -> Found:
        """By the pushes that they are told by."""
        return self.take(np.lexsort([self.kind, self.at, self.offset, self.partition]))


class Bound:
    """Keeps single events to `MOST_PER_MINUTE` per kind, partition and minute, however they are cut into steps."""

    def __init__(self, told: dict[str, int] | None = None) -> None:
        self.told = dict(told or {})

    def kept(self, found: Found) -> Found:
        minute = found.at // MINUTE_US
        # Silences are decided in the order of their times, the others in that of offsets.
        order = np.lexsort([np.where(found.kind == Event.WENT_SILENT, found.at, found.offset), minute])
        keys = np.stack([found.kind, found.partition, minute], axis=1)[order]
        distinct, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        by_group = np.argsort(group, kind="stable")
        place = np.empty(len(group), np.int64)
        place[by_group] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        names = [":".join(map(str, key)) for key in distinct.tolist()]
        before = np.array([self.told.get(name, 0) for name in names], np.int64)
        for name, count in zip(names, counts.tolist(), strict=True):
            self.told[name] = self.told.get(name, 0) + count
        return found.take(np.sort(order[place + before[group] < MOST_PER_MINUTE]) if len(order) else order)

    def forget(self, clocks: Mapping[int, int]) -> None:
        """Drop the counts of minutes that ended an hour before their partition's clock, µs by partition code."""
        for key in list(self.told):
            _, partition, minute = map(int, key.split(":"))
            if minute < clocks.get(partition, 0) // MINUTE_US - KEPT_MINUTES:
                del self.told[key]


def event_rows(clients: Clients, found: Found) -> pa.Table:
    """Rows of ``rows.CLIENT_EVENTS``, in order."""
    found = found.in_order()
    places = [clients.partitions[code] for code in found.partition.tolist()]
    texts = {
        name: pa.array(clients.objects[name][found.slot], pa.string())
        for name in ("cluster_id", "client_instance_id", "client_id")
    }
    columns = {
        **texts,
        "source": pa.array([place[0] for place in places], pa.string()),
        "topic": pa.array([place[1] for place in places], pa.string()),
        "partition": pa.array([place[2] for place in places], pa.int32()),
        "offset": pa.array(found.offset),
        "landed_at": pa.array(found.landed).cast(TIMESTAMP),
        "at": pa.array(found.at).cast(TIMESTAMP),
        "event": pa.array([Event(kind).name.lower() for kind in found.kind.tolist()], pa.string()),
        "detail": pa.array([list(detail.items()) for detail in _details(found)], CLIENT_EVENTS.field("detail").type),
    }
    return pa.table([columns[name] for name in CLIENT_EVENTS.names], schema=CLIENT_EVENTS)


def _details(found: Found) -> list[dict[str, str]]:
    numbers = (found.kind, found.at, found.landed, found.first, found.second, found.third)
    rows = zip(*(column.tolist() for column in numbers), found.before, found.after, strict=True)
    return [_detail(*row) for row in rows]


def _detail(
    kind: int, at: int, landed: int, first: int, second: int, third: int, before: str | None, after: str | None
) -> dict[str, str]:
    if kind == Event.WENT_SILENT:
        interval = {"push_interval_ms": str(first)} if first else {}
        return {"last_seen": time_text(landed), "threshold_ms": str((at - landed) // 1000), **interval}
    if kind == Event.RESUMED:
        return _resumed(first, second // 1000, third, at)
    if kind == Event.SOFTWARE_CHANGED:
        return {"from": str(before), "to": str(after)}
    if kind == Event.DUPLICATE_INSTANCE:
        return {"client_port": str(first), "other_port": str(second)}
    return _connections(kind, first, second, third)


def _connections(kind: int, first: int, second: int, third: int) -> dict[str, str]:
    numbers: dict[str, int] = {}
    if kind == Event.REBOOTSTRAP:
        numbers = {"bootstrap": first, "usual_bootstrap": second, "connections_created": third}
    elif kind == Event.DATA_PATH_DEAD:
        numbers = {"unheard_pushes": second, "metadata_age_s": third}
    elif kind == Event.DATA_PATH_RESTORED:
        numbers = {"unheard_ms": second // 1000}
    answered = {"answered_at": time_text(first)} if kind in (Event.DATA_PATH_DEAD, Event.DATA_PATH_RESTORED) else {}
    return answered | {name: str(number) for name, number in numbers.items() if number >= 0}


def _resumed(state: int, gap_ms: int, silent_at: int, at: int) -> dict[str, str]:
    detail = {"from": STATES[state].as_py(), "gap_ms": str(gap_ms)}
    if state == TERMINATED or silent_at == NEVER:
        return detail
    if at <= silent_at:  # read after the partition had gone on: the client never was silent
        return {**detail, "corrects": "went_silent"}
    if any(pause <= gap_ms < pause + BACK_OFF_SLACK_MS for pause in BACK_OFFS_MS):
        return {**detail, "likely_cause": "telemetry_back_off"}
    return detail


def time_text(micros: int) -> str:
    """A time as text, ISO 8601, UTC."""
    return f"{EPOCH + timedelta(microseconds=micros):%Y-%m-%dT%H:%M:%S.%f}Z"
