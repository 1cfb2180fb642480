"""The fast decoder: compiled code that reads MetricsData's wire format (metrics.proto) directly from Arrow's buffers.

`measure` says how much room the data points of payloads need; `fill` writes them to columns. A payload that either
finds malformed or odd leaves nothing behind and is left to the reference decoder.

Importing this module raises ImportError where numba can't load and RuntimeError where it can't cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, NO_BUDGET, Budget, Limits
from kafka_telemetry_lake.udfs.otlp import census, wire_bytes
from kafka_telemetry_lake.udfs.otlp import columns as otlp_columns
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded, payload_bounds
from kafka_telemetry_lake.udfs.otlp.wire_bytes import EXTRA, ODD, Int64, next_field
from kafka_telemetry_lake.udfs.otlp.wire_messages import add_payload, data_kind, forget, has_room, new_slices
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

Numpy = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KernelResult:
    """Rows of the payloads that the kernel read; `odd`: indices of the others, which have no rows here."""

    decoded: Decoded
    odd: Numpy


def decode(payloads: pa.LargeBinaryArray, limits: Limits = DEFAULT_LIMITS, budget: Budget = NO_BUDGET) -> KernelResult:
    """Decode uncompressed MetricsData messages; the rows are those of `reference.decode`.

    The result ends before the payload that would exceed the budget of points (but has at least one payload), and after
    the payload that reaches another sum of the budget.
    """
    load()
    return decode_slices(*payload_bounds(payloads), limits, budget)


@cache
def load() -> None:
    """Compile the kernels, or load them from the cache: one worker of a machine at a time."""
    empty = payload_bounds(pa.array([], pa.large_binary()))
    with numba_cache.exclusive("decoding"):
        decode_slices(*empty)
        census.fields(*empty, 0, 0)  # of payloads for the reference decoder


def decode_slices(
    data: Numpy, starts: Numpy, ends: Numpy, limits: Limits = DEFAULT_LIMITS, budget: Budget = NO_BUDGET
) -> KernelResult:
    """`decode` for the payloads ``data[start:end]`` (uint8, int64, int64; read only)."""
    outcomes = np.zeros((5, len(starts)), np.int64)
    outcomes[RESOURCE] = -1
    needs = np.zeros((NEEDS, len(starts)), np.int64)
    bounds = _packed(limits, budget)
    measure(data, starts, ends, bounds, np.empty(5, np.int64), needs, outcomes)
    within = int(np.searchsorted(np.cumsum(needs[POINTS]), budget.points, "right"))
    size = max(1, within) if within < len(starts) else len(starts)
    starts, ends, needs, outcomes = _first(size, starts, ends, needs, outcomes)
    points_needed, distributions_needed = (int(total) for total in needs[:2].sum(axis=1))
    empty = np.empty((0, 4), np.int64)
    state = DecoderState(
        # One row more than needed, for a data point that is then discarded.
        otlp_columns.empty_points(points_needed + 1),
        otlp_columns.empty_distributions(distributions_needed + 1, _room(needs, budget, limits)),
        *wire_bytes.enlarged(empty, 0, 0),
        *wire_bytes.enlarged(empty, 0, 0),
        used=np.zeros(2, np.int64),
        interned=np.zeros(2, np.int64),
        bounds=bounds,
        tally=np.zeros(2, np.int64),
        secret=wire_bytes.SECRET,
    )
    payload = 0
    while True:
        payload = fill(data, starts, ends, needs, outcomes, payload, state)
        if is_spent(state) or payload == len(starts):
            break
        state = _with_room(state, new_slices(int(needs[POINTS, payload])))
    starts, ends, needs, outcomes = _first(payload, starts, ends, needs, outcomes)
    points, distributions = (int(used) for used in state.used)
    texts, regions = (int(count) for count in state.interned)
    attribute_sets, set_of_region = otlp_columns.attribute_sets(data, state.regions[:regions])
    set_of_region = np.append(set_of_region, np.int32(-1))  # for a resource of -1: none
    decoded = Decoded(
        payloads=otlp_columns.payloads_table(outcomes, set_of_region, limits),
        points=otlp_columns.points_table(
            state.points, points, otlp_columns.strings(data, state.texts[:texts]), set_of_region
        ),
        distributions=otlp_columns.distributions_table(state.distributions, distributions),
        attribute_sets=attribute_sets,
    )
    return KernelResult(decoded, np.flatnonzero(outcomes[STATUS] == ODD))


def _packed(limits: Limits, budget: Budget) -> Numpy:
    """`DecoderState.bounds`."""
    return np.array(
        [
            limits.max_points_per_push,
            limits.max_listed_points,
            limits.max_attributes,
            limits.max_buckets,
            limits.max_attributes_per_push,
            limits.max_buckets_per_push,
            budget.attributes,
            budget.buckets,
        ],
        np.int64,
    )


def _room(needs: Numpy, budget: Budget, limits: Limits) -> list[int]:
    """Items that each list must have room for: what the payloads need, but no more than ends a part."""
    last = limits.max_buckets_per_push + limits.max_buckets
    of_kinds = needs[ITEMS:].sum(axis=1)
    return [min(int(of_kinds[each // 2]), budget.buckets + last) for each in range(LISTS)]  # a kind has two


def _first(size: int, *columns: Numpy) -> tuple[Numpy, ...]:
    """The first payloads of each column, contiguous."""
    return tuple(np.ascontiguousarray(column[..., :size]) if size < column.shape[-1] else column for column in columns)


def _with_room(state: DecoderState, more: int) -> DecoderState:
    texts, regions = (int(count) for count in state.interned)
    text_slots, text_table = wire_bytes.enlarged(state.texts, texts, more)
    region_slots, region_table = wire_bytes.enlarged(state.regions, regions, more)
    return state._replace(text_slots=text_slots, texts=text_table, region_slots=region_slots, regions=region_table)


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
