"""Lists of KeyValue (common.proto) as they stand in a message: checked in place, taken apart once per distinct list.

A list is the slice from the first KeyValue's tag to the end of the last one; other fields in between are odd. So are
bytes, arrays and key-value lists as values, members set twice, and values held in a string table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from udfs.wire_reader import ODD, Bytes, is_utf8, load64, sized, skip, tag, text, varint

TEXT, INT, DOUBLE, BOOL = range(4)
"""Kinds of values; a missing value is the empty text, as `otlp_reference.attribute_text` has it."""

KEY_START, KEY_SIZE, KIND, VALUE, VALUE_SIZE = range(5)
"""Rows of `entries`. VALUE is a text's position, else the value's bits."""


@njit
def any_value(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """An AnyValue's kind, or ODD, its VALUE and its VALUE_SIZE."""
    kind, value, size = TEXT, np.int64(0), np.int64(0)
    members = 0
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return ODD, value, size
        members += 1
        if field == 0x0A:  # string_value
            kind = TEXT
            value, pos = sized(data, pos, end)
            if pos == ODD or not is_utf8(data, value, pos):
                return ODD, value, size
            size = pos - value
        elif field in (0x10, 0x18):  # bool_value, int_value
            kind = BOOL if field == 0x10 else INT
            number, pos = varint(data, pos, end)
            value = np.int64(number)
        elif field == 0x21:  # double_value
            if end - pos < 8:
                return ODD, value, size
            kind = DOUBLE
            value = np.int64(load64(data, pos))
            pos += 8
        elif field in (0x2A, 0x32, 0x3A, 0x40):  # array_value, kvlist_value, bytes_value, string_value_strindex
            return ODD, value, size
        else:
            pos = skip(data, field, pos, end)
            members -= 1
        if pos == ODD or members > 1:
            return ODD, value, size
    return kind, value, size


@njit
def key_value(data: Bytes, pos: int, end: int) -> tuple[int, int, int, int, int]:
    """A KeyValue as KEY_START, KEY_SIZE, KIND, which is ODD for an odd one, VALUE and VALUE_SIZE."""
    key_start, key_end = np.int64(0), np.int64(0)
    kind, value, size = TEXT, np.int64(0), np.int64(0)
    keys = values = 0
    while pos < end:
        field, pos = tag(data, pos, end)
        if pos == ODD:
            return key_start, key_end, ODD, value, size
        if field == 0x0A:  # key
            keys += 1
            key_start, key_end = text(data, pos, end)
            pos = key_end
        elif field == 0x12:  # value
            values += 1
            first, pos = sized(data, pos, end)
            if pos != ODD:
                kind, value, size = any_value(data, first, pos)
                if kind == ODD:
                    pos = ODD
        else:
            pos = skip(data, field, pos, end)
        if pos == ODD or keys > 1 or values > 1:
            return key_start, key_end, ODD, value, size
    return key_start, key_end - key_start, kind, value, size


@njit
def count(data: Bytes, start: int, end: int) -> int:
    """How many KeyValues the list has, each one checked; ODD when one of them is."""
    pairs = 0
    while start < end:
        pos, start = sized(data, start + 1, end)
        if start == ODD or key_value(data, pos, start)[2] == ODD:
            return ODD
        pairs += 1
    return pairs


@njit
def repeats_key(data: Bytes, start: int, end: int) -> bool:
    """Whether two of a checked list's first 64 keys are equal, or it has more."""
    starts, sizes = np.empty(64, np.int64), np.empty(64, np.int64)
    keys = 0
    while start < end:
        pos, start = sized(data, start + 1, end)
        key_start, size, _, _, _ = key_value(data, pos, start)
        if keys == 64:
            return True
        for known in range(keys):
            if sizes[known] == size:
                offset = 0
                while offset < size and data[starts[known] + offset] == data[key_start + offset]:
                    offset += 1
                if offset == size:
                    return True
        starts[keys], sizes[keys] = key_start, size
        keys += 1
    return False


@njit(cache=True)
def take_apart(data: Bytes, starts: Any, sizes: Any, entries: Any) -> None:
    """Write the KeyValues of checked lists to the columns of `entries` (int64, 5 rows), list after list."""
    entry = 0
    for index in range(starts.size):
        start, end = starts[index], starts[index] + sizes[index]
        while start < end:
            pos, start = sized(data, start + 1, end)
            key_start, key_size, kind, value, size = key_value(data, pos, start)
            entries[KEY_START, entry], entries[KEY_SIZE, entry] = key_start, key_size
            entries[KIND, entry], entries[VALUE, entry], entries[VALUE_SIZE, entry] = kind, value, size
            entry += 1


@njit(cache=True)
def gather(data: Bytes, starts: Any, offsets: Any, out: Bytes) -> None:
    """Copy the slices at `starts` to ``out[offsets[i]:offsets[i + 1]]``."""
    for index in range(starts.size):
        first, last = offsets[index], offsets[index + 1]
        out[first:last] = data[starts[index] : starts[index] + last - first]
