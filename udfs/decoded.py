"""What a decoder returns: columns of data points, with repeated text held once.

Both decoders (`otlp_reference`, upb; `otlp_kernel`, wire format) give exactly these columns for the same payloads, so
everything behind them is independent of which one ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa


class Kind(IntEnum):
    """The five shapes of ``Metric.data`` (metrics.proto), in the order of the ``kind`` column's codes."""

    GAUGE = 0
    SUM = 1
    HISTOGRAM = 2
    EXPONENTIAL_HISTOGRAM = 3
    SUMMARY = 4


class Temporality(IntEnum):
    """AggregationTemporality (metrics.proto); unknown enum values are kept as UNSPECIFIED."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


class Number(IntEnum):
    """Which member of ``NumberDataPoint.value`` was set. Kinds other than gauge and sum have NONE."""

    NONE = 0
    DOUBLE = 1
    INT = 2


DICTIONARY = pa.dictionary(pa.int32(), pa.string())
ATTRIBUTES = pa.map_(pa.string(), pa.string())

PAYLOADS = pa.schema(
    [
        ("error", pa.string()),  # NULL when decoded, else what is wrong with the bytes
        ("points", pa.int32()),  # data points in it; 0 with an error
        ("resource", pa.int32()),  # index into `attribute_sets`, -1: no resource attributes
        ("capped", pa.bool_()),  # true: more points than the cap, those beyond it are not in `points`
    ]
)

POINTS = pa.schema(
    [
        ("payload", pa.int32()),  # index of the payload in the input array
        ("metric", DICTIONARY),  # Metric.name
        ("attributes", pa.int32()),  # index into `attribute_sets`
        ("scope", DICTIONARY),  # InstrumentationScope.name; NULL without a scope
        ("kind", pa.int8()),  # Kind
        ("temporality", pa.int8()),  # Temporality; 0 for gauges and summaries
        ("is_monotonic", pa.bool_()),  # Sum.is_monotonic; false for the other kinds
        ("start_ns", pa.uint64()),  # start_time_unix_nano
        ("time_ns", pa.uint64()),  # time_unix_nano
        ("flags", pa.uint32()),  # DataPointFlags
        ("number", pa.int8()),  # Number
        ("value", pa.float64()),  # as_double, or as_int as a double; NULL when number is NONE
        ("value_int", pa.int64()),  # as_int; NULL otherwise
        ("distribution", pa.int32()),  # index into `distributions`, -1 for gauge and sum
    ]
)

DISTRIBUTIONS = pa.schema(
    [
        ("count", pa.uint64()),
        ("sum", pa.float64()),  # NULL when not set; Summary always has one
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("explicit_bounds", pa.list_(pa.float64())),  # Histogram only, as are bucket_counts
        ("bucket_counts", pa.list_(pa.uint64())),
        ("scale", pa.int32()),  # ExponentialHistogram only, as are the columns down to negative_counts
        ("zero_count", pa.uint64()),
        ("zero_threshold", pa.float64()),
        ("positive_offset", pa.int32()),
        ("positive_counts", pa.list_(pa.uint64())),
        ("negative_offset", pa.int32()),
        ("negative_counts", pa.list_(pa.uint64())),
        ("quantiles", pa.map_(pa.float64(), pa.float64())),  # Summary only
    ]
)


@dataclass(frozen=True)
class Decoded:
    """The content of a batch of MetricsData messages, in payload order and, within one, in wire order.

    `attribute_sets` holds every distinct list of attributes as sent: order and repeated keys are kept, values are text
    (see `otlp_reference.attribute_text`). Lists that differ in order only may stand twice.
    """

    payloads: pa.Table
    points: pa.Table
    distributions: pa.Table
    attribute_sets: pa.MapArray
