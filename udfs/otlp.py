"""Decoding a batch of pushes: the kernel, and the reference decoder for what the kernel leaves to it.

A payload that isn't a MetricsData message is an error of its own row, never of the batch.
"""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs import otlp_merge, otlp_reference
from udfs.decoded import Decoded


def decode(
    payloads: pa.Array | pa.ChunkedArray, max_points: int = 1_000_000, max_bytes: int = 64 << 20,
    budget: int = 1 << 62,
) -> Decoded:  # fmt: skip
    """Decode uncompressed MetricsData messages, with the rows of `otlp_reference.decode`.

    Args:
        payloads: binary or large_binary; NULL and empty decode to zero points.
        max_points: data points kept of one payload; the rest is left out and `capped` says so.
        max_bytes: a larger payload is an error and isn't looked at.
        budget: points decoded in all; the result then covers the payloads up to there (at least one), so that a caller
            can work through a batch in bounded memory. The reference decoder doesn't look at it.

    Raises:
        pyarrow.ArrowInvalid: the distinct metric names or attribute texts of the batch exceed 2 GiB.
    """
    payloads = _one_array(payloads)
    too_large = pc.greater(pc.binary_length(payloads), max_bytes).fill_null(False)
    rejected = np.flatnonzero(too_large.to_numpy(zero_copy_only=False))
    if len(rejected):
        payloads = pc.if_else(too_large, None, payloads)
    kernel = _kernel()
    if kernel is None:
        decoded = otlp_reference.decode(payloads, max_points)
    else:
        result = kernel.decode(payloads, max_points, budget)
        decoded = result.decoded
        rejected = rejected[rejected < decoded.payloads.num_rows]
        if len(result.odd):
            odd = otlp_reference.decode(payloads.take(pa.array(result.odd)), max_points)
            decoded = otlp_merge.merged(decoded, odd, result.odd)
    return otlp_merge.with_errors(decoded, rejected, f"more than {max_bytes} bytes") if len(rejected) else decoded


def _one_array(payloads: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    payloads = payloads.cast(pa.large_binary())
    if isinstance(payloads, pa.Array):
        return payloads
    return payloads.chunk(0) if payloads.num_chunks == 1 else payloads.combine_chunks()


@cache
def _kernel() -> ModuleType | None:
    """The kernel's module, or None, with one warning per process, where numba doesn't work."""
    try:
        from udfs import otlp_kernel  # noqa: PLC0415  numba may be missing

        otlp_kernel.load()
    except Exception as error:  # whatever numba meets: the reference decoder gives the same rows
        warnings.warn(
            f"the compiled decoder can't be loaded, decoding is slow: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    return otlp_kernel
