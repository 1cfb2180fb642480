"""Dense numbering of 64-bit ids by an open-addressing hash table: the join of a batch with the state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from udfs.compiled import kernel

Int64s = npt.NDArray[np.int64]


def number(keys: Int64s) -> tuple[Int64s, int]:
    """Number the distinct keys by first appearance.

    Returns:
        The number of each key, and how many distinct ones there are. Keys are hashes already: their low bits are
        used as they are.
    """
    slots = 16
    while slots < 2 * len(keys):
        slots *= 2
    return _number(keys, np.full(slots, -1, np.int64), np.empty(slots, np.int64), np.empty(len(keys), np.int64))


@kernel
def _number(keys: Int64s, numbers: Int64s, held: Int64s, result: Int64s) -> tuple[Int64s, int]:
    mask = len(numbers) - 1
    count = 0
    for i in range(len(keys)):
        key = keys[i]
        slot = key & mask
        while numbers[slot] >= 0 and held[slot] != key:
            slot = (slot + 1) & mask
        if numbers[slot] < 0:
            numbers[slot] = count
            held[slot] = key
            count += 1
        result[i] = numbers[slot]
    return result, count
