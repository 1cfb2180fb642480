"""Data points of metrics.proto for numba: the four messages that hold a number, buckets or quantiles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from udfs import wire_attributes
from udfs.wire_reader import ODD, Bytes, load64, load_double, next_field, plain, varint

GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = range(5)  # decoded.Kind
NONE, AS_DOUBLE, AS_INT = range(3)  # decoded.Number


class Distributions(NamedTuple):
    """What the kernel writes for each histogram, exponential histogram and summary; a column is one of them."""

    words: Any  # uint64, COUNT and ZERO_COUNT
    doubles: Any  # float64, TOTAL to ZERO_THRESHOLD
    ints: Any  # int32, SCALE to NEGATIVE_OFFSET
    tags: Any  # int8, KIND and PRESENT
    ends: Any  # int64, behind the last of its items in each of `lists`
    lists: Any  # uint64, two rows: bounds and counts, positive and negative counts, or quantiles and values


COUNT, ZERO_COUNT = range(2)
TOTAL, MIN, MAX, ZERO_THRESHOLD = range(4)
SCALE, POSITIVE_OFFSET, NEGATIVE_OFFSET = range(3)
KIND, PRESENT = range(2)

# What a field is to `distribution`.
(UNKNOWN, ATTRIBUTE, START_TIME, TIME, COUNT_FIELD, TOTAL_FIELD, MIN_FIELD, MAX_FIELD, FLAGS, EXEMPLAR, PACKED_FIRST,
 PACKED_SECOND, ONE_FIRST, ONE_SECOND, SCALE_FIELD, ZERO_COUNT_FIELD, ZERO_THRESHOLD_FIELD, POSITIVE, NEGATIVE,
 QUANTILE) = range(20)  # fmt: skip

ROLES = np.zeros((5, 128), np.uint8)
for _kind in (HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY):
    ROLES[_kind, [0x11, 0x19, 0x21, 0x29]] = START_TIME, TIME, COUNT_FIELD, TOTAL_FIELD
ROLES[HISTOGRAM, [0x4A, 0x42, 0x50, 0x59, 0x61]] = ATTRIBUTE, EXEMPLAR, FLAGS, MIN_FIELD, MAX_FIELD
ROLES[HISTOGRAM, [0x3A, 0x39, 0x32, 0x31]] = PACKED_FIRST, ONE_FIRST, PACKED_SECOND, ONE_SECOND
ROLES[EXPONENTIAL_HISTOGRAM, [0x0A, 0x5A, 0x50, 0x61, 0x69]] = ATTRIBUTE, EXEMPLAR, FLAGS, MIN_FIELD, MAX_FIELD
ROLES[EXPONENTIAL_HISTOGRAM, [0x30, 0x39, 0x71]] = SCALE_FIELD, ZERO_COUNT_FIELD, ZERO_THRESHOLD_FIELD
ROLES[EXPONENTIAL_HISTOGRAM, [0x42, 0x4A]] = POSITIVE, NEGATIVE
ROLES[SUMMARY, [0x3A, 0x32, 0x40]] = ATTRIBUTE, QUANTILE, FLAGS


@plain
def exemplar(data: Bytes, pos: int, end: int) -> int:
    """`end` when the Exemplar is well formed, else ODD; nothing of it is kept."""
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD or (field == 0x3A and wire_attributes.is_odd(data, first, pos)):  # filtered_attributes
            return ODD
    return end


@plain
def number_point(data: Bytes, pos: int, end: int) -> Any:
    """A NumberDataPoint: ODD or `end`, start and time, number, value as double and int, flags, its attributes' slice."""
    start_time = time = np.uint64(0)
    number, value, value_int = NONE, 0.0, np.int64(0)
    flags = np.uint64(0)
    first, last = np.int64(0), np.int64(0)
    while pos < end:
        field = np.int64(data[pos])
        if field in (0x11, 0x19, 0x21, 0x31):
            if end - pos < 9:
                return ODD, start_time, time, number, value, value_int, flags, first, last
            if field == 0x11:
                start_time = load64(data, pos + 1)
            elif field == 0x19:
                time = load64(data, pos + 1)
            elif field == 0x21:
                number, value, value_int = AS_DOUBLE, load_double(data, pos + 1), np.int64(0)
            else:
                value_int = np.int64(load64(data, pos + 1))
                number, value = AS_INT, np.float64(value_int)
            pos += 9
        else:
            field_start = pos
            field, content, pos = next_field(data, pos, end)
            if pos == ODD:
                return ODD, start_time, time, number, value, value_int, flags, first, last
            if field == 0x3A:  # attributes
                if last not in (0, field_start):
                    return ODD, start_time, time, number, value, value_int, flags, first, last
                first = field_start if last == 0 else first
                last = pos
            elif field == 0x40:
                flags, _ = varint(data, content, pos)
            elif field == 0x2A and exemplar(data, content, pos) == ODD:
                return ODD, start_time, time, number, value, value_int, flags, first, last
    return end, start_time, time, number, value, value_int, flags, first, last


@plain
def zigzag(value: int) -> int:
    """A sint32 from its varint; bits beyond 32 are dropped, as upb does."""
    low = np.int64(value & np.uint64(0xFFFFFFFF))
    return (low >> 1) ^ -(low & 1)


@plain
def _buckets(data: Bytes, pos: int, end: int, lists: Any, into: int, used: int) -> Any:
    """ExponentialHistogramDataPoint.Buckets: ODD or `end`, offset, and where its counts in `items` end."""
    offset = np.int64(0)
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return ODD, offset, used
        if field == 0x08:  # offset
            offset = zigzag(varint(data, first, pos)[0])
        elif field in (0x10, 0x12):  # bucket_counts, one or packed
            while first < pos:
                number, first = varint(data, first, pos)
                if first == ODD or used >= lists.shape[1]:
                    return ODD, offset, used
                lists[into, used] = number
                used += 1
    return end, offset, used


@plain
def _quantile(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """SummaryDataPoint.ValueAtQuantile: ODD or `end`, the bits of the quantile and of the value."""
    quantile = value = np.uint64(0)
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return ODD, quantile, value
        if field == 0x09:
            quantile = load64(data, first)
        elif field == 0x11:
            value = load64(data, first)
    return end, quantile, value


@plain
def distribution(data: Bytes, pos: int, end: int, kind: int, row: int, out: Distributions) -> Any:
    """Write a data point that isn't a number to column `row`: ODD or `end`, start, time, flags, attributes' slice."""
    start_time = time = flags = np.uint64(0)
    first, last = np.int64(0), np.int64(0)
    odd = (ODD, start_time, time, flags, first, last)
    present = seen = 0
    used_first = out.ends[0, row - 1] if row > 0 else np.int64(0)
    used_second = out.ends[1, row - 1] if row > 0 else np.int64(0)
    for column in range(2):
        out.words[column, row] = np.uint64(0)
    for column in range(4):
        out.doubles[column, row] = 0.0
    for column in range(3):
        out.ints[column, row] = 0
    while pos < end:
        field_start = pos
        field, inner, pos = next_field(data, pos, end)
        if pos == ODD:
            return odd
        role = ROLES[kind, field] if field < 128 else UNKNOWN
        if role == ATTRIBUTE:
            if last not in (0, field_start):
                return odd
            first = field_start if last == 0 else first
            last = pos
        elif role == START_TIME:
            start_time = load64(data, inner)
        elif role == TIME:
            time = load64(data, inner)
        elif role == COUNT_FIELD:
            out.words[COUNT, row] = load64(data, inner)
        elif role in (TOTAL_FIELD, MIN_FIELD, MAX_FIELD):
            column = role - TOTAL_FIELD
            out.doubles[column, row] = load_double(data, inner)
            present |= 1 << column
        elif role == FLAGS:
            flags, _ = varint(data, inner, pos)
        elif role == SCALE_FIELD:
            out.ints[SCALE, row] = zigzag(varint(data, inner, pos)[0])
        elif role == ZERO_COUNT_FIELD:
            out.words[ZERO_COUNT, row] = load64(data, inner)
        elif role == ZERO_THRESHOLD_FIELD:
            out.doubles[ZERO_THRESHOLD, row] = load_double(data, inner)
        elif role in (ONE_FIRST, ONE_SECOND, PACKED_FIRST, PACKED_SECOND):
            items = (pos - inner) >> 3
            into = 0 if role in (ONE_FIRST, PACKED_FIRST) else 1
            used = used_first if into == 0 else used_second
            if (pos - inner) & 7 or used + items > out.lists.shape[1]:
                return odd
            for item in range(items):
                out.lists[into, used + item] = load64(data, inner + 8 * item)
            if into == 0:
                used_first += items
            else:
                used_second += items
        elif role in (POSITIVE, NEGATIVE):
            into = role - POSITIVE
            if seen & 1 << into:
                return odd
            seen |= 1 << into
            status, offset, used = _buckets(
                data, inner, pos, out.lists, into, used_first if into == 0 else used_second
            )
            if status == ODD:
                return odd
            out.ints[POSITIVE_OFFSET + into, row] = offset
            if into == 0:
                used_first = used
            else:
                used_second = used
        elif role == QUANTILE:
            status, quantile, value = _quantile(data, inner, pos)
            if status == ODD or used_first >= out.lists.shape[1] or used_second >= out.lists.shape[1]:
                return odd
            out.lists[0, used_first], out.lists[1, used_second] = quantile, value
            used_first += 1
            used_second += 1
        elif role == EXEMPLAR:
            if exemplar(data, inner, pos) == ODD:
                return odd
    out.tags[KIND, row], out.tags[PRESENT, row] = kind, present
    out.ends[0, row], out.ends[1, row] = used_first, used_second
    return end, start_time, time, flags, first, last


@plain
def most_items(data: Bytes, pos: int, end: int, kind: int) -> int:
    """At most so many items of either list does the distribution hold: a varint ends with its only byte < 128."""
    if kind == HISTOGRAM:
        return (end - pos) >> 3
    if kind == SUMMARY:
        return (end - pos) >> 1
    items = 0
    for index in range(pos, end):
        items += data[index] < 0x80
    return items
