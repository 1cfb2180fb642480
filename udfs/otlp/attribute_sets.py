"""Deduplicates repeated lists of attributes. It needs no kernel: the reference decoder's rows go through it too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, Int64s


def distinct_sets(offsets: Int64s, keys: pa.StringArray, values: pa.StringArray) -> tuple[pa.MapArray, Int32s]:
    """The distinct lists of pairs, in order of appearance, and the index of each list among them (int32)."""
    keys, values = keys.dictionary_encode(), values.dictionary_encode()
    # A list is the bytes of its codes: Arrow's dictionary of them is that of the lists.
    codes = np.stack([keys.indices.to_numpy(), values.indices.to_numpy()], axis=1)
    pair_bytes = codes.itemsize * 2
    lists = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets.astype(np.int64) * pair_bytes), pa.py_buffer(codes)],
    ).dictionary_encode()
    _, distinct_offsets, distinct_codes = lists.dictionary.buffers()
    offsets = np.frombuffer(distinct_offsets, np.int64, len(lists.dictionary) + 1) // pair_bytes
    codes = np.frombuffer(distinct_codes or b"", np.int32, int(offsets[-1]) * 2).reshape(-1, 2)
    sets = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        keys.dictionary.take(pa.array(codes[:, 0])),
        values.dictionary.take(pa.array(codes[:, 1])),
    )
    return sets, lists.indices.to_numpy()
