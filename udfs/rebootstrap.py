"""Rebootstraps (KIP-899, KIP-1102) and dead data paths, read from what pushes tell of their clients' connections.

A client is judged push by push in the order of offsets, so the events follow from the records alone, however they are
cut into steps. A push that landed before another of its client that was read earlier changes no state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.identity import client_keys
from udfs.lifecycle_events import Event, Found
from udfs.lifecycle_state import Clients
from udfs.rows import CONNECTION_SIGNALS, PUSH_KEY, PUSH_OUTCOMES

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# What is read of table `push_outcomes`.
SIGNALS_IN = pa.schema(
    [*PUSH_KEY, PUSH_OUTCOMES.field("client_instance_id"), PUSH_OUTCOMES.field("outcome"), *CONNECTION_SIGNALS]
)
UNKNOWN = -1
DEAD_PUSHES = 3
# Java gives a request up after request.timeout.ms, 30 s unless set.
ANSWER_US = 30_000_000
# Clients renew their metadata at least every metadata.max.age.ms, five minutes unless set.
OLD_METADATA_S = 600

# Bits of column `connection_state`.
CHURNED, IN_EPISODE, PENDING, ASKED, DEAD = (1 << bit for bit in range(5))


@dataclass(frozen=True)
class _Pushes:
    """Pushes with signals, in order of partition and offset; UNKNOWN stands for NULL."""

    slot: Int64s
    landed: Int64s
    partition: Int64s
    numbers: dict[str, Int64s]

    def take(self, rows: Int64s) -> _Pushes:
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        return _Pushes(self.slot[rows], self.landed[rows], self.partition[rows], numbers)

    def __getitem__(self, name: str) -> Int64s:
        return self.numbers[name]


def judge(clients: Clients, outcomes: pa.Table, step: int) -> tuple[Int64s, Found]:
    """Take the signals of pushes into the clients' state; gives the slots of clients that changed, and the events.

    Args:
        clients: changed in place; all clients of `outcomes` are known.
        outcomes: columns of `SIGNALS_IN`, any order.
        step: number of the step.
    """
    pushes = _read(clients, outcomes)
    if len(pushes.slot) == 0:
        return pushes.slot, Found.none()
    # Round by round: the first push of every client, then the second of those that have more, and so on.
    order = np.argsort(pushes.slot, kind="stable")
    slots, first, counts = np.unique(pushes.slot[order], return_index=True, return_counts=True)
    found = [_judge(clients, pushes.take(order[first[counts > turn] + turn])) for turn in range(int(counts.max()))]
    clients["step"][slots] = step
    return slots, Found.all_of([each for events in found for each in events])


def _read(clients: Clients, outcomes: pa.Table) -> _Pushes:
    has_signals = pc.or_kleene(outcomes["bootstrap_requests"].is_valid(), outcomes["bootstrap_nodes"].is_valid())
    kept = pc.and_(
        pc.and_(has_signals, outcomes["client_instance_id"].is_valid()), pc.equal(outcomes["outcome"], "points")
    )
    outcomes = outcomes.filter(kept)
    places = ("source", "topic", "partition", "offset")
    outcomes = outcomes.take(pc.sort_indices(outcomes.select(places), [(name, "ascending") for name in places]))
    ids = [outcomes[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
    numbers = {
        name: outcomes[name].fill_null(UNKNOWN).cast(pa.int64(), safe=False).to_numpy()
        for name in ("offset", *CONNECTION_SIGNALS.names)
    }
    slots = clients.slots(client_keys(*ids))
    landed = outcomes["landed_at"].cast(pa.int64()).to_numpy()
    pushes = _Pushes(slots, landed, _partitions(clients, outcomes.select(places[:3])), numbers)
    return pushes.take(np.flatnonzero(slots >= 0))


def _partitions(clients: Clients, places: pa.Table) -> Int64s:
    """Codes of the partitions, of columns source, topic and partition in order."""
    columns = [places[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in places.column_names]
    starts = np.flatnonzero(np.append(True, (np.diff(np.stack(columns), axis=1) != 0).any(axis=0))[: places.num_rows])
    first = places.take(pa.array(starts)).to_pylist()
    codes = [clients.partition_code((row["source"], row["topic"], row["partition"])) for row in first]
    return np.repeat(np.array(codes, np.int64), np.diff(np.append(starts, places.num_rows)))


def _judge(clients: Clients, pushes: _Pushes) -> list[Found]:
    """One push of each client."""
    slot = pushes.slot
    state = clients["connection_state"][slot]
    late = pushes.landed < clients["signals_at"][slot]
    usual = clients["usual_bootstrap"][slot]
    level = np.where(pushes["bootstrap_requests"] >= 0, pushes["bootstrap_requests"], pushes["bootstrap_nodes"])
    churn = (pushes["connections_created"] > 0) | (pushes["connections_closed"] > 0)
    rise = (usual >= 0) & (level > usual) & (churn | ((state & CHURNED > 0) & ~late))
    confirmed = (state & PENDING > 0) & ~churn & ~late
    told = (rise | confirmed) & (state & IN_EPISODE == 0)
    pending = ~rise & (state & IN_EPISODE == 0) & _all_new(pushes, clients["signals_port"][slot])
    quiet = ~churn & ~rise

    answered = (pushes["broker_responses"] > 0) | (pushes["broker_responses"] < 0)
    first = clients["signals_at"][slot] == 0
    since = np.where(answered | first, pushes.landed, clients["answered_at"][slot])
    unheard = np.where(answered, 0, clients["unheard_pushes"][slot] + 1)
    refused = np.where(answered, 0, clients["refused_pushes"][slot] + (pushes["connections_closed"] > 0))
    asked = ~answered & ((state & ASKED > 0) | (pushes["broker_requests"] > 0))
    overdue = asked & (unheard >= DEAD_PUSHES) & (pushes.landed - since >= ANSWER_US)
    was_dead = state & DEAD > 0
    dead = ~answered & (
        was_dead | (refused >= DEAD_PUSHES) | overdue | (pushes["metadata_age_s"] > OLD_METADATA_S)
    )  # fmt: skip

    now = ~late
    dies, lives = now & dead & ~was_dead, now & was_dead & ~dead
    dead_since = clients["answered_at"][slot]
    events = [
        _found(Event.REBOOTSTRAP, pushes, told, level, usual, pushes["connections_created"]),
        _found(Event.DATA_PATH_DEAD, pushes, dies, since, unheard, pushes["metadata_age_s"]),
        _found(Event.DATA_PATH_RESTORED, pushes, lives, dead_since, pushes.landed - dead_since, level),
    ]
    in_episode = rise | ((state & IN_EPISODE > 0) & ~answered)
    bits = CHURNED * churn + IN_EPISODE * in_episode + PENDING * pending + ASKED * asked + DEAD * dead
    kept = slot[now]
    for name, column in {
        "signals_at": pushes.landed, "answered_at": since, "signals_port": pushes["client_port"],
        "usual_bootstrap": np.where(quiet, level, usual), "unheard_pushes": unheard, "refused_pushes": refused,
        "connection_state": bits,
    }.items():  # fmt: skip
        clients[name][kept] = column[now]
    return events


def _all_new(pushes: _Pushes, port_before: Int64s) -> Bools:
    """librdkafka: it connected anew to all brokers, once each, and pushes over another connection.

    A broker that restarts is connected to again and again, or alone; those that a rebootstrap forgets take their
    counts of connects with them. The coordinator of a group is a node of its own, tried once or twice more.
    """
    created, answering = pushes["connections_created"], pushes["answering_nodes"]
    most = pushes["broker_nodes"] + 1 + 2 * pushes["bootstrap_nodes"]
    all_brokers = (answering >= 2) | ((answering == 1) & (pushes["broker_nodes"] == 1))
    another = (port_before >= 0) & (pushes["client_port"] >= 0) & (pushes["client_port"] != port_before)
    once_each: Bools = (created >= answering) & (created <= most)
    all_new: Bools = (pushes["bootstrap_requests"] < 0) & another & all_brokers & once_each
    return all_new


def _found(kind: Event, pushes: _Pushes, which: Bools, first: Int64s, second: Int64s, third: Int64s) -> Found:
    chosen = pushes.take(np.flatnonzero(which))
    return Found.of(
        kind, chosen.slot, chosen.landed, chosen.landed, chosen.partition, chosen["offset"], first[which],
        second[which], third[which],
    )  # fmt: skip
