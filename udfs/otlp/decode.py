"""Decodes a batch of pushes: the kernel first, then the reference decoder for payloads that the kernel leaves out.

A payload that isn't a MetricsData message gives an error in its own row, never for the batch.
"""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.columns import one_chunk
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, NO_BUDGET, Budget, Limits
from kafka_telemetry_lake.udfs.otlp import census as otlp_census
from kafka_telemetry_lake.udfs.otlp import merge as otlp_merge
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from kafka_telemetry_lake.udfs.otlp.decoded import MANY_FIELDS, Decoded, payload_bounds


def decode(
    payloads: pa.Array | pa.ChunkedArray, limits: Limits = DEFAULT_LIMITS, budget: Budget = NO_BUDGET
) -> Decoded:
    """Decode uncompressed MetricsData messages, with the rows of `reference.decode`.

    Args:
        payloads: binary or large_binary; NULL and empty decode to zero points.
        limits: of one payload. A payload of more than `max_decompressed_bytes` is an error and isn't read.
        budget: of all payloads; the result covers the payloads within it (at least one), so that a caller can
            process a batch in bounded memory.

    Raises:
        pyarrow.ArrowInvalid: the distinct metric names or attribute texts of the batch exceed 2 GiB.
    """
    payloads = _one_array(payloads)
    if not len(payloads):  # which needs no kernel
        return otlp_reference.decode(payloads, limits)
    too_large = pc.greater(pc.binary_length(payloads), limits.max_decompressed_bytes).fill_null(False)
    rejected = np.flatnonzero(too_large.to_numpy(zero_copy_only=False))
    if len(rejected):
        payloads = pc.if_else(too_large, None, payloads)
    kernel = _kernel()
    if kernel is None:
        decoded = _decode_slowly(payloads, limits, budget)
    else:
        decoded = _decode_fast(kernel, payloads, limits, budget)
    rejected = rejected[rejected < decoded.payloads.num_rows]
    error = f"more than {limits.max_decompressed_bytes} bytes"
    return otlp_merge.with_texts(decoded, "error", rejected, [error] * len(rejected)) if len(rejected) else decoded


def _decode_fast(kernel: ModuleType, payloads: pa.LargeBinaryArray, limits: Limits, budget: Budget) -> Decoded:
    """The kernel's rows, and the reference decoder's where the kernel has none."""
    result = kernel.decode(payloads, limits, budget)
    if not len(result.odd):
        return result.decoded  # type: ignore[no-any-return]  # the module is loaded at run time
    odd = _decode_slowly(payloads.take(pa.array(result.odd)), limits, budget)
    done = odd.payloads.num_rows
    if done < len(result.odd):  # more than the budget takes: this part ends before the next one
        return _decode_fast(kernel, payloads[: result.odd[done]], limits, budget)
    return otlp_merge.merged(result.decoded, odd, result.odd)


def _decode_slowly(payloads: pa.LargeBinaryArray, limits: Limits, budget: Budget) -> Decoded:
    """The reference decoder's rows of the payloads up to the budget; one of too many fields has none."""
    most = limits.max_reference_fields
    fields = otlp_census.fields(*payload_bounds(payloads), most, budget.reference_fields)
    beyond, payloads = np.flatnonzero(fields > most), payloads[: len(fields)]
    if len(beyond):
        payloads = pc.if_else(pa.array(np.isin(np.arange(len(payloads)), beyond)), None, payloads)
    decoded = otlp_reference.decode(payloads, limits)
    texts = [MANY_FIELDS.format(most)] * len(beyond)
    return otlp_merge.with_texts(decoded, "too_much", beyond, texts) if texts else decoded


def _one_array(payloads: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    payloads = payloads.cast(pa.large_binary())
    if isinstance(payloads, pa.Array):
        return payloads
    return one_chunk(payloads)


def load() -> None:
    """Compile the kernels, or load them from the cache, if numba works."""
    _kernel()


@cache
def _kernel() -> ModuleType | None:
    """The kernel's module, or None, with one warning per process, where numba doesn't work."""
    try:
        from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel  # noqa: PLC0415  # numba may be missing

        otlp_kernel.load()
    except Exception as error:  # numba can fail in many ways; the reference decoder gives the same rows
        warnings.warn(
            f"the compiled decoder can't be loaded, decoding is slow: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    return otlp_kernel
