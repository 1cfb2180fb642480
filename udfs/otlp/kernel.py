"""The fast decoder: compiled code that reads MetricsData's wire format directly from Arrow's buffers.

Importing this module raises ImportError where numba can't load and RuntimeError where it can't cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, NO_BUDGET, Budget, Limits
from kafka_telemetry_lake.udfs.otlp import census, wire_bytes, wire_metrics, wire_points
from kafka_telemetry_lake.udfs.otlp import columns as otlp_columns
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded, payload_bounds
from kafka_telemetry_lake.udfs.otlp.wire_bytes import ODD
from kafka_telemetry_lake.udfs.otlp.wire_messages import new_slices

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
    outcomes[wire_points.RESOURCE] = -1
    needs = np.zeros((wire_points.NEEDS, len(starts)), np.int64)
    bounds = _packed(limits, budget)
    wire_metrics.measure(data, starts, ends, bounds, np.empty(5, np.int64), needs, outcomes)
    within = int(np.searchsorted(np.cumsum(needs[wire_points.POINTS]), budget.points, "right"))
    size = max(1, within) if within < len(starts) else len(starts)
    starts, ends, needs, outcomes = _first(size, starts, ends, needs, outcomes)
    points_needed, distributions_needed = (int(total) for total in needs[:2].sum(axis=1))
    empty = np.empty((0, 4), np.int64)
    state = wire_points.DecoderState(
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
        payload = wire_metrics.fill(data, starts, ends, needs, outcomes, payload, state)
        if wire_metrics.is_spent(state) or payload == len(starts):
            break
        state = _with_room(state, new_slices(int(needs[wire_points.POINTS, payload])))
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
    return KernelResult(decoded, np.flatnonzero(outcomes[wire_points.STATUS] == ODD))


def _packed(limits: Limits, budget: Budget) -> Numpy:
    """`wire_points.DecoderState.bounds`."""
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
    of_kinds = needs[wire_points.ITEMS :].sum(axis=1)
    return [min(int(of_kinds[each // 2]), budget.buckets + last) for each in range(wire_points.LISTS)]  # a kind has two


def _first(size: int, *columns: Numpy) -> tuple[Numpy, ...]:
    """The first payloads of each column, contiguous."""
    return tuple(np.ascontiguousarray(column[..., :size]) if size < column.shape[-1] else column for column in columns)


def _with_room(state: wire_points.DecoderState, more: int) -> wire_points.DecoderState:
    texts, regions = (int(count) for count in state.interned)
    text_slots, text_table = wire_bytes.enlarged(state.texts, texts, more)
    region_slots, region_table = wire_bytes.enlarged(state.regions, regions, more)
    return state._replace(text_slots=text_slots, texts=text_table, region_slots=region_slots, regions=region_table)
