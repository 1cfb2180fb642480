"""Push by push, in arrival order: redelivery (D1, D2, D6), gaps (D3), temporality (C9) and eviction (C12).

All of it is state per client and push, so a DELTA client costs nothing per series.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.compiled import kernel
from udfs.hashing import number
from udfs.state import CLIENTS, LOST_INTERVALS, RECENT_PUSHES, ClientStates, ShardState, column

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

DELTA = 1  # bits of `temporalities`
CUMULATIVE = 2
BOTH = 3
# How far a partition's landing time must be beyond a client's eviction before its rows are removed: a push that
# landed before the eviction may still follow it out of order.
REMOVAL_MARGIN_US = 3600 * 1_000_000
MICROS = 1_000_000
NANOS = 1_000_000_000
WINDOW, PUSHES, EVICT_AFTER, EVICT_TERMINATED_AFTER, TOMBSTONE = range(5)  # of `Bounds.packed`


class Verdict(IntEnum):
    """What the push itself is."""

    ACCEPTED = 0
    DUPLICATE = 1  # D2
    TOO_LATE = 2  # D6
    REREAD = 3  # D1: the same record again; changes nothing
    LIVENESS = 4  # no points to convert: heartbeat, dropped, quarantined


class PushFacts(NamedTuple):
    """One row per push that names a client, in arrival order. Times in ns, landing times in us, 0: none."""

    client: Int64s  # identity.client_keys
    partition: Int64s  # hash of the landing partition
    push: Int64s  # hash of source, cluster_id, topic, partition and offset
    landed_at: Int64s
    interval: Int64s  # push interval, ns
    terminating: Bools
    has_points: Bools
    is_heartbeat: Bools  # decoded, without a point
    digest: Int64s
    temporalities: Int8s  # bits of the points in it
    first_start: Int64s  # earliest start of its DELTA points over a positive interval
    last_time: Int64s
    delta_time: Int64s  # latest time of its DELTA points


class PushVerdicts(NamedTuple):
    """One row per push of `PushFacts`."""

    verdict: Int8s
    epoch: Int64s  # evictions of the client within this batch up to here
    sent: Int8s  # temporalities that the client had sent before
    delta_time: Int64s  # latest time of its DELTA pushes before
    tombstone_time: Int64s  # the tombstone in force, 0: none
    lost_start: Int64s  # D3: interval that is missing before this push, 0: none
    lost_end: Int64s
    found_start: Int64s  # D3: part of a lost interval that this late push fills, 0: none
    found_end: Int64s
    flipped: Bools  # C9


@dataclass(frozen=True)
class Bounds:
    """Limits of this part, in the units of `PushFacts`."""

    redelivery_window_s: int
    redelivery_pushes: int
    evict_after_s: int
    evict_terminated_after_s: int
    tombstone_s: int

    def packed(self) -> Int64s:
        """The kernel's argument: by WINDOW in ns, PUSHES, and EVICT_AFTER, EVICT_TERMINATED_AFTER, TOMBSTONE in us."""
        seconds = (self.evict_after_s, self.evict_terminated_after_s, self.tombstone_s)
        micros = (value * MICROS for value in seconds)
        return np.array([self.redelivery_window_s * NANOS, self.redelivery_pushes, *micros], np.int64)


def judge_pushes(facts: PushFacts, state: ShardState, bounds: Bounds) -> tuple[PushVerdicts, ShardState]:
    """Judge each push, and return the three push-level tables of its clients' new state.

    Args:
        facts: the pushes of a batch.
        state: the rows of these clients only.
        bounds: limits.
    """
    known = column(state.clients, "client")
    row, size = number(np.concatenate([known, facts.client]))
    row = row[len(known) :]
    clients = _clients(state.clients, facts.client, row, size)
    arrivals = np.bincount(row, minlength=size)
    recent = _lists(state.recent_pushes, RECENT_PUSHES, known, arrivals)
    lost = _lists(state.lost_intervals, LOST_INTERVALS, known, arrivals)
    verdicts = _no_verdicts(len(row))
    _judge(facts, row, clients, np.zeros(size, np.int64), recent, lost, bounds.packed(), verdicts)
    return verdicts, ShardState(
        clients=pa.table([pa.array(values) for values in clients], CLIENTS),
        recent_pushes=_list_table(recent, clients.client, RECENT_PUSHES),
        lost_intervals=_list_table(lost, clients.client, LOST_INTERVALS),
        numbers=state.numbers,
        distributions=state.distributions,
    )


def evictions(state: ClientStates, partition: Int64s, landed_at: Int64s, bounds: Bounds) -> ShardState:
    """The clients of whom something goes that no push can reach any more (C12), with what stays of them.

    Each is measured against its own landing partition. Which push finds its client evicted is judged when that push
    comes (`judge_pushes`), so removal changes no row.

    Args:
        state: all clients of the shard.
        partition: landing partition of each push of the batch.
        landed_at: its landing time, us.
        bounds: limits.
    """
    partitions, index = np.unique(partition, return_inverse=True)
    latest = np.full(len(partitions) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, index, landed_at)
    clients = state.heard()
    place = np.searchsorted(partitions, clients.partition)
    place[(place < len(partitions)) & (np.append(partitions, 0)[place] != clients.partition)] = len(partitions)
    limit = np.where(clients.terminating, bounds.evict_terminated_after_s, bounds.evict_after_s)
    due = clients.landed_at + limit * MICROS + REMOVAL_MARGIN_US
    gone = (latest[place] > due) & ~clients.evicted
    forgotten = latest[place] > due + bounds.tombstone_s * MICROS
    kept = state.rows_of(clients.client[gone & ~forgotten]).clients
    kept = kept.set_column(
        CLIENTS.get_field_index("evicted"), CLIENTS.field("evicted"), pa.array(np.ones(kept.num_rows, np.bool_))
    )
    return ShardState.joined(
        [replace(ShardState.empty(), clients=kept), ShardState.never_heard(clients.client[forgotten])]
    )


class _Clients(NamedTuple):
    """`state.CLIENTS`, a row per client of the batch."""

    client: Int64s
    partition: Int64s
    landed_at: Int64s
    terminating: Bools
    evicted: Bools
    temporalities: Int8s
    last_temporality: Int8s
    last_time: Int64s
    last_landed_at: Int64s
    heartbeat_at: Int64s
    delta_time: Int64s
    tombstone_time: Int64s
    tombstone_until: Int64s


class _Lists(NamedTuple):
    """A list per client, with room for one more entry per push: `size[c]` entries from `first[c]` of the columns."""

    first: Int64s
    size: Int64s
    columns: tuple[Int64s, ...]


def _clients(known: pa.Table, keys: Int64s, row: Int64s, size: int) -> _Clients:
    columns = []
    for field in CLIENTS:
        values = np.zeros(size, field.type.to_pandas_dtype())
        values[: known.num_rows] = column(known, field.name)
        columns.append(values)
    clients = _Clients(*columns)
    clients.client[row] = keys
    return clients


def _lists(table: pa.Table, schema: pa.Schema, known: Int64s, arrivals: Int64s) -> _Lists:
    owner, _ = number(np.concatenate([known, column(table, "client")]))
    owner = owner[len(known) :]
    size = np.bincount(owner, minlength=len(arrivals)).astype(np.int64)
    first = np.cumsum(size + arrivals) - (size + arrivals)
    order = np.argsort(owner, kind="stable")
    place = np.repeat(first, size) + _rank(size)
    columns = []
    for name in schema.names[1:]:
        values = np.zeros(int((size + arrivals).sum()), np.int64)
        values[place] = column(table, name)[order]
        columns.append(values)
    return _Lists(first, size, tuple(columns))


def _list_table(lists: _Lists, keys: Int64s, schema: pa.Schema) -> pa.Table:
    rows = np.repeat(lists.first, lists.size) + _rank(lists.size)
    return pa.table([np.repeat(keys, lists.size), *(values[rows] for values in lists.columns)], schema)


def _rank(size: Int64s) -> Int64s:
    """0 to size - 1 for each list."""
    ranks: Int64s = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    return ranks


def _no_verdicts(size: int) -> PushVerdicts:
    kinds = {"verdict": np.int8, "sent": np.int8, "flipped": np.bool_}
    return PushVerdicts(*(np.zeros(size, kinds.get(name, np.int64)) for name in PushVerdicts._fields))


@kernel
def _judge(
    facts: PushFacts,
    row: Int64s,
    clients: _Clients,
    evictions: Int64s,
    recent: _Lists,
    lost: _Lists,
    bounds: Int64s,
    out: PushVerdicts,
) -> None:
    recent_digest, recent_push, _ = recent.columns
    for i in range(len(row)):
        c = row[i]

        if _is_evicted(facts.landed_at[i], c, clients, bounds):
            evictions[c] += 1
            recent.size[c] = lost.size[c] = 0
        out.epoch[i] = evictions[c]
        out.sent[i] = clients.temporalities[c]
        out.delta_time[i] = clients.delta_time[c]
        if facts.landed_at[i] <= clients.tombstone_until[c]:
            out.tombstone_time[i] = clients.tombstone_time[c]

        held = recent.size[c] if facts.has_points[i] else 0
        seen = _find(facts.digest[i], facts.push[i], recent_digest, recent_push, recent.first[c], held)
        if seen >= 0 and recent_push[seen] == facts.push[i]:
            out.verdict[i] = Verdict.REREAD
            continue
        clients.partition[c] = facts.partition[i]
        clients.landed_at[c] = max(clients.landed_at[c], facts.landed_at[i])
        if not facts.has_points[i]:
            out.verdict[i] = Verdict.LIVENESS
            clients.terminating[c] = facts.terminating[i]
            if facts.is_heartbeat[i]:
                clients.heartbeat_at[c] = max(clients.heartbeat_at[c], facts.landed_at[i])
            continue
        if seen >= 0:
            out.verdict[i] = Verdict.DUPLICATE
            continue
        # After an eviction the digests are gone: whatever isn't later than the tombstone may be a redelivery too.
        oldest = clients.last_time[c] - bounds[WINDOW]
        is_old = facts.last_time[i] < oldest or facts.last_time[i] <= out.tombstone_time[i]
        if facts.delta_time[i] != 0 and is_old:
            out.verdict[i] = Verdict.TOO_LATE
            continue
        clients.terminating[c] = facts.terminating[i]

        late = facts.last_time[i] < clients.last_time[c]
        if facts.first_start[i] != 0 and clients.last_time[c] != 0:
            _check_chain(facts, i, late, clients, c, lost, out)
        if facts.temporalities[i] != 0:
            if not late:
                before = clients.last_temporality[c]
                out.flipped[i] = before != 0 and before + facts.temporalities[i] == BOTH
                clients.last_temporality[c] = facts.temporalities[i]
            clients.temporalities[c] |= facts.temporalities[i]
            clients.delta_time[c] = max(clients.delta_time[c], facts.delta_time[i])
        if not late:
            clients.last_time[c] = facts.last_time[i]
            clients.last_landed_at[c] = facts.landed_at[i]
        _remember(facts, i, clients.last_time[c] - bounds[WINDOW], bounds[PUSHES], c, recent, lost)


@kernel
def _is_evicted(landed_at: int, c: int, clients: _Clients, bounds: Int64s) -> bool:
    """C12: whether a push lands too long after its client's last one, or its rows are gone already.

    What is left then is the tombstone: the client's last times and the temporalities that it has sent.
    """
    if clients.landed_at[c] == 0:
        return False
    limit = bounds[EVICT_TERMINATED_AFTER] if clients.terminating[c] else bounds[EVICT_AFTER]
    if not clients.evicted[c] and landed_at - clients.landed_at[c] <= limit:
        return False
    clients.evicted[c] = False
    clients.tombstone_time[c] = clients.last_time[c]
    clients.tombstone_until[c] = clients.landed_at[c] + limit + bounds[TOMBSTONE]
    clients.last_temporality[c] = clients.heartbeat_at[c] = 0
    if landed_at > clients.tombstone_until[c]:
        clients.tombstone_time[c] = clients.last_time[c] = clients.delta_time[c] = clients.temporalities[c] = 0
    return True


@kernel
def _check_chain(
    facts: PushFacts, i: int, late: bool, clients: _Clients, c: int, lost: _Lists, out: PushVerdicts
) -> None:
    """D3: a push that begins after what is covered leaves a lost interval open; a late one may fill some."""
    starts, ends = lost.columns
    if late:
        lost.size[c], out.found_start[i], out.found_end[i] = _fill(
            facts.first_start[i], facts.last_time[i], starts, ends, lost.first[c], lost.size[c]
        )
        return
    covered, tolerance = clients.last_time[c], 0
    if clients.heartbeat_at[c] > clients.last_landed_at[c]:  # it covers time too; when, its landing tells
        covered += (clients.heartbeat_at[c] - clients.last_landed_at[c]) * 1000
        tolerance = facts.interval[i]
    if facts.first_start[i] > covered + tolerance:
        end = lost.first[c] + lost.size[c]
        out.lost_start[i] = starts[end] = covered
        out.lost_end[i] = ends[end] = facts.first_start[i]
        lost.size[c] += 1


@kernel
def _remember(facts: PushFacts, i: int, oldest: int, at_least: int, c: int, recent: _Lists, lost: _Lists) -> None:
    """D2's memory, less what is older than the window; what is older can't be filled any more either (D6)."""
    digests, pushes, times = recent.columns
    end = recent.first[c] + recent.size[c]
    digests[end], pushes[end], times[end] = facts.digest[i], facts.push[i], facts.last_time[i]
    recent.size[c] += 1
    while recent.size[c] > at_least and times[recent.first[c]] < oldest:
        recent.first[c] += 1
        recent.size[c] -= 1
    _, lost_ends = lost.columns
    while lost.size[c] > 0 and lost_ends[lost.first[c]] < oldest:  # they stand in order of time
        lost.first[c] += 1
        lost.size[c] -= 1


@kernel
def _find(digest: int, push: int, digests: Int64s, pushes: Int64s, first: int, size: int) -> int:
    """The row of this very push, else of one with the same digest, else -1."""
    seen = -1
    for r in range(first, first + size):
        if digests[r] == digest:
            seen = r
            if pushes[r] == push:
                break
    return seen


@kernel
def _fill(start: int, end: int, starts: Int64s, ends: Int64s, first: int, size: int) -> tuple[int, int, int]:
    """Cut (start, end] out of the lost intervals; what is left of them stays open, in order of time.

    Returns:
        How many intervals are open now, and from where to where the cut pieces go (0, 0: nothing was cut).
    """
    found_start = found_end = 0
    r = first
    while r < first + size:
        if starts[r] < end and start < ends[r]:
            found_start = max(starts[r], start) if found_start == 0 else found_start
            found_end = min(ends[r], end)
            before, after = starts[r] < start, end < ends[r]
            if before and after:
                for later in range(first + size, r, -1):
                    starts[later], ends[later] = starts[later - 1], ends[later - 1]
                size += 1
                ends[r], starts[r + 1] = start, end
                break
            if before:
                ends[r] = start
            elif after:
                starts[r] = end
            else:
                for later in range(r, first + size - 1):
                    starts[later], ends[later] = starts[later + 1], ends[later + 1]
                size -= 1
                continue
        r += 1
    return size, found_start, found_end
