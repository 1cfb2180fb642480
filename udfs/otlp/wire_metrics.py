"""MetricsData (metrics.proto) for numba: from payloads in one buffer to columns of data points.

`wire_sizes.measure` says how much room the data points need; `fill` writes them. A payload that either finds malformed
or odd leaves nothing behind and is left to the reference decoder.
"""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part
from kafka_telemetry_lake.udfs.otlp.wire_dictionaries import forget, has_room
from kafka_telemetry_lake.udfs.otlp.wire_messages import add_payload
from kafka_telemetry_lake.udfs.otlp.wire_output import (
    ALL_UNTIMED,
    ATTRIBUTES,
    BEYOND,
    DISTRIBUTIONS,
    ITEMS_BUDGET,
    MANY_ATTRIBUTES,
    MANY_BUCKETS,
    MAX_ALL_ATTRIBUTES,
    MAX_ALL_BUCKETS,
    MAX_LISTED,
    MAX_POINTS,
    PAIRS,
    PAIRS_BUDGET,
    PAYLOAD,
    POINTS,
    REGIONS,
    RESOURCE,
    STATUS,
    STORED,
    TEXTS,
    UNTIMED,
    DecoderState,
)
from kafka_telemetry_lake.udfs.otlp.wire_points import LISTS
from kafka_telemetry_lake.udfs.otlp.wire_reader import ODD, Int64
from kafka_telemetry_lake.udfs.otlp.wire_slices import EXTRA


@part
def items_before(distribution: int, s: DecoderState) -> Int64:
    """The number of items in all lists before those of this distribution."""
    items: Int64 = 0
    if distribution > 0:
        for column in range(LISTS):
            items += s.distributions.ends[column, distribution - 1]
    return items


@part
def too_much(size: int, first_point: int, first_distribution: int, s: DecoderState) -> Int64:
    """The limit that one payload of `size` bytes exceeds, or 0."""
    if size > 2 * s.bounds[MAX_ALL_ATTRIBUTES]:  # a pair has two bytes
        pairs: Int64 = 0
        for row in range(first_point, s.used[POINTS]):
            pairs += s.regions[s.points.codes[ATTRIBUTES, row], EXTRA]
        if pairs > s.bounds[MAX_ALL_ATTRIBUTES]:
            return MANY_ATTRIBUTES
    items = items_before(s.used[DISTRIBUTIONS], s) - items_before(first_distribution, s)
    return MANY_BUCKETS if items > s.bounds[MAX_ALL_BUCKETS] else 0


@kernel
def is_spent(s: DecoderState) -> bool:
    """Whether the payloads so far have used up the budget of a part."""
    items = items_before(s.used[DISTRIBUTIONS], s)
    return bool(s.tally[PAIRS] >= s.bounds[PAIRS_BUDGET] or items >= s.bounds[ITEMS_BUDGET])


@kernel
def fill(data: UInt8s, starts: Any, ends: Any, needs: Any, outcomes: Any, payload: int, s: DecoderState) -> Int64:
    """Write the payloads from index `payload` on that `measure` did not find odd.

    Returns where it stopped: behind the last payload, or where the budget is spent, or at one for which a dictionary
    may lack room.
    """
    while payload < starts.size:
        if outcomes[STATUS, payload] == ODD:
            payload += 1
            continue
        if not has_room(needs, payload, s):
            break
        first_point, first_distribution = s.used[POINTS], s.used[DISTRIBUTIONS]
        texts, regions = s.interned[TEXTS], s.interned[REGIONS]
        s.tally[ALL_UNTIMED] = 0
        ok, resource, beyond = add_payload(data, starts[payload], ends[payload], s.bounds[MAX_POINTS], s)
        size = ends[payload] - starts[payload]
        status = too_much(size, first_point, first_distribution, s) if ok else ODD
        outcomes[STATUS, payload] = status
        if status == 0:
            for row in range(first_point, s.used[POINTS]):
                s.points.codes[PAYLOAD, row] = payload
            outcomes[STORED, payload] = s.used[POINTS] - first_point
            outcomes[RESOURCE, payload] = resource
            outcomes[BEYOND, payload] = beyond
            outcomes[UNTIMED, payload] = max(0, s.tally[ALL_UNTIMED] - s.bounds[MAX_LISTED])
        else:
            s.used[POINTS], s.used[DISTRIBUTIONS] = first_point, first_distribution
            forget(texts, regions, s)
        payload += 1
        if is_spent(s):
            break
    return payload
