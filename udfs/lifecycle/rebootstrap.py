"""Rebootstraps (L14, L15; KIP-899, KIP-1102) and dead data paths (L16), from the connection metrics in pushes.

A client's pushes are taken one by one, by offsets, so events depend on the records alone, not on how these are
divided into steps. A late push, which landed before one already processed, changes no state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys_of
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import PLACE, Clients, by_offset
from kafka_telemetry_lake.udfs.lifecycle.events import Event, Events
from kafka_telemetry_lake.udfs.rows import CONNECTION_SIGNALS, PUSH_KEY, PUSH_OUTCOMES

# Columns that are read from table `push_outcomes`.
SIGNALS_IN = pa.schema(
    [*PUSH_KEY, PUSH_OUTCOMES.field("client_instance_id"), PUSH_OUTCOMES.field("outcome"), *CONNECTION_SIGNALS]
)
UNKNOWN = -1
DEAD_PUSHES = 3
# Java abandons a request after request.timeout.ms, by default 30 s.
ANSWER_US = 30_000_000
# Clients renew their metadata at least every metadata.max.age.ms, by default five minutes.
OLD_METADATA_S = 600

# Bits of column `connection_state`.
CHURNED, IN_EPISODE, PENDING, ASKED, DEAD = (1 << bit for bit in range(5))


@dataclass(frozen=True)
class _Pushes:
    """Pushes with connection metrics, by partition and offset; `UNKNOWN` means NULL."""

    slot: Int64s
    landed: Int64s
    partition: Int64s
    numbers: dict[str, Int64s]

    def take(self, rows: Int64s) -> _Pushes:
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        return _Pushes(self.slot[rows], self.landed[rows], self.partition[rows], numbers)

    def __getitem__(self, name: str) -> Int64s:
        return self.numbers[name]


def take_signals(clients: Clients, outcomes: pa.Table, step: int) -> tuple[Int64s, Events]:
    """Take the connection metrics of pushes into the clients' state.

    Args:
        clients: changed in place; outcomes of clients that have no slot are skipped.
        outcomes: columns of `SIGNALS_IN`, any order.
        step: number of the step.

    Returns:
        The slots of the clients that changed, and the events.
    """
    pushes = _read(clients, outcomes)
    if len(pushes.slot) == 0:
        return pushes.slot, Events.none()
    # In rounds: each client's first push, then the second push of the clients that have one, and so on.
    order = np.argsort(pushes.slot, kind="stable")
    slots, first, counts = np.unique(pushes.slot[order], return_index=True, return_counts=True)
    rounds = (pushes.take(order[first[counts > turn] + turn]) for turn in range(int(counts.max())))
    events = [each for pushes_of_round in rounds for each in _take(clients, pushes_of_round)]
    clients["step"][slots] = step
    return slots, Events.all_of(events)


def _read(clients: Clients, outcomes: pa.Table) -> _Pushes:
    has_signals = pc.or_kleene(outcomes["bootstrap_requests"].is_valid(), outcomes["bootstrap_nodes"].is_valid())
    is_converted = pc.equal(outcomes["outcome"], "points")
    outcomes = outcomes.filter(pc.and_(pc.and_(has_signals, outcomes["client_instance_id"].is_valid()), is_converted))
    outcomes = by_offset(outcomes)
    numbers = {
        name: outcomes[name].fill_null(UNKNOWN).cast(pa.int64(), safe=False).to_numpy()
        for name in ("offset", *CONNECTION_SIGNALS.names)
    }
    slots = clients.slots(client_keys_of(outcomes))
    landed = outcomes["landed_at"].cast(pa.int64()).to_numpy()
    pushes = _Pushes(slots, landed, clients.codes(outcomes.select(PLACE)), numbers)
    return pushes.take(np.flatnonzero(slots >= 0))


def _take(clients: Clients, pushes: _Pushes) -> list[Events]:
    """Take one push of each client into their state; returns the events."""
    slot = pushes.slot
    state = clients["connection_state"][slot]
    late = pushes.landed < clients["signals_at"][slot]
    usual = clients["usual_bootstrap"][slot]
    level = np.where(pushes["bootstrap_requests"] >= 0, pushes["bootstrap_requests"], pushes["bootstrap_nodes"])
    churn = (pushes["connections_created"] > 0) | (pushes["connections_closed"] > 0)
    rise = (usual >= 0) & (level > usual) & (churn | ((state & CHURNED > 0) & ~late))
    confirmed = (state & PENDING > 0) & ~churn & ~late
    rebootstraps = (rise | confirmed) & (state & IN_EPISODE == 0)
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
    dead = ~answered & (was_dead | (refused >= DEAD_PUSHES) | overdue | (pushes["metadata_age_s"] > OLD_METADATA_S))

    in_order = ~late
    dies, recovers = in_order & dead & ~was_dead, in_order & was_dead & ~dead
    answered_at = clients["answered_at"][slot]
    events = [
        _events(
            Event.REBOOTSTRAP, pushes, rebootstraps, bootstrap=level, usual_bootstrap=usual,
            connections_created=pushes["connections_created"],
        ),
        _events(
            Event.DATA_PATH_DEAD, pushes, dies, answered_at=since, unheard_pushes=unheard,
            metadata_age_s=pushes["metadata_age_s"],
        ),
        _events(
            Event.DATA_PATH_RESTORED, pushes, recovers, answered_at=answered_at, unheard_us=pushes.landed - answered_at
        ),
    ]  # fmt: skip
    in_episode = rise | ((state & IN_EPISODE > 0) & ~answered)
    bits = CHURNED * churn + IN_EPISODE * in_episode + PENDING * pending + ASKED * asked + DEAD * dead
    updated = slot[in_order]
    for name, column in {
        "signals_at": pushes.landed,
        "answered_at": since,
        "signals_port": pushes["client_port"],
        "usual_bootstrap": np.where(quiet, level, usual),
        "unheard_pushes": unheard,
        "refused_pushes": refused,
        "connection_state": bits,
    }.items():
        clients[name][updated] = column[in_order]
    return events


def _all_new(pushes: _Pushes, port_before: Int64s) -> Bools:
    """L15, librdkafka: the client connected anew to all brokers, once each, and pushes over another connection.

    When a broker restarts, the client reconnects to it alone, or many times. A broker that a rebootstrap forgets loses
    its count of connects. A group's coordinator counts as another node, to which one or two more connects go.
    """
    created, answering = pushes["connections_created"], pushes["answering_nodes"]
    most = pushes["broker_nodes"] + 1 + 2 * pushes["bootstrap_nodes"]
    all_brokers = (answering >= 2) | ((answering == 1) & (pushes["broker_nodes"] == 1))
    another = (port_before >= 0) & (pushes["client_port"] >= 0) & (pushes["client_port"] != port_before)
    once_each: Bools = (created >= answering) & (created <= most)
    all_new: Bools = (pushes["bootstrap_requests"] < 0) & another & all_brokers & once_each
    return all_new


def _events(kind: Event, pushes: _Pushes, which: Bools, **numbers: Int64s) -> Events:
    chosen = pushes.take(np.flatnonzero(which))
    return Events.of(
        kind,
        chosen.slot,
        chosen.landed,
        chosen.landed,
        chosen.partition,
        chosen["offset"],
        **{name: column[which] for name, column in numbers.items()},
    )
