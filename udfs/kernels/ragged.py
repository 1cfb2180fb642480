"""Lists as two columns: row i has `items[first[i] : first[i + 1]]`. Arrow's own functions cost several times more."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, pooled
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, part


class Ragged(NamedTuple):
    """Lists of eight-byte items."""

    first: Int64s
    items: npt.NDArray[Any]

    @staticmethod
    def of(lists: pa.ListArray) -> Ragged:
        """The lists of an array over its memory; NULL is empty. Counts above int64 become negative."""
        items = lists.values.to_numpy(zero_copy_only=False)
        return Ragged(lists.offsets.to_numpy().astype(np.int64), items.view(_signed(items.dtype)))

    def to_arrow(self, kind: pa.DataType, valid: Bools | None = None) -> pa.ListArray:
        """The lists as an array over the same memory, NULL where not `valid`; those must be empty."""
        offsets = (self.first - self.first[0]).astype(np.int32)
        items = self.items[self.first[0] : self.first[-1]]
        validity = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        values = pa.Array.from_buffers(kind.value_type, len(items), [None, pa.py_buffer(items)])
        return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, pa.py_buffer(offsets)], children=[values])


def gathered(*parts: tuple[Ragged, Int64s]) -> Ragged:
    """The list of each row: that of one part, or an empty one; over the same memory if they are all those of one part.

    Args:
        parts: lists, and for each row of the result the row in them, or -1. No two parts have items for the same row.
    """
    first = np.zeros(len(parts[0][1]) + 1, np.int64)
    for lists, rows in parts:
        _add_sizes(_words(lists.first), _words(rows), first[1:])
    np.cumsum(first, out=first)
    if len(parts) == 1 and _are_all(*parts[0], int(first[-1])):
        lists = parts[0][0]
        return Ragged(first, lists.items[lists.first[0] : lists.first[-1]])
    items = pooled(int(first[-1]), parts[0][0].items.dtype)
    for lists, rows in parts:
        _copy(_words(lists.first), _words(lists.items), _words(rows), first, items.view(np.int64))
    return Ragged(first, items)


def _are_all(lists: Ragged, rows: Int64s, items: int) -> bool:
    """Whether the rows, of so many items, have all items of the lists in their order."""
    return items == lists.first[-1] - lists.first[0] and bool((np.diff(rows[rows >= 0]) > 0).all())


def _signed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int64) if kind == np.uint64 else kind


def _words(values: npt.NDArray[Any]) -> Int64s:
    """The memory of an array as read-only int64: a kernel is compiled again for other types, and for writable ones."""
    words = values.view(np.int64)
    words.setflags(write=False)
    return words


@kernel
def _add_sizes(lists_first: Int64s, rows: Int64s, sizes: Int64s) -> None:
    for i in range(len(rows)):
        if rows[i] >= 0:
            sizes[i] += lists_first[rows[i] + 1] - lists_first[rows[i]]


@part
def copy(source: Int64s, target: Int64s) -> None:
    """Copy items to as many places."""
    for k in range(len(source)):
        target[k] = source[k]


@kernel
def _copy(lists_first: Int64s, items: Int64s, rows: Int64s, first: Int64s, out: Int64s) -> None:
    for i in range(len(rows)):
        if rows[i] >= 0:
            # Slices: an index that may be negative costs four times as much.
            source = items[lists_first[rows[i]] : lists_first[rows[i] + 1]]
            copy(source, out[first[i] : first[i] + len(source)])
