"""Protocol buffers' wire format for numba: every read checks its bound first.

A position of `ODD` says that these bytes are malformed or of a shape that is left to the reference decoder.
Sources: protobuf.dev/programming-guides/encoding; upb's decoder for what is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from udfs import numba_cache

numba_cache.configure()

ODD = -1

plain = njit(_nrt=False)
"""Compiles a function without reference counting: it can't make arrays, only read and write its arguments."""

inlined = njit(_nrt=False, inline="always")
"""The same for a function with one caller and more arguments than a call passes cheaply."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@intrinsic
def load64(typing_context: Any, data: Any, position: Any) -> Any:
    """Eight bytes of `data` at `position`, little endian, as uint64; the caller has checked both ends."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.gep(array.data, [arguments[1]])
        word = builder.bitcast(start, cgutils.ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def load_double(typing_context: Any, data: Any, position: Any) -> Any:
    """Eight bytes of `data` at `position`, little endian, as float64; the caller has checked both ends."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.gep(array.data, [arguments[1]])
        word = builder.bitcast(start, cgutils.ir.DoubleType().as_pointer())
        return builder.load(word, align=1)

    return types.float64(data, types.int64), generate


@plain
def varint(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """The varint at `pos` (uint64) and the position behind it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    last = min(end, pos + 10)
    while pos < last:
        byte = data[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            # The tenth byte holds one bit.
            return value, (ODD if shift == np.uint64(63) and byte > 1 else pos)
        shift += np.uint64(7)
    return value, ODD


@plain
def _any_field(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    key, first = varint(data, pos, end)
    # A known field's tag is one byte, so a longer form of it is odd. A tag has at most five; field 0 doesn't exist.
    size = first - pos
    if key < np.uint64(8) or key >> np.uint64(32) or size > 5 or (size > 1) != (key >= np.uint64(128)):
        return 0, first, ODD
    field = np.int64(key)
    wire_type = field & 7
    if wire_type == 0:
        return field, first, varint(data, first, end)[1]
    if wire_type == 2:
        length, first = varint(data, first, end)
        if first == ODD or length > np.uint64(end - first):
            return field, first, ODD
        return field, first, first + np.int64(length)
    if wire_type == 1:
        return field, first, (first + 8 if end - first >= 8 else ODD)
    if wire_type == 5:
        return field, first, (first + 4 if end - first >= 4 else ODD)
    return field, first, ODD  # a group


@plain
def next_field(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """The tag at `pos` (field number << 3 | wire type), where the field's content starts, and where it ends or ODD.

    A length is not part of the content. `pos` must be before `end`.
    """
    # Most fields: one byte of tag, one or two of length.
    if end - pos > 2 and data[pos] & 0x87 == 2 and data[pos] > 8:
        if data[pos + 1] < 0x80:
            last = pos + 2 + np.int64(data[pos + 1])
            return np.int64(data[pos]), pos + 2, (last if last <= end else ODD)
        if data[pos + 2] < 0x80:
            last = pos + 3 + (np.int64(data[pos + 1] & 0x7F) | np.int64(data[pos + 2]) << 7)
            return np.int64(data[pos]), pos + 3, (last if last <= end else ODD)
    return _any_field(data, pos, end)


@plain
def is_utf8(data: Bytes, pos: int, end: int) -> bool:
    """Whether the bytes are UTF-8 as proto3 strings must be (Unicode 15, table 3-7)."""
    while end - pos >= 8 and load64(data, pos) & np.uint64(0x8080808080808080) == np.uint64(0):
        pos += 8
    while pos < end:
        first = data[pos]
        if first < 0x80:
            pos += 1
            continue
        if 0xC2 <= first <= 0xDF:
            rest, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= first <= 0xEF:
            # No second form of shorter sequences, no surrogates.
            rest, low, high = 2, 0xA0 if first == 0xE0 else 0x80, 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            rest, low, high = 3, 0x90 if first == 0xF0 else 0x80, 0x8F if first == 0xF4 else 0xBF
        else:
            return False
        if end - pos <= rest or not low <= data[pos + 1] <= high:
            return False
        for offset in range(2, rest + 1):
            if not 0x80 <= data[pos + offset] <= 0xBF:
                return False
        pos += rest + 1
    return True


@plain
def same(data: Bytes, left: int, right: int, size: int) -> bool:
    """Whether the `size` bytes at two positions are equal."""
    if size >= 8:
        for offset in range(0, size - 8, 8):
            if load64(data, left + offset) != load64(data, right + offset):
                return False
        return bool(load64(data, left + size - 8) == load64(data, right + size - 8))
    for offset in range(size):
        if data[left + offset] != data[right + offset]:
            return False
    return True
