"""NumPy arrays: names for those of one element type, and Arrow's columns and memory as arrays.

The shape is said where an array is used. Nothing is copied where Arrow's layout allows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array. `combine_chunks` would copy a single chunk too."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def column(table: pa.Table, name: str, null: float | None = None) -> Any:
    """A primitive column as a NumPy array, NULL as `null`.

    It is copied only where NULLs are replaced, or Arrow's bits aren't NumPy's (bool).
    """
    array = one_chunk(table[name])
    return (array if null is None else array.fill_null(null)).to_numpy(zero_copy_only=False)


def trimmed(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same texts without entries of the dictionary that no row has; otherwise they would be written to a file."""
    valid = texts.indices.is_valid().to_numpy(zero_copy_only=False)
    indices = texts.indices.fill_null(0).to_numpy(zero_copy_only=False)
    is_used = np.zeros(len(texts.dictionary), np.bool_)
    is_used[indices[valid]] = True
    if is_used.all():
        return texts
    place = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    chosen = texts.dictionary.take(pa.array(np.flatnonzero(is_used)))
    return pa.DictionaryArray.from_arrays(pa.array(place[indices], mask=~valid), chosen)


def pooled(shape: int | tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array without values. Arrow's pool reuses its memory: new pages would cost as much as decoding."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer(pa.allocate_buffer(size), kind).reshape(shape)
