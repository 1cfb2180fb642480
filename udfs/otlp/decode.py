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

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, one_chunk
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, NO_BUDGET, Budget, Limits
from kafka_telemetry_lake.udfs.otlp import census as otlp_census
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from kafka_telemetry_lake.udfs.otlp.decoded import MANY_FIELDS, Decoded, distinct_sets, payload_bounds


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

    >>> from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    >>> push = MetricsData()
    >>> metric = push.resource_metrics.add().scope_metrics.add().metrics.add(name="requests.total")
    >>> point = metric.sum.data_points.add(as_int=5, time_unix_nano=1_760_000_000_000_000_000)
    >>> decoded = decode(pa.array([push.SerializeToString(), b"nonsense"]))
    >>> decoded.points.select(["payload", "metric", "value_int"]).to_pylist()
    [{'payload': 0, 'metric': 'requests.total', 'value_int': 5}]
    >>> decoded.payloads.select(["points"]).to_pydict(), decoded.payloads["error"].is_null().to_pylist()
    ({'points': [1, 0]}, [True, False])
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
    return with_texts(decoded, "error", rejected, [error] * len(rejected)) if len(rejected) else decoded


def _decode_fast(kernel: ModuleType, payloads: pa.LargeBinaryArray, limits: Limits, budget: Budget) -> Decoded:
    """The kernel's rows, and the reference decoder's where the kernel has none."""
    result = kernel.decode(payloads, limits, budget)
    if not len(result.odd):
        return result.decoded  # type: ignore[no-any-return]  # the module is loaded at run time
    odd = _decode_slowly(payloads.take(pa.array(result.odd)), limits, budget)
    done = odd.payloads.num_rows
    if done < len(result.odd):  # more than the budget takes: this part ends before the next one
        return _decode_fast(kernel, payloads[: result.odd[done]], limits, budget)
    return merged(result.decoded, odd, result.odd)


def _decode_slowly(payloads: pa.LargeBinaryArray, limits: Limits, budget: Budget) -> Decoded:
    """The reference decoder's rows of the payloads up to the budget; one of too many fields has none."""
    most = limits.max_reference_fields
    fields = otlp_census.fields(*payload_bounds(payloads), most, budget.reference_fields)
    beyond, payloads = np.flatnonzero(fields > most), payloads[: len(fields)]
    if len(beyond):
        payloads = pc.if_else(pa.array(np.isin(np.arange(len(payloads)), beyond)), None, payloads)
    decoded = otlp_reference.decode(payloads, limits)
    texts = [MANY_FIELDS.format(most)] * len(beyond)
    return with_texts(decoded, "too_much", beyond, texts) if texts else decoded


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


def merged(fast: Decoded, odd: Decoded, at: Int64s) -> Decoded:
    """`fast` with `odd` in place of the payloads `at` these ascending indices, which have no rows in it."""
    sets = pa.concat_arrays([fast.attribute_sets, odd.attribute_sets])
    distinct, codes = distinct_sets(sets.offsets.to_numpy(), sets.keys, sets.items)
    # The kernel's sets are distinct and come first, so their codes don't change.
    odd_codes = np.append(codes[len(fast.attribute_sets) :], np.int32(-1))
    distribution = odd.points["distribution"].to_numpy()
    payload = odd.points["payload"].to_numpy()
    odd_points = _replaced(
        odd.points,
        payload=at[payload],
        attributes=odd_codes[odd.points["attributes"].to_numpy()],
        distribution=np.where(distribution < 0, -1, distribution + fast.distributions.num_rows),
    )
    odd_payloads = _replaced(odd.payloads, resource=odd_codes[odd.payloads["resource"].to_numpy()])
    before = np.searchsorted(fast.points["payload"].to_numpy(), at)
    return Decoded(
        payloads=_spliced(fast.payloads, odd_payloads, at, 1, np.arange(len(at) + 1)),
        points=_spliced(fast.points, odd_points, before, 0, np.searchsorted(payload, np.arange(len(at) + 1))),
        distributions=pa.concat_tables([fast.distributions, odd.distributions]).combine_chunks(),
        attribute_sets=distinct,
    )


def with_texts(decoded: Decoded, name: str, at: Int64s, texts: list[str]) -> Decoded:
    """`decoded` with an error, or what is too much, of the payloads `at` these indices, which have no rows in it."""
    column = decoded.payloads[name].to_numpy(zero_copy_only=False).astype(object)
    column[at] = texts
    place = decoded.payloads.schema.get_field_index(name)
    payloads = decoded.payloads.set_column(place, name, pa.array(column, pa.string()))
    return Decoded(payloads, decoded.points, decoded.distributions, decoded.attribute_sets)


def _replaced(table: pa.Table, **columns: Int64s) -> pa.Table:
    for name, values in columns.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), pa.array(values, pa.int32()))
    return table


def _spliced(fast: pa.Table, odd: pa.Table, before: Int64s, drop: int, bounds: Int64s) -> pa.Table:
    """`fast` with rows ``bounds[i]:bounds[i + 1]`` of `odd` in place of `drop` rows from ``before[i]``."""
    both = pa.concat_tables([fast, odd]).unify_dictionaries()
    fast, odd = both.slice(0, fast.num_rows), both.slice(fast.num_rows)
    pieces, row = [], 0
    for index, first in enumerate(before.tolist()):
        pieces += [fast.slice(row, first - row), odd.slice(bounds[index], bounds[index + 1] - bounds[index])]
        row = first + drop
    return pa.concat_tables([*pieces, fast.slice(row)]).combine_chunks()
