"""One step of the lifecycle: what becomes of the clients of a shard, and the events of the whole fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit, Events, LimitedEvents, limited
from kafka_telemetry_lake.udfs.lifecycle.labels import LABELS_IN, label
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks
from kafka_telemetry_lake.udfs.lifecycle.rebootstrap import SIGNALS_IN, take_signals
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance, clock_of_each
from kafka_telemetry_lake.udfs.lifecycle.waves import CountedEvents, Waves, counted
from kafka_telemetry_lake.udfs.rows import CLIENT_EVENTS

# Columns that are read from table `push_outcomes`.
OUTCOMES_IN = pa.unify_schemas([LABELS_IN, SIGNALS_IN])
FORGOTTEN_AFTER_US = 30 * 86_400_000_000


@dataclass(frozen=True)
class ShardStep:
    """What a step has made of a shard's clients.

    Attributes:
        changed: slots of the clients that changed.
        events: of single clients.
        counts: numbers of events that may be part of a wave.
        deadline: the first time, µs, at which a client is silent unless it pushes; `NEVER`: there is none.
    """

    changed: Int64s
    events: LimitedEvents
    counts: Counter[CountedEvents]
    deadline: int


def step_shard(
    clients: Clients, clocks: Clocks, pushes: pa.Table, outcomes: pa.Table, versions: pa.Table, step: int
) -> ShardStep:
    """Take the pushes of a step into the state of a shard's clients.

    Args:
        clients: state after the step before; changed in place.
        clocks: those of all partitions after the step; later, if a live source is known to be read for longer.
        pushes: those of `with_clocks` that are of the shard.
        outcomes: columns of `OUTCOMES_IN`, any order.
        versions: rows of table `subscriptions`; may be empty.
        step: number of the step.
    """
    advanced = advance(clients, clocks, pushes, versions, step)
    labelled = label(clients, outcomes, step)
    counts = counted(clients, advanced.events)
    connected, signs = take_signals(clients, outcomes, step)
    changed = np.union1d(np.union1d(advanced.changed, labelled), connected)
    events = limited(clients, Events.all_of([advanced.events, signs]))
    return ShardStep(changed, events, counts, int(clients["deadline"].min(initial=int(NEVER))))


def gone(clients: Clients, clocks: Clocks) -> Int64s:
    """L18: slots of the clients unseen for long by their partition's clock. If one comes back, it counts as new."""
    return np.flatnonzero(clock_of_each(clients, clocks) - clients["last_seen"] > FORGOTTEN_AFTER_US)


def step_events(
    found: Iterable[tuple[LimitedEvents, Mapping[CountedEvents, int]]],
    limit: EventLimit,
    waves: Waves,
    clocks: Clocks,
    until: Clocks,
) -> pa.Table:
    """Rows of ``CLIENT_EVENTS``; `limit` and `waves` take the step's events.

    Args:
        found: events and counts of each shard, of the clients in this step.
        clocks: after the step. A partition of which outcomes were read before any push gets the clock 0.
        until: the clocks up to which all pushes are known to have been read (`clocks_until`).
    """
    found = list(found)
    for _, counts in found:
        waves.add(counts)
    single = limit.apply([events for events, _ in found])
    fleet = pa.Table.from_pylist(waves.close(until), CLIENT_EVENTS)
    limit.forget(clocks)
    for key in limit.counts:
        clocks.setdefault(key.partition, 0)
    return pa.concat_tables([single, fleet])
