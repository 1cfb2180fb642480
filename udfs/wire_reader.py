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


@njit
def varint(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """The varint at `pos` (uint64) and the position behind it."""
    if pos < end and data[pos] < 0x80:
        return np.uint64(data[pos]), pos + 1
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


@njit
def tag(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """The tag at `pos`, that is field number << 3 | wire type, and the position behind it."""
    value, after = varint(data, pos, end)
    # A known field's tag is one byte, so a longer form of it is odd.
    if value < np.uint64(8) or (value >= np.uint64(128)) != (after - pos > 1) or after - pos > 5:
        return np.int64(0), ODD
    return np.int64(value & np.uint64(0xFFFFFFFF)), ODD if value > np.uint64(0xFFFFFFFF) else after


@njit
def sized(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """First position and end of the length-delimited field whose length is at `pos`."""
    size, first = varint(data, pos, end)
    if first == ODD or size > np.uint64(end - first):
        return first, ODD
    return first, first + np.int64(size)


@njit
def skip(data: Bytes, field: int, pos: int, end: int) -> int:
    """The position behind the value at `pos` of a field with the tag `field`; groups are odd."""
    wire_type = field & 7
    if wire_type == 0:
        return varint(data, pos, end)[1]
    if wire_type == 2:
        return sized(data, pos, end)[1]
    if wire_type == 1:
        return pos + 8 if end - pos >= 8 else ODD
    if wire_type == 5:
        return pos + 4 if end - pos >= 4 else ODD
    return ODD


@njit
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


@njit
def text(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """First position and end of the string field whose length is at `pos`; not UTF-8 is odd."""
    first, last = sized(data, pos, end)
    if last != ODD and not is_utf8(data, first, last):
        return first, ODD
    return first, last
