"""One lifecycle step: take new pushes into the clients' state, then look for clients that have fallen silent.

Each client's pushes are taken in the order of their offsets, by landing times (µs), which no client's clock can change.
The clock of a partition is the greatest landing time up to an offset. A client is silent when its partition's clock has
passed its deadline. So events depend on the records alone, not on how they are divided into steps (L2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients, is_set, texts_of
from kafka_telemetry_lake.udfs.lifecycle.events import Event, Events
from kafka_telemetry_lake.udfs.lifecycle.push_effects import PushEffects, attributes_of, effects_of
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks, PushSequences, own_pushes, read_pushes
from kafka_telemetry_lake.udfs.lifecycle.rows import ACTIVE, SILENT, TERMINATED, TEXTS, UNSUBSCRIBED
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER, silences, thresholds


@dataclass(frozen=True)
class StepChanges:
    """The result of a step: the slots of the clients that changed, and the events in order."""

    changed: Int64s
    events: Events


def advance(clients: Clients, clocks: Clocks, pushes: pa.Table, versions: pa.Table, step: int) -> StepChanges:
    """Take pushes into the clients' state, then find the clients that are silent by the partitions' clocks.

    Args:
        clients: state after the previous step; changed in place.
        clocks: those after the step, of all partitions.
        pushes: the clients' own of `with_clocks`; each partition's offsets follow those of earlier steps.
        versions: rows of table `subscriptions`; may be empty.
        step: number of the step.
    """
    changed, events = np.zeros(0, np.int64), Events.none()
    pushes = own_pushes(clients, pushes)
    if pushes.num_rows:
        sequences = read_pushes(clients, pushes.combine_chunks())
        effects = effects_of(clients, sequences, versions)
        _store(clients, sequences, effects, step)
        changed, events = sequences.layout.slots, effects.events
    swept, silent = sweep(clients, clocks, versions, step)
    return StepChanges(np.union1d(changed, swept), Events.all_of([events, silent]))


def sweep(clients: Clients, clocks: Clocks, versions: pa.Table, step: int) -> tuple[Int64s, Events]:
    """Find the clients whose deadline has passed by their partition's clock (L3, L5).

    Returns:
        The slots of the clients that changed, and the events.
    """
    clock = clock_of_each(clients, clocks)
    state = clients["state"]
    due = np.flatnonzero((clock > clients["deadline"]) & (state != TERMINATED))
    if versions.num_rows:  # a subscription may ask unsubscribed clients again by now
        due = np.union1d(due, np.flatnonzero((state == UNSUBSCRIBED) & (clients["deadline"] == NEVER)))
    if len(due) == 0:
        return due, Events.none()
    silent_at, unsubscribed_at = silences(
        attributes_of(clients, due),
        clients.objects["cluster_id"][due].tolist(),
        clients["last_seen"][due],
        clients["push_interval_ms"][due],
        versions,
    )
    is_silent = clock[due] > silent_at
    unsubscribed = ~is_silent & (clock[due] > unsubscribed_at)
    state_before, deadline_before = state[due].copy(), clients["deadline"][due].copy()
    awaited_until = np.where(unsubscribed, silent_at, np.minimum(silent_at, unsubscribed_at))
    clients["deadline"][due] = np.where(is_silent, NEVER, awaited_until)
    clients["state"][due] = np.select([is_silent, unsubscribed], [SILENT, UNSUBSCRIBED], ACTIVE)
    clients["silent_at"][due] = np.where(is_silent, silent_at, 0)
    changed = due[(state_before != clients["state"][due]) | (deadline_before != clients["deadline"][due])]
    clients["step"][changed] = step
    silent = due[is_silent]
    return changed, Events.of(
        Event.WENT_SILENT,
        silent,
        silent_at[is_silent],
        clients["last_seen"][silent],
        clients["partition"][silent],
        clients["offset"][silent],
        push_interval_ms=clients["push_interval_ms"][silent],
    )


def clock_of_each(clients: Clients, clocks: Clocks) -> Int64s:
    """The clock of each client's partition, µs; 0 where it has none."""
    of_partitions = np.array([*(clocks.get(place, 0) for place in clients.partitions), 0], np.int64)
    clock: Int64s = of_partitions[clients["partition"]]
    return clock


def _store(clients: Clients, sequences: PushSequences, effects: PushEffects, step: int) -> None:
    """Bring the clients' columns up to date with the step's pushes."""
    _add_up(clients, sequences, effects)
    _store_last_pushes(clients, sequences, effects)
    _store_texts(clients, sequences)
    clients["step"][sequences.layout.slots] = step


def _add_up(clients: Clients, sequences: PushSequences, effects: PushEffects) -> None:
    """Columns to which every push contributes."""
    layout = sequences.layout
    slots, pushes = layout.slots, np.flatnonzero(~layout.is_head)
    counts = {
        "pushes": ~layout.is_head,
        "missed_pushes": effects.missed,
        "missed_ms": effects.missed_ms,
        "resumptions": effects.resumed,
    }
    for name, values in counts.items():
        sums = np.bincount(layout.client, values.astype(np.float64), len(slots))
        clients[name][slots] += sums.astype(np.int64)
    bits = np.zeros(len(slots), np.int64)
    np.bitwise_or.at(bits, layout.client[pushes], sequences.broker_bits[layout.push_row[pushes]])
    clients["brokers"][slots] |= bits
    clients["duplicated"][slots] = effects.duplicated
    first = np.flatnonzero(sequences.is_first)
    clients["first_seen"][layout.slot[first]] = sequences.landed[first]


def _store_last_pushes(clients: Clients, sequences: PushSequences, effects: PushEffects) -> None:
    """Columns that describe a client's last push in order; clients whose pushes were all late keep theirs."""
    layout = sequences.layout
    has_push = ~layout.is_head[sequences.last]
    last, slots = sequences.last[has_push], layout.slots[has_push]
    for name, column in (
        ("last_seen", sequences.landed),
        ("partition", sequences.partition),
        ("offset", sequences.offset),
        ("push_interval_ms", sequences.interval),
        ("broker_id", sequences.broker),
        ("client_port", sequences.port),
        ("origin", sequences.origin),
        ("connection", sequences.connection),
    ):
        clients[name][slots] = column[last]
    clients["connection_before"][slots] = sequences.connection[sequences.previous[last]]
    clients["gap_ms"][slots] = np.where(sequences.is_first[last], -1, sequences.gap[last] // 1000)
    terminating = sequences.terminating[last]
    terminated = np.flatnonzero(effects.terminated)
    clients["terminated_at"][layout.slot[terminated]] = sequences.landed[terminated]  # the last assignment counts
    clients["terminated_at"][slots[~terminating]] = 0
    clients["state"][slots] = np.where(terminating, TERMINATED, ACTIVE)
    clients["silent_at"][slots] = 0
    deadline = sequences.landed[last] + thresholds(sequences.interval[last])
    clients["deadline"][slots] = np.where(terminating, NEVER, deadline)


def _store_texts(clients: Clients, sequences: PushSequences) -> None:
    """The last value of each text that a push in order had."""
    layout = sequences.layout
    for name in TEXTS:
        stored = clients.objects[name][layout.slots]
        texts = np.concatenate([stored, texts_of(sequences.pushes[name])])[layout.order]
        latest = texts[layout.latest(sequences.in_order & is_set(texts))[layout.ends]]
        changed = latest != stored  # equal texts stay one object
        clients.objects[name][layout.slots[changed]] = latest[changed]
