"""MetricsData (metrics.proto) for numba: from payloads in one buffer to columns of data points.

`measure` walks the messages down to the data points and says how much room they need; `fill` writes them. A
payload that either finds malformed or odd leaves nothing behind and is left to the reference decoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from udfs import wire_attributes
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
from udfs.wire_reader import ODD, Bytes, Int64, entry, inlined, is_utf8, next_field, part, varint
from udfs.wire_slices import EXTRA, find, insert, slice_hash

POINTS, DISTRIBUTIONS, ITEMS = range(3)
"""Rows of `needs`: data points, distributions and, at most, list items of a payload."""

STATUS, KEPT, RESOURCE, CAPPED = range(4)
"""Rows of `outcomes`: ODD or 0, data points written, code of the resource or -1, 1 when over the cap."""

PAYLOAD, METRIC, ATTRIBUTES, SCOPE, DISTRIBUTION = range(5)
KIND, TEMPORALITY, IS_MONOTONIC, NUMBER = range(4)

TEXTS, REGIONS = range(2)

# Levels of nesting that `measure` walks; between these two are ResourceMetrics and ScopeMetrics.
METRICS_DATA, METRIC_MESSAGE, DATA = 0, 3, 4

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
def _measure(data: Bytes, pos: int, end: int, ends: Any, payload: int, needs: Any) -> bool:
    """Add up what a payload needs. `ends` is a stack: where the message at each level ends."""
    level, kind = METRICS_DATA, -1
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
                needs[POINTS, payload] += 1
                if kind > SUM:
                    needs[DISTRIBUTIONS, payload] += 1
                    needs[ITEMS, payload] += most_items(data, first, after, kind)
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


@entry
def measure(data: Bytes, starts: Any, ends: Any, max_points: int, stack: Any, needs: Any, outcomes: Any) -> None:
    """Write each payload's `needs`; an odd one needs nothing and has ODD as its status."""
    for payload in range(starts.size):
        if _measure(data, starts[payload], ends[payload], stack, payload, needs):
            needs[POINTS, payload] = min(needs[POINTS, payload], max_points)
            needs[DISTRIBUTIONS, payload] = min(needs[DISTRIBUTIONS, payload], max_points)
        else:
            for need in range(3):
                needs[need, payload] = 0
            outcomes[STATUS, payload] = ODD


@part
def new_slices(points: int) -> Int64:
    """At most so many texts, and lists of attributes, does a payload bring; one with more scopes is odd."""
    return 2 * points + 8


@part
def has_room(needs: Any, payload: int, s: State) -> bool:
    """Whether either dictionary can take what a payload may bring."""
    more = new_slices(needs[POINTS, payload])
    return bool(s.known[TEXTS] + more <= s.texts.shape[0] and s.known[REGIONS] + more <= s.regions.shape[0])


@inlined
def intern_text(data: Bytes, start: int, end: int, s: State) -> Int64:
    """The code of a text, or ODD when it is new and not UTF-8."""
    value = slice_hash(data, start, end - start, s.secret)
    slot, code = find(data, start, end - start, value, s.text_slots, s.texts)
    if code >= 0:
        return code
    code = s.known[TEXTS]
    if code >= s.texts.shape[0] or not is_utf8(data, start, end):
        return ODD
    insert(slot, code, start, end - start, value, s.text_slots, s.texts)
    s.known[TEXTS] += 1
    return code


@inlined
def intern_region(data: Bytes, start: int, end: int, is_resource: bool, s: State) -> Int64:
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
    insert(slot, code, start, end - start, value, s.region_slots, s.regions)
    s.regions[code, EXTRA] = pairs
    s.known[REGIONS] += 1
    return code


@inlined
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
        number, value, value_int = NONE, 0.0, 0
        p.codes[DISTRIBUTION, row] = written
    if status == ODD:
        return False
    if not keep:
        return bool(wire_attributes.count(data, first, last) != ODD)
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


@inlined
def add_data(data: Bytes, pos: int, end: int, kind: int, limit: int, s: State) -> tuple[bool, bool]:
    """A member of Metric.data: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    temporality: Int64 = 0
    is_monotonic = 0
    ok = True
    capped = False
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x0A:  # data_points
            keep = s.used[POINTS] < limit
            capped |= not keep
            ok = add_point(data, first, pos, kind, keep, s)
        elif field == 0x10 and kind in (SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM):  # aggregation_temporality
            low = varint(data, first, pos)[0] & np.uint64(0xFFFFFFFF)
            temporality = np.int64(low) if low <= np.uint64(2) else 0
        elif field == 0x18 and kind == SUM:  # is_monotonic
            is_monotonic = 1 if varint(data, first, pos)[0] != np.uint64(0) else 0
    for row in range(first_row, s.used[POINTS]):
        s.points.tags[TEMPORALITY, row] = temporality
        s.points.tags[IS_MONOTONIC, row] = is_monotonic
    return ok, capped


@inlined
def add_metric(data: Bytes, pos: int, end: int, limit: int, s: State) -> tuple[bool, bool]:
    """A Metric: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    name_start, name_end = 0, 0
    names = members = 0
    ok = True
    capped = False
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        kind = data_kind(field)
        if pos == ODD:
            ok = False
        elif kind >= 0:
            members += 1
            ok, capped = add_data(data, first, pos, kind, limit, s)
        elif field == 0x0A:  # name
            names += 1
            name_start, name_end = first, pos
        elif field in (0x12, 0x1A):  # description, unit
            ok = is_utf8(data, first, pos)
        elif field == 0x62:  # metadata
            ok = not wire_attributes.is_odd(data, first, pos)
    if not ok or names > 1 or members > 1:
        return False, capped
    if s.used[POINTS] == first_row:
        return is_utf8(data, name_start, name_end), capped
    code = intern_text(data, name_start, name_end, s)
    for row in range(first_row, s.used[POINTS]):
        s.points.codes[METRIC, row] = code
    return code != ODD, capped


@part
def scope_name(data: Bytes, pos: int, end: int) -> tuple[Int64, Int64]:
    """Start and end, or ODD, of InstrumentationScope.name; whether it is UTF-8 is not checked."""
    name_start, name_end = 0, 0
    names = 0
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if (
            pos == ODD
            or (field == 0x12 and not is_utf8(data, first, pos))  # version
            or (field == 0x1A and wire_attributes.is_odd(data, first, pos))  # attributes
        ):
            return name_start, ODD
        if field == 0x0A:
            names += 1
            name_start, name_end = first, pos
    return name_start, (ODD if names > 1 else name_end)


@inlined
def add_scope_metrics(data: Bytes, pos: int, end: int, limit: int, s: State) -> tuple[bool, bool]:
    """A ScopeMetrics: whether it is well formed, and whether rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    scope: Int64 = -1
    scopes = 0
    ok = True
    any_capped = False
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x12:  # metrics
            ok, capped = add_metric(data, first, pos, limit, s)
            any_capped |= capped
        elif field == 0x0A:  # scope
            scopes += 1
            name_start, name_end = scope_name(data, first, pos)
            scope = ODD if name_end == ODD else intern_text(data, name_start, name_end, s)
            ok = scope != ODD and scopes == 1
        elif field == 0x1A:  # schema_url
            ok = is_utf8(data, first, pos)
    for row in range(first_row, s.used[POINTS]):
        s.points.codes[SCOPE, row] = scope
    return ok, any_capped


@part
def entity_ref(data: Bytes, pos: int, end: int) -> bool:
    """Whether an EntityRef is well formed."""
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        # schema_url, type, id_keys, description_keys
        if pos == ODD or (field in (0x0A, 0x12, 0x1A, 0x22) and not is_utf8(data, first, pos)):
            return False
    return True


@part
def resource_attributes(data: Bytes, pos: int, end: int) -> tuple[Int64, Int64]:
    """Start and end, or ODD, of the slice of Resource.attributes."""
    first, last = 0, 0
    while pos < end:
        field_start = pos
        field, inner, pos = next_field(data, pos, end)
        if pos == ODD or (field == 0x1A and not entity_ref(data, inner, pos)):  # entity_refs
            return first, ODD
        if field == 0x0A:  # attributes
            if last not in (0, field_start):
                return first, ODD
            first = field_start if last == 0 else first
            last = pos
    return first, last


@inlined
def add_resource_metrics(
    data: Bytes, pos: int, end: int, resource: int, limit: int, s: State
) -> tuple[bool, Int64, bool]:
    """A ResourceMetrics: whether it is well formed, the resource so far, whether rows were left out."""
    resources = 0
    ok = True
    any_capped = False
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x12:  # scope_metrics
            ok, capped = add_scope_metrics(data, first, pos, limit, s)
            any_capped |= capped
        elif field == 0x0A:  # resource
            resources += 1
            first, last = resource_attributes(data, first, pos)
            ok = last != ODD and resources == 1
            if ok and last > first:
                code = intern_region(data, first, last, True, s)
                # Attributes of several resources are merged by the reference decoder.
                ok = code != ODD and resource in (-1, code)
                resource = code
        elif field == 0x1A:  # schema_url
            ok = is_utf8(data, first, pos)
    return ok, resource, any_capped


@inlined
def add_payload(data: Bytes, pos: int, end: int, max_points: int, s: State) -> tuple[bool, Int64, bool]:
    """A MetricsData: whether it is well formed, its resource, whether it has more than `max_points`."""
    limit = s.used[POINTS] + max_points
    resource = -1
    ok = True
    any_capped = False
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x0A:  # resource_metrics
            ok, resource, capped = add_resource_metrics(data, first, pos, resource, limit, s)
            any_capped |= capped
    return ok, resource, any_capped


@entry
def fill(
    data: Bytes, starts: Any, ends: Any, max_points: int, needs: Any, outcomes: Any, payload: int, s: State
) -> Int64:
    """Write the payloads from index `payload` on that `measure` did not find odd.

    Returns where it stopped: behind the last payload, or at one for which a dictionary may lack room.
    """
    while payload < starts.size:
        if outcomes[STATUS, payload] == ODD:
            payload += 1
            continue
        if not has_room(needs, payload, s):
            break
        first_point, first_distribution = s.used[POINTS], s.used[DISTRIBUTIONS]
        ok, resource, capped = add_payload(data, starts[payload], ends[payload], max_points, s)
        if ok:
            for row in range(first_point, s.used[POINTS]):
                s.points.codes[PAYLOAD, row] = payload
            outcomes[KEPT, payload] = s.used[POINTS] - first_point
            outcomes[RESOURCE, payload] = resource
            outcomes[CAPPED, payload] = capped
        else:
            s.used[POINTS], s.used[DISTRIBUTIONS] = first_point, first_distribution
            outcomes[STATUS, payload] = ODD
        payload += 1
    return payload
