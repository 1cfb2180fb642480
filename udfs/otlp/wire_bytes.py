"""Protocol buffers' wire format for numba, and dictionaries of byte slices.

Every read checks its bound first. An end of `ODD` says that these bytes are malformed or of a shape that is left to the
reference decoder. In a dictionary, equal slices get one code, in order of first appearance; their hash is keyed with a
secret of the process, so no client can choose slices that collide.

Sources: protobuf.dev/programming-guides/encoding; upb's decoder for what is refused.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, Int64s, UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part

# numba's machine integers; NumPy's scalar types would not mix with literals in mypy's eyes.
Int64 = Any
UInt64 = Any

ODD: Int64 = -1


def _load(word: Any, numba_type: Any) -> Any:
    """A function of data and position that reads `word` there, at any alignment, without a check."""

    def load(_typing: Any, data: Any, _position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            start = builder.gep(array.data, [arguments[1]])
            return builder.load(builder.bitcast(start, word.as_pointer()), align=1)

        return numba_type(data, types.int64), generate

    return intrinsic(load)


load64 = _load(ir.IntType(64), types.uint64)
load_double = _load(ir.DoubleType(), types.float64)


@part
def varint(data: UInt8s, pos: int, end: int) -> tuple[UInt64, Int64]:
    """The varint at `pos` (uint64; more bits are dropped, as upb does) and the position behind it."""
    value = np.uint64(0)
    shift = np.uint64(0)
    last = min(end, pos + 10)
    while pos < last:
        byte = data[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += np.uint64(7)
    return value, ODD


@part
def _any_field(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64, Int64]:
    key, first = varint(data, pos, end)
    # There is no field 0. A tag has at most five bytes; a known field's has one, a longer form of it is odd.
    size = first - pos
    is_valid = np.uint64(8) <= key <= np.uint64(0xFFFFFFFF) and (size > 1) == (key >= np.uint64(128))
    if first == ODD or size > 5 or not is_valid:
        return 0, first, ODD
    field = np.int64(key)
    wire_type = field & 7
    if wire_type == 0:
        return field, first, varint(data, first, end)[1]
    if wire_type == 2:
        length, content = varint(data, first, end)
        # upb takes no length of more than five bytes, however small.
        if content == ODD or content - first > 5 or length > np.uint64(end - content):
            return field, first, ODD
        first = content
        return field, first, first + np.int64(length)
    if wire_type in (1, 5):
        size = 8 if wire_type == 1 else 4
        return field, first, (first + size if end - first >= size else ODD)
    return field, first, ODD  # a group


@part
def next_field(data: UInt8s, pos: int, end: int) -> tuple[Int64, Int64, Int64]:
    """The tag at `pos` (field number << 3 | wire type), where the field's content starts and ends, or ODD.

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


@part
def is_utf8(data: UInt8s, pos: int, end: int) -> bool:
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


@part
def same(data: UInt8s, left: int, right: int, size: int) -> bool:
    """Whether the `size` bytes at two positions are equal."""
    if size >= 8:
        for offset in range(0, size - 8, 8):
            if load64(data, left + offset) != load64(data, right + offset):
                return False
        return bool(load64(data, left + size - 8) == load64(data, right + size - 8))
    equal = True
    for offset in range(size):
        equal = equal and data[left + offset] == data[right + offset]
    return equal


SECRET = np.frombuffer(os.urandom(32), np.uint64)
"""The hash's key, four words: an argument of `slice_hash`, as numba would compile a global into its cache."""

START, SIZE, HASH, EXTRA = range(4)
"""Columns of a table of slices: position and length in the data, hash, and what the caller keeps with it."""


def _folded(_typing: Any, left: Any, right: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*[builder.zext(argument, wide) for argument in arguments])
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(high, builder.trunc(product, ir.IntType(64)))

    return types.uint64(left, right), generate


_folded_product: Any = intrinsic(_folded)
"""The 128-bit product of two uint64, its halves combined by exclusive or."""


@part
def slice_hash(data: UInt8s, start: int, size: int, secret: Any) -> UInt64:
    """A keyed 64-bit hash, 16 bytes a step: folded multiplication, as in wyhash."""
    value = secret[0] ^ np.uint64(size)
    pos, end = start, start + size
    while end - pos > 16:
        value = _folded_product(load64(data, pos) ^ secret[1], load64(data, pos + 8) ^ value)
        pos += 16
    if size >= 16:  # the last 16 bytes, some of them again
        low, high = load64(data, end - 16), load64(data, end - 8)
    elif size >= 8:
        low, high = load64(data, start), load64(data, end - 8)
    else:
        low, high = np.uint64(0), np.uint64(0)
        for offset in range(size):
            low = low << np.uint64(8) | np.uint64(data[start + offset])
    return _folded_product(_folded_product(low ^ secret[2], high ^ value), secret[3])


@part
def find(data: UInt8s, start: int, size: int, value: UInt64, slots: Int32s, slices: Int64s) -> tuple[Int64, Int64]:
    """The slot of a slice with hash `value`, and its code or -1 for a new one. A slot is always free."""
    mask = np.int64(slots.size - 1)
    slot = np.int64(value & np.uint64(mask))
    while True:
        code = np.int64(slots[slot]) - 1
        if code < 0:
            return slot, -1
        if (
            slices[code, HASH] == np.int64(value)
            and slices[code, SIZE] == size
            and same(data, slices[code, START], start, size)
        ):
            return slot, code
        slot = (slot + 1) & mask


@part
def insert(slot: int, code: int, start: int, size: int, value: UInt64, slots: Int32s, slices: Int64s) -> None:
    """Write a new slice to its slot."""
    slots[slot] = code + 1
    slices[code, START] = start
    slices[code, SIZE] = size
    slices[code, HASH] = np.int64(value)


@kernel
def _link(slots: Int32s, slices: Int64s, used: int) -> None:
    mask = np.int64(slots.size - 1)
    for code in range(used):
        slot = slices[code, HASH] & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = code + 1


def enlarged(slices: Int64s, used: int, more: int) -> tuple[Int32s, Int64s]:
    """A table with the first `used` of the slices, room for `more` and at least half of its slots free."""
    rows = 1 << max(10, (used + more - 1).bit_length())
    slots, larger = np.zeros(2 * rows, np.int32), np.empty((rows, 4), np.int64)
    larger[:used] = slices[:used]
    _link(slots, larger, used)
    return slots, larger
