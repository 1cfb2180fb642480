"""From landed pushes to decoded points: what is read, what is rejected and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from udfs.compression import INVALID_RECORD, TELEMETRY_TOO_LARGE, decompress
from udfs.decoded import Decoded
from udfs.identity import set_bytes
from udfs.otlp import decode

INVALID_REQUEST = "INVALID_REQUEST"
# What is decompressed, and decoded, at a time: what a task needs of memory beside its pushes, whatever they hold.
BUDGET_BYTES = 64 << 20
BUDGET_POINTS = 1 << 20


@dataclass(frozen=True)
class Payloads:
    """One row per push; `decoded` has one payload per push, empty for those that aren't read."""

    decoded: Decoded
    read: npt.NDArray[np.bool_]  # decoded, if only to zero points
    reason: pa.Array  # Kafka's error name of a rejected push, else NULL
    detail: pa.Array
    digest: npt.NDArray[np.int64]  # xxh3-64 of the decompressed bytes
    size: npt.NDArray[np.int64]  # decompressed bytes; 0 when not decompressed


def read_payloads(
    pushes: pa.Table, max_decompressed_bytes: int, max_points: int, max_text_bytes: int
) -> Iterator[Payloads]:
    """Decompress and decode what the landing contract lets through, in parts of bounded size: at least one.

    Args:
        pushes: rows of `rows.PUSHES_IN`, one chunk.
        max_decompressed_bytes: bound of one payload, else TELEMETRY_TOO_LARGE.
        max_points: data points kept of one payload.
        max_text_bytes: bound of a payload's labels, else TELEMETRY_TOO_LARGE.
    """
    # combine_chunks copies a single chunk too: all payloads.
    column = {name: _one_chunk(pushes[name]) for name in pushes.column_names}
    anonymous = pc.is_null(column["client_instance_id"])
    missing = pc.and_(pc.is_null(column["payload"]), pc.is_null(column["dropped"]))
    told = pc.coalesce(
        column["reject_reason"],
        pc.if_else(anonymous, INVALID_REQUEST, pc.if_else(missing, INVALID_RECORD, None)),
    )
    why = pc.coalesce(column["reject_detail"], pc.if_else(anonymous, "no client instance id", "null value"))
    wanted = pc.and_(pc.is_null(told), pc.is_null(column["dropped"]))
    # Only where it must be: a copy of all payloads.
    payload = column["payload"] if pc.all(wanted).as_py() else pc.if_else(wanted, column["payload"], None)

    done = 0
    while done < len(payload) or not done:
        part = decompress(payload[done:], column["compression_type"][done:], max_decompressed_bytes, BUDGET_BYTES)
        first = 0
        while first < len(part.data) or not first:
            data = part.data[first:]
            decoded = decode(data, max_points, budget=BUDGET_POINTS)
            rows = slice(first, first + decoded.payloads.num_rows)
            of_pushes = slice(done + first, done + rows.stop)
            data = part.data[rows]
            too_long = _long_labels(decoded, max_text_bytes)
            if pc.any(pc.is_valid(too_long)).as_py():
                decoded = _without(decoded, np.flatnonzero(too_long.is_valid().to_numpy(zero_copy_only=False)))
            error = decoded.payloads["error"].combine_chunks()
            found = pc.coalesce(
                part.reason[rows],
                pc.if_else(pc.is_valid(error), INVALID_RECORD, None),
                pc.if_else(pc.is_valid(too_long), TELEMETRY_TOO_LARGE, None),
            )
            reason = pc.coalesce(told[of_pushes], found)
            asked = wanted[of_pushes]
            yield Payloads(
                decoded=decoded,
                read=pc.and_(asked, pc.is_null(reason)).to_numpy(zero_copy_only=False),
                reason=reason,
                detail=pc.if_else(asked, pc.coalesce(part.detail[rows], error, too_long), why[of_pushes]),
                digest=np.array(_digests(data), np.int64),
                size=pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False),
            )
            first = max(1, rows.stop)
        done += max(1, len(part.data))


def _long_labels(decoded: Decoded, max_bytes: int) -> pa.Array:
    """What is wrong with each payload's labels, if they are too long; else NULL."""
    size = np.append(set_bytes(decoded.attribute_sets), 0)[decoded.payloads["resource"].to_numpy()]
    text = pc.binary_join_element_wise(
        "labels of", pa.array(size).cast(pa.string()), f"bytes, more than {max_bytes}", " "
    )
    return pc.if_else(pa.array(size > max_bytes), text, None)


def _without(decoded: Decoded, payloads: npt.NDArray[np.int64]) -> Decoded:
    """`decoded` without the points and labels of these payloads."""
    points = decoded.points.filter(pa.array(~np.isin(decoded.points["payload"].to_numpy(), payloads)))
    kept = decoded.payloads
    for name, nothing in (("points", 0), ("resource", -1), ("capped", False)):
        values = kept[name].to_numpy(zero_copy_only=False).copy()
        values[payloads] = nothing
        place = kept.schema.get_field_index(name)
        kept = kept.set_column(place, kept.schema.field(place), pa.array(values, kept.schema.field(place).type))
    return Decoded(kept, points.combine_chunks(), decoded.distributions, decoded.attribute_sets)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _digests(payloads: pa.LargeBinaryArray) -> list[int]:
    """xxh3-64 of each payload's bytes, where they are; 0 for NULL."""
    _, offsets, data = payloads.buffers()
    ends = np.frombuffer(offsets, np.int64)[payloads.offset : payloads.offset + len(payloads) + 1].tolist()
    content = memoryview(data or b"")
    valid = payloads.is_valid().to_pylist()
    return [
        xxhash.xxh3_64_intdigest(content[start:end]) - (1 << 63) if is_valid else 0
        for start, end, is_valid in zip(ends, ends[1:], valid, strict=False)
    ]
