"""What the client instances of a lake pushed, and what was requested of them: read for `udfs.subscriptions.what_if`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.pipelines.subscriptions.recorded_points import bytes_of_points, read_points
from kafka_telemetry_lake.pipelines.subscriptions.recorded_queries import (
    GAPS,
    KEYS,
    LIBRARY,
    NEWEST,
    PUSHED,
    PUSHES_OF,
    SLOTS,
    ask,
)
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s
from kafka_telemetry_lake.udfs.subscriptions.as_of import UNDECIDED, matches_of
from kafka_telemetry_lake.udfs.subscriptions.history import EARLIEST, Timeline, subscription_of, timeline
from kafka_telemetry_lake.udfs.subscriptions.matching import DEFAULT_INTERVAL_MS, Subscription, matchable
from kafka_telemetry_lake.udfs.subscriptions.what_if import RecordedPushes, Requested, kind_of, request

SLOT_S = 600  # two of the longest push interval: without any push in it, nothing was recorded
STAR_IS_PREFIX = ("franz-go",)
NOTHING = Requested(frozenset(), DEFAULT_INTERVAL_MS)


class NoFleetError(CannotRunError):
    """The lake has nothing that the proposal could be applied to."""


@dataclass(frozen=True)
class RecordedFleet:
    """The client instances that pushed between two times.

    Attributes:
        recorded: what they pushed; its first request is `NOTHING`.
        clients: a row for each instance, its attributes as of its last push, and its library.
        seconds: of the time, without missing slots.
        missing: slots of `SLOT_S` in which nobody pushed.
        unknown: pushes of which nobody knows what was requested, by the reason.
        untimed: pushes of which nobody knows for how long their client ran; they aren't in `recorded.active`.
        everybody_asked: whether at each time a subscription to something matched all clients.
    """

    recorded: RecordedPushes
    clients: pa.Table
    seconds: float
    missing: Sequence[datetime]
    unknown: dict[str, int]
    untimed: int
    everybody_asked: bool

    def requested(self, subscriptions: Sequence[Subscription]) -> tuple[Int64s, RecordedPushes, Bools]:
        """What these would request of each instance: rows of the requests of what is returned next.

        Last is whether it is known; where it isn't, nothing is requested.
        """
        requests = list(self.recorded.requests)
        rows = {each: row for row, each in enumerate(requests)}
        kinds, kind = matches_of(matchable(self.clients), subscriptions)
        star = pc.is_in(self.clients["library"], pa.array(STAR_IS_PREFIX)).to_numpy(zero_copy_only=False)
        of_kind = np.zeros((len(kinds), 2), np.int64)
        decided = np.array([UNDECIDED not in each for each in kinds], np.bool_)
        for number, matched in enumerate(kinds):
            for literal in (False, True):
                own = _request(matched, range(len(subscriptions)), subscriptions, literal)
                of_kind[number, int(literal)] = rows.setdefault(own, len(rows)) if decided[number] else 0
        requests = list(rows)
        more = np.zeros((len(self.recorded.groups), len(requests) - len(self.recorded.requests)))
        recorded = self.recorded._replace(requests=requests, pushes=np.hstack([self.recorded.pushes, more]))
        return of_kind[kind, star.astype(np.int64)], recorded, decided[kind]


def read_fleet(lake: str, cluster_id: str, versions: pa.Table, start: datetime, end: datetime) -> RecordedFleet:
    """Read what the instances of a cluster pushed.

    Args:
        versions: the cluster's rows of table `subscriptions`.

    Raises:
        NoFleetError: nobody pushed between these times.
    """
    when = timeline(versions)
    parts = {
        "days": f"BETWEEN DATE '{start:%Y-%m-%d}' AND DATE '{end:%Y-%m-%d}'",
        "between": f"BETWEEN TIMESTAMPTZ '{start.isoformat()}' AND TIMESTAMPTZ '{end.isoformat()}'",
        "cluster": quoted(cluster_id, "duckdb"),
        "keys": KEYS,
        "epochs": ", ".join(f"({_time(at)}, {number})" for number, at in enumerate(when.starts.tolist())),
        "library": LIBRARY,
        "start": start.isoformat(),
        "slot": SLOT_S,
    }
    slots = set(ask(lake, SLOTS, parts)["slot"].to_pylist())
    seconds = (end - start).total_seconds()
    missing = [slot for slot in range(math.ceil(seconds / SLOT_S)) if slot not in slots]
    rows = ask(lake, PUSHED + PUSHES_OF, parts)
    if not rows.num_rows:
        newest = ask(lake, NEWEST, parts)["landed_at"][0].as_py()
        last = "nothing ever did" if newest is None else f"the newest push landed at {newest:%Y-%m-%d %H:%M:%S} UTC"
        raise NoFleetError(
            f"no push of a client instance of cluster {cluster_id} landed between {start:%Y-%m-%d %H:%M:%S} and "
            f"{end:%Y-%m-%d %H:%M:%S} UTC: {last}"
        )
    seconds -= sum(min(SLOT_S, seconds - slot * SLOT_S) for slot in missing)
    gone = [start + timedelta(seconds=slot * SLOT_S) for slot in missing]
    return _fleet(lake, parts, rows, versions, when, seconds, gone)


def _fleet(
    lake: str,
    parts: dict[str, Any],
    rows: pa.Table,
    versions: pa.Table,
    when: Timeline,
    seconds: float,
    missing: Sequence[datetime],
) -> RecordedFleet:
    client = _numbers(rows["client_instance_id"])
    newest = _newest(client, rows["last"].cast(pa.int64()).to_numpy())
    names = ["client_id", "client_software_name", "client_software_version", "client_address", "client_port", "library"]
    clients = rows.select(["client_instance_id", *names]).take(pa.array(newest))
    requests, of_row = _requests(rows, versions, when)
    pushes = rows["pushes"].to_numpy().astype(np.float64)
    known = of_row >= 0
    by_request = np.zeros((len(newest), len(requests)))
    np.add.at(by_request, (client[known], of_row[known]), pushes[known])
    interval = _intervals(lake, parts, rows, client, of_row, requests)
    timed = ~np.isnan(interval)
    ran_s = np.bincount(client[timed], (pushes * interval)[timed] / 1000, len(newest))
    active: Doubles = np.minimum(ran_s / seconds, 1.0)

    row, metric, count, text = read_points(lake, parts, rows)
    who, asked_for = client[row], of_row[row]
    groups, kinds = _groups(clients, who, metric)
    is_requested = asked_for >= 0
    instances = clients["client_instance_id"]
    layouts, bytes_ = bytes_of_points(lake, parts, instances, groups, who, metric, count, text)

    def summed(name: str) -> Any:
        return np.bincount(client[known], rows[name].to_numpy()[known], len(newest))

    recorded = RecordedPushes(
        requests=requests,
        kinds=kinds,
        groups=groups,
        active=active,
        pushes=by_request,
        fixed=np.array([each.push for each in layouts]),
        repeats=np.array([each.repeats for each in layouts]),
        size=summed("size"),
        payload=summed("payload"),
        metrics=metric.dictionary,
        client=who[is_requested],
        request=asked_for[is_requested],
        metric=metric.indices.to_numpy().astype(np.int64)[is_requested],
        points=count[is_requested],
        bytes=bytes_[is_requested],
    )
    counted = {reason: int(pushes[of_row == code].sum()) for code, reason in UNKNOWN.items()}
    asked = _everybody_asked(versions, when, {int(epoch) for epoch in rows["epoch"].to_numpy()})
    unknown = {why: number for why, number in counted.items() if number}
    return RecordedFleet(recorded, clients, seconds, missing, unknown, int(pushes[~timed].sum()), asked)


def _intervals(
    lake: str, parts: dict[str, Any], rows: pa.Table, client: Int64s, of_row: Int64s, requests: Sequence[Requested]
) -> Doubles:
    """Milliseconds for which a push of each row counts; NaN: nobody knows.

    It is what the push says, as from brokers of 4.2 on, or what was requested of it; else that of most other pushes of
    its instance; else the median gap between the instance's pushes, which no broker lets be longer than the default.
    """
    asked = np.array([each.interval_ms for each in requests])[np.maximum(of_row, 0)]
    stated = rows["interval_ms"].to_numpy()
    interval: Doubles = np.where(stated > 0, stated, np.where(of_row >= 0, asked, np.nan))
    known = np.flatnonzero(~np.isnan(interval))
    own = np.full(client.max() + 1, np.nan)
    by_pushes = known[np.argsort(rows["pushes"].to_numpy()[known], kind="stable")]
    own[client[by_pushes]] = interval[by_pushes]  # the last one counts
    if np.isnan(own).any():
        gaps = ask(lake, PUSHED + GAPS, parts)
        instances = rows["client_instance_id"].combine_chunks().dictionary_encode().dictionary
        which = pc.index_in(gaps["client_instance_id"], instances).to_numpy()
        gap = np.full(len(own), np.nan)
        gap[which] = gaps["gap_ms"].to_numpy().clip(max=DEFAULT_INTERVAL_MS)
        own = np.where(np.isnan(own), gap, own)
    return np.where(np.isnan(interval), own[client], interval)


UNCERTAIN, OPEN, UNASKED = -1, -2, -3
UNKNOWN = {
    UNCERTAIN: "landed between two polls that found other subscriptions",
    OPEN: "are of clients that a subscription matches or not: its pattern can't be evaluated",
    UNASKED: "were asked for by no subscription that `telemetry-lake sync` saw",
}


def _requests(rows: pa.Table, versions: pa.Table, when: Timeline) -> tuple[list[Requested], Int64s]:
    """Distinct requests, and that of each row's pushes, or why it isn't known: a key of `UNKNOWN`."""
    subscriptions = [subscription_of(version) for version in versions.to_pylist()]
    kinds, kind = matches_of(matchable(rows), subscriptions)
    numbers = {NOTHING: 0}
    cache: dict[tuple[int, int, bool], int] = {}
    found = []
    columns = (kind.tolist(), rows["epoch"].to_pylist(), rows["library"].to_pylist(), rows["uncertain"].to_pylist())
    for which, epoch, library, uncertain in zip(*columns, strict=True):
        key = which, epoch, library in STAR_IS_PREFIX
        if key not in cache:
            in_force = when.in_force[epoch]
            if any(kinds[which][version] == UNDECIDED for version in in_force):
                cache[key] = OPEN
            else:
                own = _request(kinds[which], in_force, subscriptions, key[2])
                cache[key] = numbers.setdefault(own, len(numbers)) if own.prefixes else UNASKED
        found.append(UNCERTAIN if uncertain else cache[key])
    return list(numbers), np.array(found, np.int64)


def _request(matched: list[int], which: Iterable[int], all_: Sequence[Subscription], literal: bool) -> Requested:
    return request((all_[number] for number in which if matched[number]), literal)


def _everybody_asked(versions: pa.Table, when: Timeline, epochs: set[int]) -> bool:
    subscriptions = [subscription_of(version) for version in versions.to_pylist()]
    return all(
        any(subscriptions[number].metrics and not subscriptions[number].match for number in when.in_force[epoch])
        for epoch in epochs
    )


def _groups(clients: pa.Table, client: Int64s, metric: pa.DictionaryArray) -> tuple[Int64s, list[frozenset[str]]]:
    """The group of each instance by library, software, version and kinds; and the kinds of each group."""
    names = [kind_of(name) for name in metric.dictionary.to_pylist()]
    known = sorted(set(names) - {""})
    bit = np.array([1 << known.index(name) if name else 0 for name in names], np.int64)
    kinds = np.zeros(clients.num_rows, np.int64)
    np.bitwise_or.at(kinds, client, bit[metric.indices.to_numpy()])
    software = zip(
        clients["client_software_name"].to_pylist(), clients["client_software_version"].to_pylist(), kinds.tolist(),
        strict=True,
    )  # fmt: skip
    numbers: dict[Any, int] = {}
    groups = np.array([numbers.setdefault(each, len(numbers)) for each in software], np.int64)
    return groups, [frozenset(name for i, name in enumerate(known) if mask >> i & 1) for *_, mask in numbers]


def _newest(client: Int64s, last: Int64s) -> Int64s:
    """The last of the rows of each instance."""
    order = np.lexsort((last, client))
    ends = np.append(np.flatnonzero(np.diff(client[order])), len(order) - 1)
    newest: Int64s = order[ends]
    return newest


def _numbers(texts: pa.ChunkedArray) -> Int64s:
    numbers: Int64s = texts.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _time(micros: int) -> str:
    at = datetime.min if micros == EARLIEST else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
    return f"TIMESTAMPTZ '{at.isoformat()}{'' if at.tzinfo else 'Z'}'"
