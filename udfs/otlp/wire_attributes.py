"""Lists of KeyValue (common.proto) inside a message: checked in place, taken apart once per distinct list.

A list is the slice from the first KeyValue's tag to the end of the last one; other fields in between are odd.
So are bytes, arrays and key-value lists as values, members set twice, and values in a string table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part
from kafka_telemetry_lake.udfs.otlp.wire_bytes import ODD, Int64, is_utf8, load64, next_field, same, varint

TEXT, INT, DOUBLE, BOOL = range(4)
"""Kinds of values; a missing value is the empty text, as in `reference.attribute_text`."""

KEY_START, KEY_SIZE, KIND, VALUE, VALUE_SIZE = range(5)
"""Rows of `entries`. VALUE is a text's position, else the value's bits."""


@part
def any_value(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64, Int64]:
    """An AnyValue's kind, or ODD, its VALUE and its VALUE_SIZE."""
    kind, size = TEXT, 0
    value: Int64 = 0
    members = 0
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return ODD, value, size
        if field == 0x0A:  # string_value
            if not is_utf8(data, first, pos):
                return ODD, value, size
            kind, value, size = TEXT, first, pos - first
        elif field in (0x10, 0x18):  # bool_value, int_value
            kind = BOOL if field == 0x10 else INT
            value = np.int64(varint(data, first, pos)[0])
        elif field == 0x21:  # double_value
            kind = DOUBLE
            value = np.int64(load64(data, first))
        elif field in (0x2A, 0x32, 0x3A, 0x40):  # array, key-value list, bytes, index into the string table
            return ODD, value, size
        else:
            continue
        members += 1
        if members > 1:
            return ODD, value, size
    return kind, value, size


@part
def key_value(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """A KeyValue as KEY_START, KEY_SIZE, KIND, which is ODD for an odd one, VALUE and VALUE_SIZE."""
    key_start, key_end = 0, 0
    kind, value, size = TEXT, 0, 0
    keys = values = 0
    while pos < end:
        field, first, pos = next_field(data, pos, end)
        if pos == ODD:
            return key_start, key_end, ODD, value, size
        if field == 0x0A:  # key
            keys += 1
            key_start, key_end = first, pos
        elif field == 0x12:  # value
            values += 1
            kind, value, size = any_value(data, first, pos)
        if keys > 1 or values > 1 or kind == ODD:
            return key_start, key_end, ODD, value, size
    if not is_utf8(data, key_start, key_end):
        kind = ODD
    return key_start, key_end - key_start, kind, value, size


@part
def is_odd(data: UInt8s, start: int, end: int) -> bool:
    """Whether a KeyValue is malformed or odd."""
    return bool(key_value(data, start, end)[2] == ODD)


@part
def count(data: UInt8s, start: int, end: int) -> Int64:
    """How many KeyValues the list has, each one checked; ODD when one of them is."""
    pairs = 0
    while start < end:
        _, pos, start = next_field(data, start, end)
        if is_odd(data, pos, start):
            return ODD
        pairs += 1
    return pairs


@part
def repeats_key(data: UInt8s, start: int, end: int) -> bool:
    """Whether two keys of a checked list are equal; true as well for a list of more than 64."""
    keys, first = 0, start
    while start < end:
        _, pos, start = next_field(data, start, end)
        key_start, size, _, _, _ = key_value(data, pos, start)
        other = first
        for _ in range(keys):
            _, pos, other = next_field(data, other, end)
            other_start, other_size, _, _, _ = key_value(data, pos, other)
            if other_size == size and same(data, other_start, key_start, size):
                return True
        keys += 1
        if keys > 64:
            return True
    return False


@kernel
def take_apart(data: UInt8s, starts: Any, sizes: Any, entries: Any) -> None:
    """Write the KeyValues of checked lists to the columns of `entries` (int64, 5 rows), list after list."""
    entry = 0
    for index in range(starts.size):
        start, end = starts[index], starts[index] + sizes[index]
        while start < end:
            _, pos, start = next_field(data, start, end)
            key_start, key_size, kind, value, size = key_value(data, pos, start)
            entries[KEY_START, entry], entries[KEY_SIZE, entry] = key_start, key_size
            entries[KIND, entry], entries[VALUE, entry], entries[VALUE_SIZE, entry] = kind, value, size
            entry += 1


@kernel
def gather(data: UInt8s, starts: Any, offsets: Any, out: UInt8s) -> None:
    """Copy the slices at `starts` to ``out[offsets[i]:offsets[i + 1]]``."""
    for index in range(starts.size):
        for offset in range(offsets[index + 1] - offsets[index]):
            out[offsets[index] + offset] = data[starts[index] + offset]
