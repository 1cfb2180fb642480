"""The arrays that the kernel writes, and the positions in them."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka_telemetry_lake.udfs.otlp.wire_points import DistributionColumns

POINTS, DISTRIBUTIONS, ITEMS = range(3)
"""Rows of `needs`: data points, distributions and, at most, items in either list of histograms; the rows after it are
those of exponential histograms and of summaries."""
NEEDS = ITEMS + 3

STATUS, STORED, RESOURCE, BEYOND, UNTIMED = range(5)
"""Rows of `outcomes`: ODD, 0 or the limit exceeded; data points written; code of the resource or -1; data points
beyond the limit; data points without a time that are only counted."""

MANY_ATTRIBUTES, MANY_BUCKETS = 1, 2
"""STATUS of a payload beyond a limit on all of its points."""

MAX_POINTS, MAX_LISTED, MAX_ATTRIBUTES, MAX_BUCKETS, MAX_ALL_ATTRIBUTES, MAX_ALL_BUCKETS, PAIRS_BUDGET, ITEMS_BUDGET = (
    range(8)
)
"""Positions in `bounds` of the values of `limits.Limits` and `limits.Budget`."""

PAIRS, ALL_UNTIMED = range(2)
"""`tally`: pairs of all distinct lists; data points without a time of one payload."""

PAYLOAD, METRIC, ATTRIBUTES, SCOPE, DISTRIBUTION = range(5)
KIND, TEMPORALITY, IS_MONOTONIC, NUMBER, EXCESS = range(5)
LONG_ATTRIBUTES, LONG_LISTS = 1, 2  # bits of EXCESS

TEXTS, REGIONS = range(2)


class PointColumns(NamedTuple):
    """What the kernel writes for each data point; a column is one of them."""

    times: Any  # uint64, start and time
    values: Any  # float64
    ints: Any  # int64, the exact value
    flags: Any  # uint32
    codes: Any  # int32, PAYLOAD to DISTRIBUTION
    tags: Any  # int8, KIND to EXCESS


class DecoderState(NamedTuple):
    """One payload's view of the output: how far it is written, and the dictionaries."""

    points: PointColumns
    distributions: DistributionColumns
    text_slots: Any
    texts: Any
    region_slots: Any
    regions: Any
    used: Any  # int64, POINTS, DISTRIBUTIONS
    interned: Any  # int64: how many TEXTS, REGIONS
    bounds: Any  # int64, MAX_POINTS to ITEMS_BUDGET
    tally: Any  # int64, PAIRS to ALL_UNTIMED
    secret: Any
