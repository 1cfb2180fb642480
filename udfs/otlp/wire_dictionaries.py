"""The dictionaries of texts and of lists of attributes: a payload's new entries get codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import inlined, part
from kafka_telemetry_lake.udfs.otlp import wire_attributes
from kafka_telemetry_lake.udfs.otlp.wire_output import PAIRS, POINTS, REGIONS, TEXTS, DecoderState
from kafka_telemetry_lake.udfs.otlp.wire_reader import ODD, Int64, UInt64, is_utf8
from kafka_telemetry_lake.udfs.otlp.wire_slices import EXTRA, SIZE, find, insert, slice_hash

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
