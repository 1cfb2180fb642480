"""What a decoder returns: columns of data points, with repeated texts stored once.

Both decoders (`otlp.reference`, by upb; `otlp.kernel`, from the wire format) give exactly the same columns for the same
payloads, so later steps don't depend on which one ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, Int64s

Numpy = np.ndarray[Any, Any]


class Kind(IntEnum):
    """The five shapes of ``Metric.data`` (metrics.proto), in the order of the ``kind`` column's codes."""

    GAUGE = 0
    SUM = 1
    HISTOGRAM = 2
    EXPONENTIAL_HISTOGRAM = 3
    SUMMARY = 4


class Temporality(IntEnum):
    """AggregationTemporality (metrics.proto); unknown enum values become UNSPECIFIED."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


class Number(IntEnum):
    """Which member of ``NumberDataPoint.value`` was set. Kinds other than gauge and sum have NONE."""

    NONE = 0
    DOUBLE = 1
    INT = 2


class Excess(IntFlag):
    """A point's lists that are longer than `limits.Limits` allows: the decoders give them as empty."""

    NONE = 0
    ATTRIBUTES = 1
    BUCKETS = 2


DICTIONARY = pa.dictionary(pa.int32(), pa.string())
ATTRIBUTES = pa.map_(pa.string(), pa.string())

MANY_ATTRIBUTES = "more than {} attributes in all points"
MANY_LABELS = "more than {} labels"
MANY_FIELDS = "more than {} fields in a form that only the slow decoder reads"
MANY_BUCKETS = "more than {} buckets, bounds and quantiles in all points"

PAYLOADS = pa.schema(
    [
        ("error", pa.string()),  # NULL when decoded, else what is wrong with the bytes
        ("too_much", pa.string()),  # NULL, or the limit of `limits.Limits` that the payload exceeds
        ("points", pa.int32()),  # data points in `points`; 0 with an error or too much
        ("resource", pa.int32()),  # index into `attribute_sets`, -1: no resource attributes
        ("beyond", pa.int32()),  # data points beyond the cap: they are not in `points`
        ("untimed", pa.int32()),  # data points without a time that are not in `points`: the first ones are
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
        ("excess", pa.int8()),  # Excess: what is left out of a point because it is too long
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

    `attribute_sets` holds every distinct list of attributes as sent: order and repeated keys are preserved, values are
    text (see `reference.attribute_text`). Lists that differ only in order are different lists.
    """

    payloads: pa.Table
    points: pa.Table
    distributions: pa.Table
    attribute_sets: pa.MapArray


def payload_bounds(payloads: pa.LargeBinaryArray) -> tuple[Numpy, Numpy, Numpy]:
    """The data buffer, and where in it each payload starts and ends; a NULL is empty."""
    _, offset_buffer, data_buffer = payloads.buffers()
    offsets = np.zeros(1, np.int64)
    if len(payloads):
        offsets = np.frombuffer(offset_buffer, np.int64)[payloads.offset : payloads.offset + len(payloads) + 1]
    starts, ends = offsets[:-1], offsets[1:]
    if payloads.null_count:
        ends = np.where(payloads.is_valid().to_numpy(zero_copy_only=False), ends, starts)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    # numba compiles another version for writeable arrays: this way there is only one.
    for array in (data, starts, ends):
        array.flags.writeable = False
    return data, starts, ends


def distinct_sets(offsets: Int64s, keys: pa.StringArray, values: pa.StringArray) -> tuple[pa.MapArray, Int32s]:
    """The distinct lists of pairs, in order of appearance, and the index of each list among them (int32)."""
    keys, values = keys.dictionary_encode(), values.dictionary_encode()
    # A list is the bytes of its codes: Arrow's dictionary of them is that of the lists.
    codes = np.stack([keys.indices.to_numpy(), values.indices.to_numpy()], axis=1)
    pair_bytes = codes.itemsize * 2
    lists = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets.astype(np.int64) * pair_bytes), pa.py_buffer(codes)],
    ).dictionary_encode()
    _, distinct_offsets, distinct_codes = lists.dictionary.buffers()
    offsets = np.frombuffer(distinct_offsets, np.int64, len(lists.dictionary) + 1) // pair_bytes
    codes = np.frombuffer(distinct_codes or b"", np.int32, int(offsets[-1]) * 2).reshape(-1, 2)
    sets = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        keys.dictionary.take(pa.array(codes[:, 0])),
        values.dictionary.take(pa.array(codes[:, 1])),
    )
    return sets, lists.indices.to_numpy()
