"""A dictionary of byte slices for numba: equal slices get one code, in order of first appearance.

Slices come from clients, so the hash is keyed with a secret of the process: nobody can choose slices that
collide.
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
from kafka_telemetry_lake.udfs.otlp.wire_reader import Int64, UInt64, load64, same

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
