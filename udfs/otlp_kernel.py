"""The fast decoder: MetricsData's wire format read by compiled code straight from Arrow's buffers.

Importing this module raises ImportError where numba can't load and RuntimeError where it can't cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from udfs import numba_cache, otlp_columns, wire_metrics, wire_slices
from udfs.decoded import Decoded
from udfs.wire_reader import ODD

Numpy = np.ndarray[Any, Any]
NO_BUDGET = 1 << 62


@dataclass(frozen=True)
class KernelResult:
    """Rows of the payloads that the kernel read; `odd`: indices of the others, which have no rows here."""

    decoded: Decoded
    odd: Numpy


def decode(payloads: pa.LargeBinaryArray, max_points: int, budget: int = NO_BUDGET) -> KernelResult:
    """Decode uncompressed MetricsData messages; the rows are those of `otlp_reference.decode`.

    Ends before the payload with which the points would be more than `budget`, but not before the second.
    """
    load()
    return decode_slices(*_bounds(payloads), max_points, budget)


@cache
def load() -> None:
    """Compile the kernel, or load it from the cache: one worker of a machine at a time."""
    with numba_cache.exclusive():
        decode_slices(*_bounds(pa.array([], pa.large_binary())), 1)


def decode_slices(data: Numpy, starts: Numpy, ends: Numpy, max_points: int, budget: int = NO_BUDGET) -> KernelResult:
    """`decode` for the payloads ``data[start:end]`` (uint8, int64, int64; read only)."""
    outcomes = np.zeros((4, len(starts)), np.int64)
    outcomes[wire_metrics.RESOURCE] = -1
    needs = np.zeros((3, len(starts)), np.int64)
    wire_metrics.measure(data, starts, ends, max_points, np.empty(5, np.int64), needs, outcomes)
    within = int(np.searchsorted(np.cumsum(needs[wire_metrics.POINTS]), budget, "right"))
    if within < len(starts):
        kept = max(1, within)
        starts, ends = starts[:kept], ends[:kept]
        needs, outcomes = (np.ascontiguousarray(each[:, :kept]) for each in (needs, outcomes))
    points_needed, distributions_needed = (int(total) for total in needs[:2].sum(axis=1))
    empty = np.empty((0, 4), np.int64)
    state = wire_metrics.State(
        # One row more than needed, for a data point that isn't kept.
        otlp_columns.empty_points(points_needed + 1),
        otlp_columns.empty_distributions(distributions_needed + 1, int(needs[wire_metrics.ITEMS].sum())),
        *wire_slices.enlarged(empty, 0, 0),
        *wire_slices.enlarged(empty, 0, 0),
        used=np.zeros(2, np.int64),
        known=np.zeros(2, np.int64),
        secret=wire_slices.SECRET,
    )
    payload = 0
    while True:
        payload = wire_metrics.fill(data, starts, ends, max_points, needs, outcomes, payload, state)
        if payload == len(starts):
            break
        state = _with_room(state, wire_metrics.new_slices(int(needs[wire_metrics.POINTS, payload])))
    points, distributions = (int(used) for used in state.used)
    texts, regions = (int(known) for known in state.known)
    attribute_sets, set_of_region = otlp_columns.attribute_sets(data, state.regions[:regions])
    set_of_region = np.append(set_of_region, np.int32(-1))  # for a resource of -1: none
    decoded = Decoded(
        payloads=otlp_columns.payloads_table(outcomes, set_of_region),
        points=otlp_columns.points_table(
            state.points, points, otlp_columns.strings(data, state.texts[:texts]), set_of_region
        ),
        distributions=otlp_columns.distributions_table(state.distributions, distributions),
        attribute_sets=attribute_sets,
    )
    return KernelResult(decoded, np.flatnonzero(outcomes[wire_metrics.STATUS] == ODD))


def _bounds(payloads: pa.LargeBinaryArray) -> tuple[Numpy, Numpy, Numpy]:
    """The data buffer, and where in it each payload starts and ends; a NULL is empty."""
    _, offset_buffer, data_buffer = payloads.buffers()
    offsets = np.zeros(1, np.int64)
    if len(payloads):
        offsets = np.frombuffer(offset_buffer, np.int64)[payloads.offset : payloads.offset + len(payloads) + 1]
    starts, ends = offsets[:-1], offsets[1:]
    if payloads.null_count:
        ends = np.where(payloads.is_valid().to_numpy(zero_copy_only=False), ends, starts)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    # One compiled version: numba tells read-only arrays from others.
    for array in (data, starts, ends):
        array.flags.writeable = False
    return data, starts, ends


def _with_room(state: wire_metrics.State, more: int) -> wire_metrics.State:
    texts, regions = (int(known) for known in state.known)
    text_slots, text_table = wire_slices.enlarged(state.texts, texts, more)
    region_slots, region_table = wire_slices.enlarged(state.regions, regions, more)
    return state._replace(text_slots=text_slots, texts=text_table, region_slots=region_slots, regions=region_table)
