"""MetricsData (metrics.proto) for numba: from payloads in one buffer to columns of data points.

`measure` walks the messages down to the data points and says how much room they need; `fill` writes them. A payload
that either finds malformed or odd leaves nothing behind and is left to the reference decoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from udfs import wire_attributes, wire_slices
from udfs.wire_points import (
    EXPONENTIAL_HISTOGRAM,
    GAUGE,
    HISTOGRAM,
    NONE,
    SUM,
    SUMMARY,
    Distributions,
    distribution,
    most_items,
    number_point,
)
from udfs.wire_reader import ODD, Bytes, is_utf8, sized, skip, tag, text, varint
from udfs.wire_slices import EXTRA, HASH, SIZE, START, find, slice_hash

POINTS, DISTRIBUTIONS, ITEMS = range(3)
"""Rows of `needs`: data points, distributions and, at most, list items of a payload."""

STATUS, KEPT, RESOURCE, CAPPED = range(4)
"""Rows of `outcomes`: ODD or 0, data points written, code of the resource's attributes or -1, 1 when over the cap."""

PAYLOAD, METRIC, ATTRIBUTES, SCOPE, DISTRIBUTION = range(5)
KIND, TEMPORALITY, IS_MONOTONIC, NUMBER = range(4)

TEXTS, REGIONS = range(2)

# No slice has the same hash as an attribute list and as a resource's: their checks differ.
RESOURCE_HASH = np.uint64(0x9E3779B97F4A7C15)


class Points(NamedTuple):
    """What the kernel writes for each data point; a column is one of them."""

    times: Any  # uint64, start and time
    values: Any  # float64
    ints: Any  # int64, the exact value
    flags: Any  # uint32
    codes: Any  # int32, PAYLOAD to DISTRIBUTION
    tags: Any  # int8, KIND to NUMBER


class State(NamedTuple):
    """One payload's view of the output: how far it is written, and the dictionaries."""

    points: Points
    distributions: Distributions
    text_slots: Any
    texts: Any
    region_slots: Any
    regions: Any
    used: Any  # int64, POINTS, DISTRIBUTIONS
    known: Any  # int64, TEXTS, REGIONS
    secret: Any


@njit
def data_kind(field: int) -> int:
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


@njit
def _measure(data: Bytes, pos: int, end: int, level: int, kind: int, needs: Any) -> bool:
    """Add up what the message at a level needs: 0 MetricsData, 1 ResourceMetrics, 2 ScopeMetrics, 3 Metric, 4 data."""
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False
        first = pos
        pos = skip(data, field, pos, end)
        if pos == ODD:
            return False
        if level == 4:
            if field == 0x0A:  # data_points
                needs[POINTS] += 1
                if kind > SUM:
                    needs[DISTRIBUTIONS] += 1
                    needs[ITEMS] += most_items(data, first, pos, kind)
        elif level == 3:
            inner = data_kind(field)
            if inner >= 0:
                _, first = varint(data, first, pos)
                if not _measure(data, first, pos, 4, inner, needs):
                    return False
        elif field == (0x0A if level == 0 else 0x12):  # resource_metrics, scope_metrics, metrics
            _, first = varint(data, first, pos)
            if not _measure(data, first, pos, level + 1, kind, needs):
                return False
    return True


@njit(cache=True)
def measure(data: Bytes, starts: Any, ends: Any, max_points: int, needs: Any, outcomes: Any) -> None:
    """Write each payload's `needs`; an odd one needs nothing and has ODD as its status."""
    for payload in range(starts.size):
        if _measure(data, starts[payload], ends[payload], 0, -1, needs[:, payload]):
            needs[POINTS, payload] = min(needs[POINTS, payload], max_points)
            needs[DISTRIBUTIONS, payload] = min(needs[DISTRIBUTIONS, payload], max_points)
        else:
            needs[:, payload] = 0
            outcomes[STATUS, payload] = ODD


@njit
def intern_text(data: Bytes, start: int, end: int, s: State) -> int:
    """The code of a text, or ODD when it is new and not UTF-8."""
    value = slice_hash(data, start, end - start, s.secret)
    slot, code = find(data, start, end - start, value, s.text_slots, s.texts)
    if code >= 0:
        return code
    code = s.known[TEXTS]
    if code >= s.texts.shape[0] or not is_utf8(data, start, end):
        return ODD
    s.texts[code, START], s.texts[code, SIZE], s.texts[code, HASH] = start, end - start, np.int64(value)
    s.text_slots[slot] = code + 1
    s.known[TEXTS] += 1
    return code


@njit
def intern_region(data: Bytes, start: int, end: int, is_resource: bool, s: State) -> int:
    """The code of a list of KeyValues, or ODD when it is new and odd."""
    value = slice_hash(data, start, end - start, s.secret)
    if is_resource:
        value ^= RESOURCE_HASH
    slot, code = find(data, start, end - start, value, s.region_slots, s.regions)
    if code >= 0:
        return code
    code = s.known[REGIONS]
    pairs = wire_attributes.count(data, start, end)
    if code >= s.regions.shape[0] or pairs == ODD:
        return ODD
    if is_resource and wire_attributes.repeats_key(data, start, end):
        return ODD
    s.regions[code, START], s.regions[code, SIZE], s.regions[code, HASH] = start, end - start, np.int64(value)
    s.regions[code, EXTRA] = pairs
    s.region_slots[slot] = code + 1
    s.known[REGIONS] += 1
    return code


@njit
def add_point(data: Bytes, pos: int, end: int, kind: int, keep: bool, s: State) -> bool:
    """Write a data point, and count it if it is kept; the row of one that isn't is written again."""
    row = s.used[POINTS]
    p = s.points
    if row >= p.flags.size:
        return False
    if kind <= SUM:
        status, start_time, time, number, value, value_int, flags, first, last = number_point(data, pos, end)
        p.codes[DISTRIBUTION, row] = -1
    else:
        written = s.used[DISTRIBUTIONS]
        if written >= s.distributions.ends.shape[1]:
            return False
        status, start_time, time, flags, first, last = distribution(data, pos, end, kind, written, s.distributions)
        number, value, value_int = NONE, 0.0, np.int64(0)
        p.codes[DISTRIBUTION, row] = written
    if status == ODD:
        return False
    if not keep:
        return wire_attributes.count(data, first, last) != ODD
    attributes = intern_region(data, first, last, False, s)
    if attributes == ODD:
        return False
    p.codes[ATTRIBUTES, row] = attributes
    p.times[0, row], p.times[1, row] = start_time, time
    p.values[row], p.ints[row], p.tags[NUMBER, row] = value, value_int, number
    p.flags[row] = np.uint32(flags)
    p.tags[KIND, row] = kind
    s.used[POINTS] += 1
    if kind > SUM:
        s.used[DISTRIBUTIONS] += 1
    return True


@njit
def add_data(data: Bytes, pos: int, end: int, kind: int, limit: int, s: State) -> tuple[bool, bool]:
    """A member of Metric.data: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    temporality = is_monotonic = 0
    capped = False
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False, capped
        if field == 0x0A:  # data_points
            first, pos = sized(data, pos, end)
            keep = s.used[POINTS] < limit
            capped |= not keep
            if pos == ODD or not add_point(data, first, pos, kind, keep, s):
                return False, capped
        elif field == 0x10 and kind in (SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM):  # aggregation_temporality
            number, pos = varint(data, pos, end)
            low = number & np.uint64(0xFFFFFFFF)
            temporality = np.int64(low) if low <= np.uint64(2) else 0
        elif field == 0x18 and kind == SUM:  # is_monotonic
            number, pos = varint(data, pos, end)
            is_monotonic = 1 if number != np.uint64(0) else 0
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD:
            return False, capped
    for row in range(first_row, s.used[POINTS]):
        s.points.tags[TEMPORALITY, row] = temporality
        s.points.tags[IS_MONOTONIC, row] = is_monotonic
    return True, capped


@njit
def add_metric(data: Bytes, pos: int, end: int, limit: int, s: State) -> tuple[bool, bool]:
    """A Metric: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    name_start, name_end = np.int64(0), np.int64(0)
    names = members = 0
    capped = False
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False, capped
        kind = data_kind(field)
        if kind >= 0:
            members += 1
            first, pos = sized(data, pos, end)
            if pos == ODD:
                return False, capped
            ok, capped = add_data(data, first, pos, kind, limit, s)
            if not ok:
                return False, capped
        elif field == 0x0A:  # name
            names += 1
            name_start, name_end = sized(data, pos, end)
            pos = name_end
        elif field in (0x12, 0x1A):  # description, unit
            _, pos = text(data, pos, end)
        elif field == 0x62:  # metadata
            first, pos = sized(data, pos, end)
            if pos != ODD and wire_attributes.key_value(data, first, pos)[2] == ODD:
                return False, capped
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD or names > 1 or members > 1:
            return False, capped
    if s.used[POINTS] == first_row:
        return is_utf8(data, name_start, name_end), capped
    code = intern_text(data, name_start, name_end, s)
    s.points.codes[METRIC, first_row : s.used[POINTS]] = code
    return code != ODD, capped


@njit
def scope_name(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Start and end, or ODD, of InstrumentationScope.name."""
    name_start, name_end = np.int64(0), np.int64(0)
    names = 0
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return name_start, ODD
        if field == 0x0A:
            names += 1
            name_start, name_end = sized(data, pos, end)
            pos = name_end
        elif field == 0x12:  # version
            _, pos = text(data, pos, end)
        elif field == 0x1A:  # attributes
            first, pos = sized(data, pos, end)
            if pos != ODD and wire_attributes.key_value(data, first, pos)[2] == ODD:
                return name_start, ODD
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD or names > 1:
            return name_start, ODD
    return name_start, name_end


@njit
def add_scope_metrics(data: Bytes, pos: int, end: int, limit: int, s: State) -> tuple[bool, bool]:
    """A ScopeMetrics: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    scope = np.int64(-1)
    scopes = 0
    any_capped = False
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False, any_capped
        if field == 0x12:  # metrics
            first, pos = sized(data, pos, end)
            if pos == ODD:
                return False, any_capped
            ok, capped = add_metric(data, first, pos, limit, s)
            any_capped |= capped
            if not ok:
                return False, any_capped
        elif field == 0x0A:  # scope
            scopes += 1
            first, pos = sized(data, pos, end)
            if pos == ODD:
                return False, any_capped
            name_start, name_end = scope_name(data, first, pos)
            if name_end == ODD:
                return False, any_capped
            scope = intern_text(data, name_start, name_end, s)
            if scope == ODD:
                return False, any_capped
        elif field == 0x1A:  # schema_url
            _, pos = text(data, pos, end)
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD or scopes > 1:
            return False, any_capped
    s.points.codes[SCOPE, first_row : s.used[POINTS]] = scope
    return True, any_capped


@njit
def entity_ref(data: Bytes, pos: int, end: int) -> int:
    """`end` when the EntityRef is well formed, else ODD."""
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return ODD
        if field in (0x0A, 0x12, 0x1A, 0x22):  # schema_url, type, id_keys, description_keys
            _, pos = text(data, pos, end)
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD:
            return ODD
    return end


@njit
def resource_attributes(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Start and end, or ODD, of the slice of Resource.attributes."""
    first, last = np.int64(0), np.int64(0)
    while pos < end:
        field_start = pos
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return first, ODD
        inner = pos
        pos = skip(data, field, pos, end)
        if pos == ODD:
            return first, ODD
        if field == 0x0A:  # attributes
            if last not in (0, field_start):
                return first, ODD
            if last == 0:
                first = field_start
            last = pos
        elif field == 0x1A:  # entity_refs
            _, inner = varint(data, inner, pos)
            if entity_ref(data, inner, pos) == ODD:
                return first, ODD
    return first, last


@njit
def add_resource_metrics(
    data: Bytes, pos: int, end: int, resource: int, limit: int, s: State
) -> tuple[bool, int, bool]:
    """A ResourceMetrics: whether it is well formed, the payload's resource so far, whether rows were left out."""
    resources = 0
    any_capped = False
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False, resource, any_capped
        if field in (0x0A, 0x12):  # resource, scope_metrics
            first, pos = sized(data, pos, end)
            if pos == ODD:
                return False, resource, any_capped
            if field == 0x12:
                ok, capped = add_scope_metrics(data, first, pos, limit, s)
                any_capped |= capped
                if not ok:
                    return False, resource, any_capped
            else:
                resources += 1
                first, last = resource_attributes(data, first, pos)
                if last == ODD or resources > 1:
                    return False, resource, any_capped
                if last > first:
                    code = intern_region(data, first, last, True, s)
                    # Attributes of several resources are merged by the reference decoder.
                    if code == ODD or resource not in (-1, code):
                        return False, resource, any_capped
                    resource = code
        elif field == 0x1A:  # schema_url
            _, pos = text(data, pos, end)
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD:
            return False, resource, any_capped
    return True, resource, any_capped


@njit
def add_payload(data: Bytes, pos: int, end: int, max_points: int, s: State) -> tuple[bool, int, bool]:
    """A MetricsData: whether it is well formed, its resource, whether it has more than `max_points`."""
    limit = s.used[POINTS] + max_points
    resource = np.int64(-1)
    any_capped = False
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return False, resource, any_capped
        if field == 0x0A:  # resource_metrics
            first, pos = sized(data, pos, end)
            if pos == ODD:
                return False, resource, any_capped
            ok, resource, capped = add_resource_metrics(data, first, pos, resource, limit, s)
            any_capped |= capped
            if not ok:
                return False, resource, any_capped
        else:
            pos = skip(data, field, pos, end)
            if pos == ODD:
                return False, resource, any_capped
    return True, resource, any_capped


@njit(cache=True)
def fill(
    data: Bytes,
    starts: Any,
    ends: Any,
    max_points: int,
    needs: Any,
    points: Points,
    distributions: Distributions,
    secret: Any,
    outcomes: Any,
) -> Any:
    """Write the payloads that `measure` did not find odd; returns used rows and the slices of texts and regions.

    `points` and `distributions` have one row more than needed, for a data point that isn't kept.
    """
    text_slots, texts = np.zeros(2048, np.int32), np.empty((1024, 4), np.int64)
    region_slots, regions = np.zeros(2048, np.int32), np.empty((1024, 4), np.int64)
    used = np.zeros(2, np.int64)
    known = np.zeros(2, np.int64)
    for payload in range(starts.size):
        if outcomes[STATUS, payload] == ODD:
            continue
        # A metric with points and a scope take a text each; scopes without points may take more, which is odd then.
        text_slots, texts = wire_slices.with_room(
            text_slots, texts, known[TEXTS], 2 * needs[POINTS, payload] + 8
        )
        region_slots, regions = wire_slices.with_room(
            region_slots, regions, known[REGIONS], needs[POINTS, payload] + 2
        )
        s = State(points, distributions, text_slots, texts, region_slots, regions, used, known, secret)
        first_point, first_distribution = used[POINTS], used[DISTRIBUTIONS]
        ok, resource, capped = add_payload(data, starts[payload], ends[payload], max_points, s)
        if ok:
            points.codes[PAYLOAD, first_point : used[POINTS]] = payload
            outcomes[KEPT, payload] = used[POINTS] - first_point
            outcomes[RESOURCE, payload] = resource
            outcomes[CAPPED, payload] = capped
        else:
            used[POINTS], used[DISTRIBUTIONS] = first_point, first_distribution
            outcomes[STATUS, payload] = ODD
    return used, texts[: known[TEXTS]], regions[: known[REGIONS]]
