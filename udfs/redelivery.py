"""Push by push, in arrival order: redelivery (D1, D2, D6), gaps (D3), temporality (C9) and eviction (C12).

All of it is state per client and push, so a DELTA client costs nothing per series.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.compiled import kernel
from udfs.hashing import number
from udfs.state import CLIENTS, LOST_INTERVALS, RECENT_PUSHES, ShardState, column

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

DELTA = 1  # bits of `temporalities`
CUMULATIVE = 2
# How far a partition's landing time must be beyond a client's eviction before its rows are removed: a push that
# landed before the eviction may still follow it out of order.
REMOVAL_MARGIN_US = 3600 * 1_000_000
MICROS = 1_000_000
NANOS = 1_000_000_000


class Verdict(IntEnum):
    """What the push itself is."""

    ACCEPTED = 0
    DUPLICATE = 1  # D2
    TOO_LATE = 2  # D6
    REREAD = 3  # D1: the same record again; changes nothing
    LIVENESS = 4  # no points to convert: heartbeat, dropped, quarantined


@dataclass(frozen=True)
class PushFacts:
    """One row per push that names a client, in arrival order. Times in ns, landing times in us, 0: none."""

    client: Int64s  # identity.client_keys
    partition: Int64s  # hash of the landing partition
    push: Int64s  # hash of source, cluster_id, topic, partition and offset
    landed_at: Int64s
    interval: Int64s  # push interval, ns
    terminating: Bools
    has_points: Bools
    digest: Int64s
    temporalities: Int8s  # bits of the points in it
    first_start: Int64s  # earliest start of its DELTA points over a positive interval
    last_time: Int64s
    delta_time: Int64s  # latest time of its DELTA points


@dataclass(frozen=True)
class PushVerdicts:
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
        """The kernel's argument: window in ns, pushes, then us."""
        return np.array(
            [
                self.redelivery_window_s * NANOS,
                self.redelivery_pushes,
                self.evict_after_s * MICROS,
                self.evict_terminated_after_s * MICROS,
                self.tombstone_s * MICROS,
            ],
            np.int64,
        )


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
    clients = _client_columns(state.clients, facts.client, row, size)
    arrivals = np.bincount(row, minlength=size)
    recent = _Lists.of(state.recent_pushes, known, arrivals, ("digest", "push", "last_time"))
    lost = _Lists.of(state.lost_intervals, known, arrivals, ("start", "end"))
    n = len(row)
    verdicts = PushVerdicts(
        verdict=np.zeros(n, np.int8),
        epoch=np.zeros(n, np.int64),
        sent=np.zeros(n, np.int8),
        flipped=np.zeros(n, np.bool_),
        **{name: np.zeros(n, np.int64) for name in _TIMES},
    )
    _judge(
        row, facts.partition, facts.push, facts.landed_at, facts.interval, facts.terminating, facts.has_points,
        facts.digest, facts.temporalities, facts.first_start, facts.last_time, facts.delta_time,
        *(clients[name] for name in CLIENTS.names[1:]),
        recent.first, recent.size, *recent.columns.values(),
        lost.first, lost.size, *lost.columns.values(),
        np.zeros(size, np.int64), bounds.packed(),
        verdicts.verdict, verdicts.epoch, verdicts.sent, verdicts.delta_time, verdicts.tombstone_time,
        verdicts.lost_start, verdicts.lost_end, verdicts.found_start, verdicts.found_end, verdicts.flipped,
    )  # fmt: skip
    keys = clients["client"]
    return verdicts, ShardState(
        clients=pa.table([pa.array(clients[name]) for name in CLIENTS.names], CLIENTS),
        recent_pushes=recent.table(keys, RECENT_PUSHES),
        lost_intervals=lost.table(keys, LOST_INTERVALS),
        numbers=state.numbers,
        distributions=state.distributions,
    )


_TIMES = ("delta_time", "tombstone_time", "lost_start", "lost_end", "found_start", "found_end")


def evict(state: ShardState, partition: Int64s, landed_at: Int64s, bounds: Bounds) -> ShardState:
    """Remove what no push can reach any more (C12): measured against each client's own landing partition.

    Which push finds its client evicted is judged when that push comes (`judge_pushes`), so removal changes no row.

    Args:
        state: all clients of the shard.
        partition: landing partition of each push of the batch.
        landed_at: its landing time, us.
        bounds: limits.
    """
    partitions, index = np.unique(partition, return_inverse=True)
    latest = np.full(len(partitions) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, index, landed_at)
    own = column(state.clients, "partition")
    place = np.searchsorted(partitions, own)
    place[(place < len(partitions)) & (np.append(partitions, 0)[place] != own)] = len(partitions)
    limit = np.where(column(state.clients, "terminating"), bounds.evict_terminated_after_s, bounds.evict_after_s)
    due = column(state.clients, "landed_at") + limit * MICROS + REMOVAL_MARGIN_US
    gone = latest[place] > due
    forgotten = latest[place] > due + bounds.tombstone_s * MICROS
    evicted = column(state.clients, "evicted")
    if not (gone & ~evicted).any() and not forgotten.any():
        return state
    keys = column(state.clients, "client")
    kept = state.without(keys[gone])
    clients = state.clients.set_column(
        CLIENTS.get_field_index("evicted"), CLIENTS.field("evicted"), pa.array(evicted | gone)
    ).filter(pa.array(~forgotten))
    return ShardState(clients, kept.recent_pushes, kept.lost_intervals, kept.numbers, kept.distributions)


def _client_columns(known: pa.Table, keys: Int64s, row: Int64s, size: int) -> dict[str, npt.NDArray[np.generic]]:
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for field in CLIENTS:
        columns[field.name] = np.zeros(size, field.type.to_pandas_dtype())
        columns[field.name][: known.num_rows] = column(known, field.name)
    columns["client"][row] = keys
    return columns


@dataclass
class _Lists:
    """A list per client, with room for one more entry per push: `size[c]` rows from `first[c]` of the columns."""

    first: Int64s
    size: Int64s
    columns: dict[str, Int64s]

    @staticmethod
    def of(table: pa.Table, known: Int64s, arrivals: Int64s, names: tuple[str, ...]) -> _Lists:
        owner, _ = number(np.concatenate([known, column(table, "client")]))
        owner = owner[len(known) :]
        size = np.bincount(owner, minlength=len(arrivals)).astype(np.int64)
        first = np.cumsum(size + arrivals) - (size + arrivals)
        order = np.argsort(owner, kind="stable")
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
        place = first[owner[order]] + rank
        columns = {}
        for name in names:
            columns[name] = np.zeros(int((size + arrivals).sum()), np.int64)
            columns[name][place] = column(table, name)[order]
        return _Lists(first, size, columns)

    def table(self, keys: Int64s, schema: pa.Schema) -> pa.Table:
        rank = np.arange(int(self.size.sum())) - np.repeat(np.cumsum(self.size) - self.size, self.size)
        rows = np.repeat(self.first, self.size) + rank
        return pa.table([np.repeat(keys, self.size), *(values[rows] for values in self.columns.values())], schema)


@kernel
def _judge(
    row: Int64s, partition: Int64s, push: Int64s, landed: Int64s, interval: Int64s, terminating: Bools,
    has_points: Bools, digest: Int64s, temporalities: Int8s, first_start: Int64s, last_time: Int64s,
    delta_time: Int64s,
    client_partition: Int64s, client_landed: Int64s, client_terminating: Bools, client_evicted: Bools,
    client_sent: Int8s, client_temporality: Int8s, client_time: Int64s, client_time_landed: Int64s,
    client_heartbeat: Int64s, client_delta_time: Int64s, client_tombstone: Int64s, client_tombstone_until: Int64s,
    recent_first: Int64s, recent_size: Int64s, recent_digest: Int64s, recent_push: Int64s, recent_time: Int64s,
    lost_first: Int64s, lost_size: Int64s, lost_starts: Int64s, lost_ends: Int64s,
    evictions: Int64s, bounds: Int64s,
    verdict: Int8s, epoch: Int64s, sent_before: Int8s, delta_before: Int64s, tombstone: Int64s,
    lost_start: Int64s, lost_end: Int64s, found_start: Int64s, found_end: Int64s, flipped: Bools,
) -> None:  # fmt: skip
    window, pushes_kept, evict_after, evict_terminated_after, tombstone_for = bounds
    for i in range(len(row)):
        c = row[i]

        # C12: evicted when this push lands too long after the client's last one, or when its rows are gone already.
        if client_landed[c] != 0:
            age = landed[i] - client_landed[c]
            limit = evict_terminated_after if client_terminating[c] else evict_after
            if age > limit or client_evicted[c]:
                evictions[c] += 1
                client_evicted[c] = False
                client_tombstone[c] = client_time[c]
                client_tombstone_until[c] = client_landed[c] + limit + tombstone_for
                if landed[i] > client_tombstone_until[c]:
                    client_tombstone[c] = 0
                    client_time[c] = 0
                    client_sent[c] = 0
                client_sent[c] &= CUMULATIVE
                client_temporality[c] = 0
                client_delta_time[c] = 0
                client_heartbeat[c] = 0
                recent_size[c] = 0
                lost_size[c] = 0
        epoch[i] = evictions[c]
        sent_before[i] = client_sent[c]
        delta_before[i] = client_delta_time[c]
        if landed[i] <= client_tombstone_until[c]:
            tombstone[i] = client_tombstone[c]

        first, size = recent_first[c], recent_size[c]
        if has_points[i]:
            seen = -1
            for r in range(first, first + size):
                if recent_digest[r] == digest[i]:
                    seen = r
                    if recent_push[r] == push[i]:
                        break
            if seen >= 0 and recent_push[seen] == push[i]:
                verdict[i] = 3  # REREAD
                continue

        client_partition[c] = partition[i]
        client_landed[c] = max(client_landed[c], landed[i])
        if not has_points[i]:
            verdict[i] = 4  # LIVENESS
            client_terminating[c] = terminating[i]
            client_heartbeat[c] = landed[i]
            continue
        if seen >= 0:
            verdict[i] = 1  # DUPLICATE
            continue
        has_delta = temporalities[i] & DELTA != 0
        late = last_time[i] < client_time[c]
        # D6; after an eviction the digests are gone, and anything up to the tombstone's time may be a redelivery.
        if has_delta and (last_time[i] < client_time[c] - window or (tombstone[i] != 0 and last_time[i] <= tombstone[i])):
            verdict[i] = 2  # TOO_LATE
            continue
        client_terminating[c] = terminating[i]

        if first_start[i] != 0 and client_time[c] != 0:
            if late:
                # D3: a late push fills what overlaps; what it leaves of a lost interval stays open.
                kept = lost_first[c]
                stop = lost_first[c] + lost_size[c]
                for r in range(lost_first[c], stop):
                    start, end = lost_starts[r], lost_ends[r]
                    if first_start[i] < end and last_time[i] > start:
                        found_from, found_to = max(start, first_start[i]), min(end, last_time[i])
                        found_start[i] = found_from if found_start[i] == 0 else min(found_start[i], found_from)
                        found_end[i] = max(found_end[i], found_to)
                        if start < found_from and found_to < end:  # only one interval can contain it
                            lost_starts[stop], lost_ends[stop] = found_to, end
                            lost_size[c] += 1
                            end = found_from
                        elif start < found_from:
                            end = found_from
                        else:
                            start = found_to
                    if start < end:
                        lost_starts[kept], lost_ends[kept] = start, end
                        kept += 1
                    else:
                        lost_size[c] -= 1
                if stop < lost_first[c] + lost_size[c] + (stop - kept):  # the split's second half closes ranks
                    lost_starts[kept], lost_ends[kept] = lost_starts[stop], lost_ends[stop]
            else:
                # Pushes without points cover time too; when, their landing tells to within an interval.
                covered = client_time[c]
                if client_heartbeat[c] != 0:
                    covered += (client_heartbeat[c] - client_time_landed[c]) * 1000 + interval[i]
                if first_start[i] > covered:
                    lost_start[i], lost_end[i] = covered, first_start[i]
                    r = lost_first[c] + lost_size[c]
                    lost_starts[r], lost_ends[r] = covered, first_start[i]
                    lost_size[c] += 1

        if temporalities[i] != 0:
            if not late:
                flipped[i] = client_temporality[c] + temporalities[i] == 3 and client_temporality[c] != 0 and temporalities[i] != 3
                client_temporality[c] = temporalities[i]
            client_sent[c] |= temporalities[i]
            client_delta_time[c] = max(client_delta_time[c], delta_time[i])
        if last_time[i] >= client_time[c]:
            client_time[c] = last_time[i]
            client_time_landed[c] = landed[i]
            client_heartbeat[c] = 0

        # D2's memory: the window, and at least so many pushes.
        recent_digest[first + size], recent_push[first + size] = digest[i], push[i]
        recent_time[first + size] = last_time[i]
        size += 1
        while size > pushes_kept and recent_time[first] < client_time[c] - window:
            first += 1
            size -= 1
        recent_first[c], recent_size[c] = first, size
        kept = lost_first[c]
        for r in range(lost_first[c], lost_first[c] + lost_size[c]):
            if lost_ends[r] >= client_time[c] - window:
                lost_starts[kept], lost_ends[kept] = lost_starts[r], lost_ends[r]
                kept += 1
        lost_size[c] = kept - lost_first[c]
