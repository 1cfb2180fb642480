"""Dense numbering of 64-bit ids by an open-addressing hash table: the join of a batch with the state."""

from __future__ import annotations

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, pooled
from kafka_telemetry_lake.udfs.kernels.compiled import kernel


@kernel
def _extend(keys: Int64s, count: int, numbers: Int64s, slot_keys: Int64s, result: Int64s, first: Int64s) -> int:
    mask, before = len(numbers) - 1, count
    for i in range(len(keys)):
        key = keys[i]
        slot = key & mask
        while numbers[slot] >= 0 and slot_keys[slot] != key:
            slot = (slot + 1) & mask
        if numbers[slot] < 0:
            numbers[slot] = count
            slot_keys[slot] = key
            first[count - before] = i
            count += 1
        result[i] = numbers[slot]
    return count


class Numbering:
    """`number` over any number of batches: a key always has the number that it got first."""

    def __init__(self) -> None:
        self.size = 0
        self._numbers = np.full(16, -1, np.int64)
        self._slot_keys = np.empty(16, np.int64)

    def number(self, keys: Int64s) -> tuple[Int64s, Int64s]:
        """Number keys; new ones get the numbers from `size` on.

        Returns:
            The number of each key, and the first position of each new one in `keys`.
        """
        slots = len(self._numbers)
        while slots < 2 * (self.size + len(keys)):
            slots *= 2
        if slots > len(self._numbers):
            filled = np.flatnonzero(self._numbers >= 0)
            old_keys, order = self._slot_keys[filled], np.argsort(self._numbers[filled])
            self._numbers, self._slot_keys = pooled((2, slots), np.int64)
            self._numbers[:] = -1
            _extend(old_keys[order], 0, self._numbers, self._slot_keys, *np.empty((2, len(old_keys)), np.int64))
        result, first, before = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64), self.size
        self.size = _extend(keys, before, self._numbers, self._slot_keys, result, first)
        return result, first[: self.size - before]


def number(keys: Int64s) -> tuple[Int64s, int]:
    """Number the distinct keys by first appearance.

    Returns:
        The number of each key, and how many distinct ones there are. Keys are hashes already: their low bits are
        used as they are.
    """
    numbering = Numbering()
    numbers, _ = numbering.number(keys)
    return numbers, numbering.size
