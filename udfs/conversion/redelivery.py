"""Checks each push in arrival order: redelivery (D1, D2, D6), gaps (D3), temporality (C9) and eviction (C12).

Its state is per client and push, so a DELTA client costs nothing per series.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.push_state import (
    BatchClients,
    ClientLists,
    batch_columns,
    batch_lists,
    list_table,
)
from kafka_telemetry_lake.udfs.conversion.state import CLIENTS, LOST_INTERVALS, RECENT_PUSHES, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int8s, Int32s, Int64s, column
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.limits import Limits

DELTA = 1  # bits of `temporalities`
CUMULATIVE = 2
BOTH = 3
LATEST_US = ((1 << 63) - 1) // 1000
WINDOW, PUSHES, EVICT_AFTER, EVICT_TERMINATED_AFTER, TOMBSTONE = range(5)  # of `Limits.packed`


class Verdict(IntEnum):
    """How a push is treated as a whole."""

    ACCEPTED = 0
    DUPLICATE = 1  # D2
    TOO_LATE = 2  # D6
    REREAD = 3  # D1: the same record again; changes nothing
    LIVENESS = 4  # no points to convert: heartbeat, dropped, quarantined
    FOREIGN = 5  # of another principal than the client's: changes nothing about the client


class PushFacts(NamedTuple):
    """One row per push that names a client, in arrival order. Times in ns, landing times in us, 0: none."""

    client: Int64s  # identity.client_keys
    place: Int32s  # sharding.places_of its id
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
    principal: Int64s  # hash, 0: unknown
    foreign: Bools  # another one than the client's


class PushVerdicts(NamedTuple):
    """One row per push of `PushFacts`."""

    verdict: Int8s
    epoch: Int64s  # evictions of the client within this batch up to here
    sent: Int8s  # temporalities that the client had sent before
    delta_time: Int64s  # latest time of its DELTA pushes before
    tombstone_time: Int64s  # the tombstone in force, 0: none
    lost_start: Int64s  # D3: interval that is missing before this push, 0: none
    lost_end: Int64s
    filled_start: Int64s  # D3: the part of a lost interval that this late push fills, 0: none
    filled_end: Int64s
    flipped: Bools  # C9


def check_pushes(facts: PushFacts, state: ShardState, limits: Limits) -> tuple[PushVerdicts, ShardState]:
    """Check each push against those before it.

    Args:
        facts: the pushes of a batch.
        state: the rows of these clients only.
        limits: of the redelivery window and of the state.

    Returns:
        One verdict per push, and these clients' state with its three push-level tables brought up to date.
    """
    stored_clients = column(state.clients, "client")
    row, size = number(np.concatenate([stored_clients, facts.client]))
    row = row[len(stored_clients) :]
    clients = batch_columns(state.clients, facts.client, row, size)
    arrivals = np.bincount(row, minlength=size)
    recent = batch_lists(state.recent_pushes, RECENT_PUSHES, stored_clients, arrivals)
    lost = batch_lists(state.lost_intervals, LOST_INTERVALS, stored_clients, arrivals)
    verdicts = _no_verdicts(len(row))
    _check(facts, row, clients, np.zeros(size, np.int64), recent, lost, limits.packed(), verdicts)
    return verdicts, ShardState(
        clients=pa.table([pa.array(values) for values in clients], CLIENTS),
        recent_pushes=list_table(recent, clients.client, RECENT_PUSHES),
        lost_intervals=list_table(lost, clients.client, LOST_INTERVALS),
        numbers=state.numbers,
        distributions=state.distributions,
    )


def _no_verdicts(size: int) -> PushVerdicts:
    kinds = {"verdict": np.int8, "sent": np.int8, "flipped": np.bool_}
    return PushVerdicts(*(np.zeros(size, kinds.get(name, np.int64)) for name in PushVerdicts._fields))


@kernel
def _check(
    facts: PushFacts,
    row: Int64s,
    clients: BatchClients,
    evictions: Int64s,
    recent: ClientLists,
    lost: ClientLists,
    bounds: Int64s,
    out: PushVerdicts,
) -> None:
    recent_digest, recent_push, _ = recent.columns
    for i in range(len(row)):
        c = row[i]
        if facts.foreign[i]:
            out.verdict[i] = Verdict.FOREIGN
            continue
        _note_principal(facts, i, clients, c, bounds[EVICT_AFTER])
        if _is_evicted(facts.landed_at[i], c, clients, bounds):
            evictions[c] += 1
            recent.size[c] = lost.size[c] = 0
        out.epoch[i] = evictions[c]
        out.sent[i] = clients.temporalities[c]
        out.delta_time[i] = clients.delta_time[c]
        if facts.landed_at[i] <= clients.tombstone_until[c]:
            out.tombstone_time[i] = clients.tombstone_time[c]

        searched = recent.size[c] if facts.has_points[i] else 0
        seen = _find(facts.digest[i], facts.push[i], recent_digest, recent_push, recent.first[c], searched)
        if seen >= 0 and recent_push[seen] == facts.push[i]:
            out.verdict[i] = Verdict.REREAD
            continue
        clients.place[c] = facts.place[i]
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
        # After an eviction there are no digests: a push not later than the tombstone may be a redelivery too.
        oldest = _window(clients.landed_at[c], clients.last_time[c], bounds)
        is_old = facts.last_time[i] < oldest or facts.last_time[i] <= out.tombstone_time[i]
        if facts.delta_time[i] != 0 and is_old:
            out.verdict[i] = Verdict.TOO_LATE
            continue
        clients.terminating[c] = facts.terminating[i]

        late = facts.last_time[i] < clients.last_time[c]
        if facts.first_start[i] != 0 and clients.last_time[c] != 0:
            _check_chain(facts, i, late, clients, c, lost, out)
        _note_temporalities(facts, i, late, clients, c, out)
        if not late:
            clients.last_time[c] = facts.last_time[i]
            clients.last_landed_at[c] = facts.landed_at[i]
        oldest = _window(clients.landed_at[c], clients.last_time[c], bounds)
        _remember(facts, i, oldest, bounds[PUSHES], c, recent, lost)


@linked
def _note_principal(facts: PushFacts, i: int, clients: BatchClients, c: int, evict_after: int) -> None:
    """A client belongs to its first known principal until none of its pushes has landed for `evict_after`."""
    if clients.principal[c] == 0 or facts.landed_at[i] - clients.landed_at[c] > evict_after:
        clients.principal[c] = facts.principal[i]


@linked
def _note_temporalities(facts: PushFacts, i: int, late: bool, clients: BatchClients, c: int, out: PushVerdicts) -> None:
    if facts.temporalities[i] == 0:
        return
    if not late:
        before = clients.last_temporality[c]
        out.flipped[i] = before != 0 and before + facts.temporalities[i] == BOTH
        clients.last_temporality[c] = facts.temporalities[i]
    clients.temporalities[c] |= facts.temporalities[i]
    clients.delta_time[c] = max(clients.delta_time[c], facts.delta_time[i])


@linked
def _window(landed_at: int, last_time: int, bounds: Int64s) -> int:
    """Start of a client's redelivery window: a clock that ran ahead can't move it beyond its landings (D6, P8)."""
    begin: int = min(last_time, min(landed_at, LATEST_US) * 1000) - bounds[WINDOW]
    return begin


@linked
def _is_evicted(landed_at: int, c: int, clients: BatchClients, bounds: Int64s) -> bool:
    """C12: whether a push lands too long after its client's last one, or the client's rows were removed already.

    Only the tombstone remains then: the client's last times and the temporalities that it has sent.
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


@linked
def _check_chain(
    facts: PushFacts, i: int, late: bool, clients: BatchClients, c: int, lost: ClientLists, out: PushVerdicts
) -> None:
    """D3: if a push starts after the covered time, open a lost interval; a late push may fill one."""
    starts, ends = lost.columns
    if late:
        lost.size[c], out.filled_start[i], out.filled_end[i] = _fill(
            facts.first_start[i], facts.last_time[i], starts, ends, lost.first[c], lost.size[c]
        )
        return
    covered, tolerance = clients.last_time[c], 0
    if clients.heartbeat_at[c] > clients.last_landed_at[c]:  # D5: a heartbeat covers time too, up to its landing
        covered += (clients.heartbeat_at[c] - clients.last_landed_at[c]) * 1000
        tolerance = facts.interval[i]
    if facts.first_start[i] > covered + tolerance:
        end = lost.first[c] + lost.size[c]
        out.lost_start[i] = starts[end] = covered
        out.lost_end[i] = ends[end] = facts.first_start[i]
        lost.size[c] += 1


@linked
def _remember(
    facts: PushFacts, i: int, oldest: int, at_least: int, c: int, recent: ClientLists, lost: ClientLists
) -> None:
    """D2: add the push; drop pushes and lost intervals older than the window, which nothing can fill any more (D6)."""
    digests, pushes, times = recent.columns
    end = recent.first[c] + recent.size[c]
    digests[end], pushes[end], times[end] = facts.digest[i], facts.push[i], facts.last_time[i]
    recent.size[c] += 1
    while recent.size[c] > at_least and times[recent.first[c]] < oldest:
        recent.first[c] += 1
        recent.size[c] -= 1
    _, lost_ends = lost.columns
    while lost.size[c] > 0 and lost_ends[lost.first[c]] < oldest:  # they are in order of time
        lost.first[c] += 1
        lost.size[c] -= 1


@linked
def _find(digest: int, push: int, digests: Int64s, pushes: Int64s, first: int, size: int) -> int:
    """The row of the same record, else of a push with the same digest, else -1."""
    seen = -1
    for r in range(first, first + size):
        if digests[r] == digest:
            seen = r
            if pushes[r] == push:
                break
    return seen


@linked
def _fill(start: int, end: int, starts: Int64s, ends: Int64s, first: int, size: int) -> tuple[int, int, int]:
    """Cut (start, end] out of the lost intervals; the rest of them stays open, in order of time.

    Returns:
        The number of open intervals, and start and end of what was filled (0, 0: nothing).
    """
    filled_start = filled_end = 0
    r = first
    while r < first + size:
        if starts[r] < end and start < ends[r]:
            filled_start = max(starts[r], start) if filled_start == 0 else filled_start
            filled_end = min(ends[r], end)
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
    return size, filled_start, filled_end
