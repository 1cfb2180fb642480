"""The events of a step: those of single clients within their limit, and those of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit, LimitedEvents
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks
from kafka_telemetry_lake.udfs.lifecycle.waves import Counted, Waves
from kafka_telemetry_lake.udfs.rows import CLIENT_EVENTS


def step_events(
    found: Iterable[tuple[LimitedEvents, Mapping[Counted, int]]],
    limit: EventLimit,
    waves: Waves,
    clocks: Clocks,
    until: Clocks,
) -> pa.Table:
    """Rows of ``CLIENT_EVENTS``; `limit` and `waves` take the step's events.

    Args:
        found: events and counts of each shard, of clients judged in this step.
        clocks: after the step. A partition of which outcomes were read before any push gets the clock 0.
        until: the clocks up to which all pushes are known to have been read (`clocks_until`).
    """
    found = list(found)
    for _, counted in found:
        waves.add(counted)
    single = limit.apply([events for events, _ in found])
    fleet = pa.Table.from_pylist(waves.close(until), CLIENT_EVENTS)
    limit.forget(clocks)
    for key in limit.counts:
        clocks.setdefault(key.partition, 0)
    return pa.concat_tables([single, fleet])
