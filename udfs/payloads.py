"""From landed pushes to decoded points: what is read, what is rejected and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from udfs.compression import INVALID_RECORD, decompress
from udfs.decoded import Decoded
from udfs.otlp import decode

INVALID_REQUEST = "INVALID_REQUEST"
# Payloads decompressed at a time: what a batch needs of memory beside its pushes and its columns.
BUDGET_BYTES = 256 << 20


@dataclass(frozen=True)
class Payloads:
    """One row per push; `decoded` has one payload per push, empty for those that aren't read."""

    decoded: Decoded
    read: npt.NDArray[np.bool_]  # decoded, if only to zero points
    reason: pa.Array  # Kafka's error name of a rejected push, else NULL
    detail: pa.Array
    digest: npt.NDArray[np.int64]  # xxh3-64 of the decompressed bytes
    size: npt.NDArray[np.int64]  # decompressed bytes; 0 when not decompressed


def read_payloads(pushes: pa.Table, max_decompressed_bytes: int, max_points: int) -> Payloads:
    """Decompress and decode what the landing contract lets through.

    Args:
        pushes: rows of `rows.PUSHES_IN`, one chunk.
        max_decompressed_bytes: bound of one payload, else TELEMETRY_TOO_LARGE.
        max_points: data points kept of one payload.
    """
    # combine_chunks copies a single chunk too: all payloads.
    column = {name: _one_chunk(pushes[name]) for name in pushes.column_names}
    anonymous = pc.is_null(column["client_instance_id"])
    missing = pc.and_(pc.is_null(column["payload"]), pc.is_null(column["dropped"]))
    reason = pc.coalesce(
        column["reject_reason"],
        pc.if_else(anonymous, INVALID_REQUEST, pc.if_else(missing, INVALID_RECORD, None)),
    )
    detail = pc.coalesce(column["reject_detail"], pc.if_else(anonymous, "no client instance id", "null value"))
    wanted = pc.and_(pc.is_null(reason), pc.is_null(column["dropped"]))
    # Only where it must be: a copy of all payloads.
    payload = column["payload"] if pc.all(wanted).as_py() else pc.if_else(wanted, column["payload"], None)

    digest, size = np.zeros(len(payload), np.int64), np.zeros(len(payload), np.int64)
    parts: list[Decoded] = []
    reasons, details = [], []
    done = 0
    while done < len(payload) or not parts:
        part = decompress(payload[done:], column["compression_type"][done:], max_decompressed_bytes, BUDGET_BYTES)
        digest[done : done + len(part.data)] = _digests(part.data)
        size[done : done + len(part.data)] = pc.fill_null(pc.binary_length(part.data), 0)
        decoded = decode(part.data, max_points)
        error = decoded.payloads["error"].combine_chunks()
        reasons.append(pc.coalesce(part.reason, pc.if_else(pc.is_valid(error), INVALID_RECORD, None)))
        details.append(pc.coalesce(part.detail, error))
        parts.append(decoded)
        done += len(part.data)
    reason = pc.coalesce(reason, pa.concat_arrays(reasons))
    return Payloads(
        decoded=_joined(parts),
        read=pc.and_(wanted, pc.is_null(reason)).to_numpy(zero_copy_only=False),
        reason=reason,
        detail=pc.if_else(wanted, pa.concat_arrays(details), detail),
        digest=digest,
        size=size,
    )


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


def _joined(parts: list[Decoded]) -> Decoded:
    """One `Decoded` of several, with the indices moved on."""
    if len(parts) == 1:
        return parts[0]
    payloads = sets = distributions = 0
    moved = []
    for part in parts:
        points = _moved(part.points, {"payload": payloads, "attributes": sets, "distribution": distributions})
        moved.append((_moved(part.payloads, {"resource": sets}), points))
        payloads += part.payloads.num_rows
        sets += len(part.attribute_sets)
        distributions += part.distributions.num_rows
    return Decoded(
        payloads=pa.concat_tables([table for table, _ in moved]).combine_chunks(),
        points=pa.concat_tables([table for _, table in moved]).unify_dictionaries().combine_chunks(),
        distributions=pa.concat_tables([part.distributions for part in parts]).combine_chunks(),
        attribute_sets=pa.concat_arrays([part.attribute_sets for part in parts]),
    )


def _moved(table: pa.Table, offsets: dict[str, int]) -> pa.Table:
    for name, offset in offsets.items():
        values = table[name].combine_chunks()
        none = pc.less(values, 0)
        moved = pc.if_else(none, values, pc.add(values, pa.scalar(offset, values.type)))
        table = table.set_column(table.column_names.index(name), table.field(name), moved)
    return table
