"""The messages of metrics.proto from MetricsData to a data point, and dictionaries of their texts and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import inlined, nested, part
from kafka_telemetry_lake.udfs.otlp import wire_attributes
from kafka_telemetry_lake.udfs.otlp.wire_bytes import (
    EXTRA,
    ODD,
    SIZE,
    Int64,
    UInt64,
    find,
    insert,
    is_utf8,
    next_field,
    slice_hash,
    varint,
)
from kafka_telemetry_lake.udfs.otlp.wire_points import (
    ALL_UNTIMED,
    ATTRIBUTES,
    DISTRIBUTION,
    DISTRIBUTIONS,
    EXCESS,
    EXPONENTIAL_HISTOGRAM,
    GAUGE,
    HISTOGRAM,
    IS_MONOTONIC,
    KIND,
    LONG_ATTRIBUTES,
    LONG_LISTS,
    MAX_ATTRIBUTES,
    MAX_BUCKETS,
    MAX_LISTED,
    METRIC,
    NONE,
    NUMBER,
    PAIRS,
    POINTS,
    REGIONS,
    SCOPE,
    SUM,
    SUMMARY,
    TEMPORALITY,
    TEXTS,
    TOO_LONG,
    DecoderState,
    distribution,
    number_point,
)

# No slice has the same hash as an attribute list and as a resource's: their checks differ.
NO_SALT, RESOURCE_HASH = np.uint64(0), np.uint64(0x9E3779B97F4A7C15)


@part
def new_slices(points: int) -> Int64:
    """An upper bound of a payload's new texts, and lists of attributes; one with more scopes is odd."""
    return 2 * points + 8


@part
def has_room(needs: Any, payload: int, s: DecoderState) -> bool:
    """Whether both dictionaries have room for a payload's new entries."""
    more = new_slices(needs[POINTS, payload])
    return bool(s.interned[TEXTS] + more <= s.texts.shape[0] and s.interned[REGIONS] + more <= s.regions.shape[0])


@inlined
def intern_text(data: UInt8s, start: int, end: int, s: DecoderState) -> Int64:
    """The code of a text, or ODD when it is new and not UTF-8."""
    value = slice_hash(data, start, end - start, s.secret)
    slot, code = find(data, start, end - start, value, s.text_slots, s.texts)
    if code >= 0:
        return code
    code = s.interned[TEXTS]
    if code >= s.texts.shape[0] or not is_utf8(data, start, end):
        return ODD
    insert(slot, code, start, end - start, value, s.text_slots, s.texts)
    s.interned[TEXTS] += 1
    return code


@inlined
def intern_region(data: UInt8s, start: int, end: int, salt: UInt64, s: DecoderState) -> Int64:
    """The code of a list of KeyValues, or ODD when it is new and odd; those of each `salt` are numbered apart."""
    value = slice_hash(data, start, end - start, s.secret) ^ salt
    slot, code = find(data, start, end - start, value, s.region_slots, s.regions)
    if code >= 0:
        return code
    code = s.interned[REGIONS]
    pairs = wire_attributes.count(data, start, end)
    if code >= s.regions.shape[0] or pairs == ODD:
        return ODD
    if salt == RESOURCE_HASH and wire_attributes.repeats_key(data, start, end):
        return ODD
    insert(slot, code, start, end - start, value, s.region_slots, s.regions)
    s.regions[code, EXTRA] = pairs
    s.tally[PAIRS] += pairs
    s.interned[REGIONS] += 1
    return code


@part
def forget(texts: int, regions: int, s: DecoderState) -> None:
    """Empty the texts that a payload without rows added to the dictionaries; their codes stay in use."""
    for code in range(texts, s.interned[TEXTS]):
        s.texts[code, SIZE] = 0
    for code in range(regions, s.interned[REGIONS]):
        s.tally[PAIRS] -= s.regions[code, EXTRA]
        s.regions[code, SIZE] = s.regions[code, EXTRA] = 0


@inlined
def add_point(data: UInt8s, pos: int, end: int, kind: int, keep: bool, s: DecoderState) -> bool:
    """Write a data point, and count it if `keep`; else the next point overwrites its row."""
    row = s.used[POINTS]
    written = s.used[DISTRIBUTIONS]
    p = s.points
    if row >= p.flags.size:
        return False
    if kind <= SUM:
        status, start_time, time, number, value, value_int, flags, first, last = number_point(data, pos, end)
        p.codes[DISTRIBUTION, row] = -1
    else:
        if written >= s.distributions.ends.shape[1]:
            return False
        status, start_time, time, flags, first, last = distribution(
            data, pos, end, kind, written, s.bounds[MAX_BUCKETS], s.distributions
        )
        number, value, value_int = NONE, 0.0, 0
        p.codes[DISTRIBUTION, row] = written
    if status == ODD:
        return False
    if keep and time == 0:
        s.tally[ALL_UNTIMED] += 1
        keep = s.tally[ALL_UNTIMED] <= s.bounds[MAX_LISTED]
    excess = 0
    if not keep or last - first > 2 * s.bounds[MAX_ATTRIBUTES]:  # a pair has two bytes
        pairs = wire_attributes.count(data, first, last)
        if not keep or pairs == ODD:
            return bool(pairs != ODD)
        if pairs > s.bounds[MAX_ATTRIBUTES]:
            excess, last = LONG_ATTRIBUTES, first
    if kind > SUM and s.distributions.tags[TOO_LONG, written]:
        excess |= LONG_LISTS
    attributes = intern_region(data, first, last, NO_SALT, s)
    if attributes == ODD:
        return False
    p.codes[ATTRIBUTES, row] = attributes
    p.tags[EXCESS, row] = excess
    p.times[0, row], p.times[1, row] = start_time, time
    p.values[row], p.ints[row], p.tags[NUMBER, row] = value, value_int, number
    p.flags[row] = np.uint32(flags)
    p.tags[KIND, row] = kind
    s.used[POINTS] += 1
    if kind > SUM:
        s.used[DISTRIBUTIONS] += 1
    return True


@nested
def add_data(data: UInt8s, pos: int, end: int, kind: int, limit: int, s: DecoderState) -> tuple[bool, Int64]:
    """A member of Metric.data: whether it is well formed, and how many rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    temporality: Int64 = 0
    is_monotonic = 0
    ok = True
    beyond: Int64 = 0
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x0A:  # data_points
            keep = s.used[POINTS] < limit
            beyond += not keep
            ok = add_point(data, first, pos, kind, keep, s)
        elif field == 0x10 and kind in (SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM):  # aggregation_temporality
            low = varint(data, first, pos)[0] & np.uint64(0xFFFFFFFF)
            temporality = np.int64(low) if low <= np.uint64(2) else 0
        elif field == 0x18 and kind == SUM:  # is_monotonic
            is_monotonic = 1 if varint(data, first, pos)[0] != np.uint64(0) else 0
    for row in range(first_row, s.used[POINTS]):
        s.points.tags[TEMPORALITY, row] = temporality
        s.points.tags[IS_MONOTONIC, row] = is_monotonic
    return ok, beyond


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


@nested
def add_metric(data: UInt8s, pos: int, end: int, limit: int, s: DecoderState) -> tuple[bool, Int64]:
    """A Metric: whether it is well formed, and how many rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    name_start, name_end = 0, 0
    names = members = 0
    ok = True
    beyond: Int64 = 0
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        kind = data_kind(field)
        if pos == ODD:
            ok = False
        elif kind >= 0:
            members += 1
            ok, beyond = add_data(data, first, pos, kind, limit, s)
        elif field == 0x0A:  # name
            names += 1
            name_start, name_end = first, pos
        elif field in (0x12, 0x1A):  # description, unit
            ok = is_utf8(data, first, pos)
        elif field == 0x62:  # metadata
            ok = not wire_attributes.is_odd(data, first, pos)
    if not ok or names > 1 or members > 1:
        return False, beyond
    if s.used[POINTS] == first_row:
        return is_utf8(data, name_start, name_end), beyond
    code = intern_text(data, name_start, name_end, s)
    for row in range(first_row, s.used[POINTS]):
        s.points.codes[METRIC, row] = code
    return code != ODD, beyond


@part
def scope_name(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64]:
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


@nested
def add_scope_metrics(data: UInt8s, pos: int, end: int, limit: int, s: DecoderState) -> tuple[bool, Int64]:
    """A ScopeMetrics: whether it is well formed, and how many rows beyond `limit` were left out."""
    first_row = s.used[POINTS]
    scope: Int64 = -1
    scopes = 0
    ok = True
    beyond: Int64 = 0
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x12:  # metrics
            ok, more = add_metric(data, first, pos, limit, s)
            beyond += more
        elif field == 0x0A:  # scope
            scopes += 1
            name_start, name_end = scope_name(data, first, pos)
            scope = ODD if name_end == ODD else intern_text(data, name_start, name_end, s)
            ok = scope != ODD and scopes == 1
        elif field == 0x1A:  # schema_url
            ok = is_utf8(data, first, pos)
    for row in range(first_row, s.used[POINTS]):
        s.points.codes[SCOPE, row] = scope
    return ok, beyond


@part
def entity_ref(data: UInt8s, pos: int, end: int) -> bool:
    """Whether an EntityRef is well formed."""
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        # schema_url, type, id_keys, description_keys
        if pos == ODD or (field in (0x0A, 0x12, 0x1A, 0x22) and not is_utf8(data, first, pos)):
            return False
    return True


@part
def resource_attributes(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64]:
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


@nested
def add_resource_metrics(
    data: UInt8s, pos: int, end: int, resource: int, limit: int, s: DecoderState
) -> tuple[bool, Int64, Int64]:
    """A ResourceMetrics: whether it is well formed, the resource so far, how many rows were left out."""
    resources = 0
    ok = True
    beyond: Int64 = 0
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x12:  # scope_metrics
            ok, more = add_scope_metrics(data, first, pos, limit, s)
            beyond += more
        elif field == 0x0A:  # resource
            resources += 1
            first, last = resource_attributes(data, first, pos)
            ok = last != ODD and resources == 1
            if ok and last > first:
                code = intern_region(data, first, last, RESOURCE_HASH, s)
                # Attributes of several resources are merged by the reference decoder.
                ok = code != ODD and resource in (-1, code)
                resource = code
        elif field == 0x1A:  # schema_url
            ok = is_utf8(data, first, pos)
    return ok, resource, beyond


@nested
def add_payload(data: UInt8s, pos: int, end: int, max_points: int, s: DecoderState) -> tuple[bool, Int64, Int64]:
    """A MetricsData: whether it is well formed, its resource, how many points beyond `max_points` it has."""
    limit = s.used[POINTS] + max_points
    resource: Int64 = np.int64(-1)  # no literal: it would be another type
    ok = True
    beyond: Int64 = 0
    while ok and pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            ok = False
        elif field == 0x0A:  # resource_metrics
            ok, resource, more = add_resource_metrics(data, first, pos, resource, limit, s)
            beyond += more
    return ok, resource, beyond
