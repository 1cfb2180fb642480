"""MetricsData (metrics.proto) for numba: from payloads in one buffer to columns of data points.

`measure` says how much room the data points need; `fill` writes them. A payload that either finds malformed or odd
leaves nothing behind and is left to the reference decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part
from kafka_telemetry_lake.udfs.otlp.wire_bytes import EXTRA, ODD, Int64, next_field
from kafka_telemetry_lake.udfs.otlp.wire_messages import add_payload, data_kind, forget, has_room
from kafka_telemetry_lake.udfs.otlp.wire_points import (
    ALL_UNTIMED,
    ATTRIBUTES,
    BEYOND,
    DISTRIBUTIONS,
    HISTOGRAM,
    ITEMS,
    ITEMS_BUDGET,
    LISTS,
    MANY_ATTRIBUTES,
    MANY_BUCKETS,
    MAX_ALL_ATTRIBUTES,
    MAX_ALL_BUCKETS,
    MAX_BUCKETS,
    MAX_LISTED,
    MAX_POINTS,
    NEEDS,
    PAIRS,
    PAIRS_BUDGET,
    PAYLOAD,
    POINTS,
    REGIONS,
    RESOURCE,
    STATUS,
    STORED,
    SUM,
    TEXTS,
    UNTIMED,
    DecoderState,
    most_items,
)

TIME_BYTES = 9
"""A shorter data point has no time_unix_nano."""

# Levels of nesting; between METRICS_DATA and METRIC_MESSAGE are ResourceMetrics and ScopeMetrics.
METRICS_DATA, METRIC_MESSAGE, DATA = 0, 3, 4


@part
def _measure(data: UInt8s, pos: int, end: int, ends: Any, payload: int, bounds: Any, needs: Any) -> bool:
    """Add up what a payload needs. `ends` is a stack: where the message at each level ends."""
    level = METRICS_DATA
    kind: Int64 = np.int64(-1)  # no literal: it would be another type
    short = 0
    ends[level] = end
    while True:
        while pos == ends[level]:
            if level == METRICS_DATA:
                return True
            level -= 1
        field, first, after = next_field(data, pos, ends[level])
        if after == ODD:
            return False
        pos = after
        if level == DATA:
            if field == 0x0A:  # data_points
                if after - first < TIME_BYTES:
                    short += 1
                    if short > bounds[MAX_LISTED]:
                        continue
                needs[POINTS, payload] += 1
                if kind > SUM:
                    needs[DISTRIBUTIONS, payload] += 1
                    items = min(most_items(data, first, after, kind), bounds[MAX_BUCKETS])
                    needs[ITEMS + kind - HISTOGRAM, payload] += items
            continue
        if level == METRIC_MESSAGE:
            kind = data_kind(field)
            inside = kind >= 0
        else:  # resource_metrics, scope_metrics, metrics
            inside = field == (0x0A if level == METRICS_DATA else 0x12)
        if inside:
            level += 1
            ends[level] = after
            pos = first


@kernel
def measure(data: UInt8s, starts: Any, ends: Any, bounds: Any, stack: Any, needs: Any, outcomes: Any) -> None:
    """Write each payload's `needs`; an odd one needs nothing and has ODD as its status."""
    max_points = bounds[MAX_POINTS]
    max_items = bounds[MAX_ALL_BUCKETS] + bounds[MAX_BUCKETS]
    for payload in range(starts.size):
        if _measure(data, starts[payload], ends[payload], stack, payload, bounds, needs):
            needs[POINTS, payload] = min(needs[POINTS, payload], max_points)
            needs[DISTRIBUTIONS, payload] = min(needs[DISTRIBUTIONS, payload], max_points)
            for need in range(ITEMS, NEEDS):
                needs[need, payload] = min(needs[need, payload], max_items)
        else:
            for need in range(NEEDS):
                needs[need, payload] = 0
            outcomes[STATUS, payload] = ODD


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
