"""Data points of metrics.proto for numba, and the columns that they are written to.

It also names the kernel's other arrays: what payloads need, how they end, limits, and `DecoderState`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import inlined, part
from kafka_telemetry_lake.udfs.otlp import wire_attributes
from kafka_telemetry_lake.udfs.otlp.wire_bytes import ODD, Int64, UInt64, load64, load_double, next_field, varint

GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = range(5)  # decoded.Kind
NONE, AS_DOUBLE, AS_INT = range(3)  # decoded.Number


class DistributionColumns(NamedTuple):
    """What the kernel writes for the kinds that aren't numbers; a column is a data point."""

    words: Any  # uint64, COUNT and ZERO_COUNT
    doubles: Any  # float64, TOTAL to ZERO_THRESHOLD
    ints: Any  # int32, SCALE to NEGATIVE_OFFSET
    tags: Any  # int8, DISTRIBUTION_KIND, PRESENT and TOO_LONG
    ends: Any  # int64, a row per list, BOUNDS to VALUES: behind the last of its items, of those of that list
    bases: Any  # int64, where in `items` each list begins, and where the last one ends
    items: Any  # uint64, the items of all lists


# Each kind has two lists: a column of Arrow's needs its items in one piece, without those of other kinds.
BOUNDS, COUNTS, POSITIVE, NEGATIVE, QUANTILES, VALUES = range(6)
LISTS = 6
FIRST_LIST = (-1, -1, BOUNDS, POSITIVE, QUANTILES)  # of each kind

COUNT, ZERO_COUNT = range(2)
TOTAL, MIN, MAX, ZERO_THRESHOLD = range(4)
SCALE, POSITIVE_OFFSET, NEGATIVE_OFFSET = range(3)
DISTRIBUTION_KIND, PRESENT, TOO_LONG = range(3)

# What `distribution` does with a field: nothing, something of its own, or put it into a row of `DistributionColumns`.
UNKNOWN, ATTRIBUTE, START_TIME, TIME, FLAGS, EXEMPLAR, SCALE_FIELD, QUANTILE = range(8)
# + which of the kind's two lists (LIST, BUCKETS), + row of `words`, + row of `doubles`
LIST, BUCKETS, WORD, DOUBLE = 8, 10, 12, 14

ROLES = np.zeros((5, 128), np.uint8)
for _kind in (HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY):
    ROLES[_kind, [0x11, 0x19, 0x21, 0x29]] = START_TIME, TIME, WORD + COUNT, DOUBLE + TOTAL
ROLES[HISTOGRAM, [0x4A, 0x42, 0x50, 0x59, 0x61]] = ATTRIBUTE, EXEMPLAR, FLAGS, DOUBLE + MIN, DOUBLE + MAX
ROLES[HISTOGRAM, [0x3A, 0x39]] = LIST  # explicit_bounds, packed or not
ROLES[HISTOGRAM, [0x32, 0x31]] = LIST + 1  # bucket_counts, packed or not
ROLES[EXPONENTIAL_HISTOGRAM, [0x0A, 0x5A, 0x50]] = ATTRIBUTE, EXEMPLAR, FLAGS
ROLES[EXPONENTIAL_HISTOGRAM, [0x61, 0x69, 0x71]] = DOUBLE + MIN, DOUBLE + MAX, DOUBLE + ZERO_THRESHOLD
ROLES[EXPONENTIAL_HISTOGRAM, [0x30, 0x39, 0x42, 0x4A]] = SCALE_FIELD, WORD + ZERO_COUNT, BUCKETS, BUCKETS + 1
ROLES[SUMMARY, [0x3A, 0x32, 0x40]] = ATTRIBUTE, QUANTILE, FLAGS


@part
def exemplar(data: UInt8s, pos: int, end: int) -> bool:
    """Whether an Exemplar is well formed; its content is ignored."""
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD or (field == 0x3A and wire_attributes.is_odd(data, first, pos)):  # filtered_attributes
            return False
    return True


@part
def number_point(data: UInt8s, pos: int, end: int) -> Any:
    """A NumberDataPoint: ODD or `end`, start, time, number, value, exact value, flags, attributes' slice."""
    start_time = time = flags = np.uint64(0)
    number, value = NONE, 0.0
    value_int: Int64 = 0
    first, last = 0, 0
    ok = True
    while ok and pos < end:
        field = np.int64(data[pos])
        if field in (0x11, 0x19, 0x21, 0x31) and end - pos > 8:
            if field == 0x11:
                start_time = load64(data, pos + 1)
            elif field == 0x19:
                time = load64(data, pos + 1)
            elif field == 0x21:
                number, value, value_int = AS_DOUBLE, load_double(data, pos + 1), 0
            else:
                number, value_int = AS_INT, np.int64(load64(data, pos + 1))
                value = np.float64(value_int)
            pos += 9
            continue
        field_start = pos
        field, inner, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x3A:  # attributes
            ok = last in (0, field_start)
            first = field_start if last == 0 else first
            last = pos
        elif field == 0x40:
            flags, _ = varint(data, inner, pos)
        elif field == 0x2A:
            ok = exemplar(data, inner, pos)
    return (end if ok else ODD), start_time, time, number, value, value_int, flags, first, last


@part
def zigzag(value: UInt64) -> Int64:
    """A sint32 from its varint; bits beyond 32 are dropped, as upb does."""
    low = np.int64(value & np.uint64(0xFFFFFFFF))
    return (low >> 1) ^ -(low & 1)


@inlined
def _first_item(into: int, row: int, out: DistributionColumns) -> Int64:
    """The number of a row's first item, at which the list of the row before ends."""
    return out.ends[into, row - 1] if row > 0 else 0


@inlined
def _last_item(into: int, row: int, most: int, out: DistributionColumns) -> Int64:
    """The number at which a row's list must end, after `most` items. Only a payload with too many runs out of room."""
    return min(_first_item(into, row, out) + most, out.bases[into + 1] - out.bases[into])


@inlined
def _items(data: UInt8s, pos: int, end: int, into: int, row: int, most: int, out: DistributionColumns) -> bool:
    """Append eight-byte items to a list."""
    used = out.ends[into, row]
    if (end - pos) & 7:
        return False
    if used + ((end - pos) >> 3) > _last_item(into, row, most, out):
        out.tags[TOO_LONG, row] = 1
        return True
    items = out.items[out.bases[into] + used :]
    for item in range(np.uint64(end - pos) >> np.uint64(3)):  # unsigned: an index that may be negative costs more
        items[item] = load64(data, pos + np.int64(item << np.uint64(3)))
    out.ends[into, row] = used + ((end - pos) >> 3)
    return True


@inlined
def _buckets(data: UInt8s, pos: int, end: int, into: int, row: int, most: int, out: DistributionColumns) -> bool:
    """ExponentialHistogramDataPoint.Buckets: its offset, and its counts as items of a list."""
    used = out.ends[into, row]
    last = _last_item(into, row, most, out)
    items = out.items[out.bases[into] : out.bases[into + 1]]
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return False
        if field == 0x08:  # offset
            out.ints[POSITIVE_OFFSET + into - POSITIVE, row] = zigzag(varint(data, first, pos)[0])
        elif field in (0x10, 0x12):  # bucket_counts, one or packed
            while first < pos:
                if data[first] < 0x80:
                    number, first = np.uint64(data[first]), first + 1
                elif pos - first > 1 and data[first + 1] < 0x80:
                    number, first = np.uint64(data[first] & 0x7F | data[first + 1] << 7), first + 2
                else:
                    number, first = varint(data, first, pos)
                    if first == ODD:
                        return False
                if used < last:
                    items[np.uint64(used)] = number
                    used += 1
                else:
                    out.tags[TOO_LONG, row] = 1
    out.ends[into, row] = used
    return True


@inlined
def _quantile(data: UInt8s, pos: int, end: int, row: int, most: int, out: DistributionColumns) -> bool:
    """SummaryDataPoint.ValueAtQuantile as an item of each list."""
    used = out.ends[QUANTILES, row]  # as many as VALUES has
    fits = used < _last_item(QUANTILES, row, most, out)
    quantile = value = np.uint64(0)
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return False
        if field == 0x09:
            quantile = load64(data, first)
        elif field == 0x11:
            value = load64(data, first)
    if not fits:
        out.tags[TOO_LONG, row] = 1
        return True
    out.items[out.bases[QUANTILES] + used], out.items[out.bases[VALUES] + used] = quantile, value
    out.ends[QUANTILES, row] = out.ends[VALUES, row] = used + 1
    return True


@inlined
def _start(kind: int, row: int, out: DistributionColumns) -> None:
    """Reset a row: a discarded data point may have used it. Its lists start where those of the row before end."""
    out.tags[DISTRIBUTION_KIND, row], out.tags[TOO_LONG, row] = kind, 0
    for column in range(LISTS):
        out.ends[column, row] = _first_item(column, row, out)
    for column in range(2):
        out.words[column, row] = 0
    for column in range(4):
        out.doubles[column, row] = 0.0
    for column in range(3):
        out.ints[column, row] = 0


@inlined
def _drop_excess(row: int, out: DistributionColumns) -> None:
    """Empty the lists of a row of which one was too long."""
    if out.tags[TOO_LONG, row]:
        for column in range(LISTS):
            out.ends[column, row] = _first_item(column, row, out)


@inlined
def distribution(data: UInt8s, pos: int, end: int, kind: int, row: int, most: int, out: DistributionColumns) -> Any:
    """Write a data point that isn't a number: ODD or `end`, start, time, flags, attributes' slice.

    One with a list of more than `most` items has none of its lists, and TOO_LONG.
    """
    start_time = time = flags = np.uint64(0)
    first, last = 0, 0
    present = 0
    ok = True
    _start(kind, row, out)
    while ok and pos < end:
        field_start = pos
        field, inner, pos = next_field(data, pos, end)
        role = ROLES[kind, field] if field < 128 else UNKNOWN
        if pos == ODD:
            ok = False
        elif role >= DOUBLE:
            column = role - DOUBLE
            out.doubles[column, row] = load_double(data, inner)
            present |= 1 << column
        elif role >= WORD:
            out.words[role - WORD, row] = load64(data, inner)
        elif role >= BUCKETS:
            into = FIRST_LIST[kind] + role - BUCKETS
            ok = _buckets(data, inner, pos, into, row, most, out)  # a second one adds to the first
        elif role >= LIST:
            ok = _items(data, inner, pos, FIRST_LIST[kind] + role - LIST, row, most, out)
        elif role == ATTRIBUTE:
            ok = last in (0, field_start)
            first = field_start if last == 0 else first
            last = pos
        elif role in (START_TIME, TIME):
            moment = load64(data, inner)
            start_time, time = (moment, time) if role == START_TIME else (start_time, moment)
        elif role == FLAGS:
            flags, _ = varint(data, inner, pos)
        elif role == EXEMPLAR:
            ok = exemplar(data, inner, pos)
        elif role == SCALE_FIELD:
            out.ints[SCALE, row] = zigzag(varint(data, inner, pos)[0])
        elif role == QUANTILE:
            ok = _quantile(data, inner, pos, row, most, out)
    out.tags[PRESENT, row] = present
    _drop_excess(row, out)
    return (end if ok else ODD), start_time, time, flags, first, last


@part
def most_items(data: UInt8s, pos: int, end: int, kind: int) -> Int64:
    """An upper bound of the items in either list: a varint ends with its only byte < 128."""
    if kind == HISTOGRAM:
        return (end - pos) >> 3
    if kind == SUMMARY:
        return (end - pos) >> 1
    items = np.uint64(0)
    while end - pos >= 8:
        ends = ~load64(data, pos) >> np.uint64(7) & np.uint64(0x0101010101010101)
        items += ends * np.uint64(0x0101010101010101) >> np.uint64(56)
        pos += 8
    return np.int64(items) + end - pos


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
