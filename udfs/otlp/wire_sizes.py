"""How much room the data points of a payload need: a walk over MetricsData down to the data points."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part
from kafka_telemetry_lake.udfs.otlp.wire_output import (
    DISTRIBUTIONS,
    ITEMS,
    MAX_ALL_BUCKETS,
    MAX_BUCKETS,
    MAX_LISTED,
    MAX_POINTS,
    NEEDS,
    POINTS,
    STATUS,
)
from kafka_telemetry_lake.udfs.otlp.wire_points import EXPONENTIAL_HISTOGRAM, GAUGE, HISTOGRAM, SUM, SUMMARY, most_items
from kafka_telemetry_lake.udfs.otlp.wire_reader import ODD, Int64, next_field

TIME_BYTES = 9
"""A shorter data point has no time_unix_nano."""

# Levels of nesting; between METRICS_DATA and METRIC_MESSAGE are ResourceMetrics and ScopeMetrics.
METRICS_DATA, METRIC_MESSAGE, DATA = 0, 3, 4


@part
def data_kind(field: int) -> Int64:
    """The kind of a member of Metric.data, or -1 for another field of Metric."""
    if field == 0x2A:
        return GAUGE
    if field == 0x3A:
        return SUM
    if field == 0x4A:
        return HISTOGRAM
    if field == 0x52:
        return EXPONENTIAL_HISTOGRAM
    return SUMMARY if field == 0x5A else -1


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
