"""Decompresses and decodes landed pushes, and rejects those that can't be read or exceed a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_telemetry_lake.udfs import limits as limits_module
from kafka_telemetry_lake.udfs.conversion.compression import INVALID_RECORD, TELEMETRY_TOO_LARGE, decompress
from kafka_telemetry_lake.udfs.conversion.principals import INVALID_REQUEST
from kafka_telemetry_lake.udfs.identity import set_bytes
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, one_chunk
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Budget, Limits
from kafka_telemetry_lake.udfs.otlp.decode import decode
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded
from kafka_telemetry_lake.udfs.rows import PUSH_COLUMNS


@dataclass(frozen=True)
class Payloads:
    """One row per push; `decoded` has one payload per push, empty for those that aren't read."""

    decoded: Decoded
    read: Bools  # decoded, if only to zero points
    reason: pa.Array  # Kafka's error name of a rejected push, else NULL
    detail: pa.Array
    digest: Int64s  # xxh3-64 of the decompressed bytes
    size: Int64s  # decompressed bytes; 0 when not decompressed


def read_payloads(pushes: pa.Table, limits: Limits = DEFAULT_LIMITS) -> Iterator[Payloads]:
    """Decompress and decode the pushes that the landing contract accepts, in one or more parts of limited size.

    Args:
        pushes: rows of `rows.PUSHES_IN`, one chunk.
        limits: of a push. A push beyond one is TELEMETRY_TOO_LARGE; points beyond their limit are only left out.
    """
    budget = limits_module.BUDGET
    column = {name: one_chunk(pushes[name]) for name in pushes.column_names}
    anonymous = pc.is_null(column["client_instance_id"])
    missing = pc.and_(pc.is_null(column["payload"]), pc.is_null(column["dropped"]))
    reject_reason = pc.coalesce(
        column["reject_reason"], pc.if_else(anonymous, INVALID_REQUEST, pc.if_else(missing, INVALID_RECORD, None))
    )
    why = pc.coalesce(column["reject_detail"], pc.if_else(anonymous, "no client instance id", "null value"))
    wanted = pc.and_(pc.is_null(reject_reason), pc.is_null(column["dropped"]))
    # if_else copies all payloads, so only if some are unwanted.
    payload = column["payload"] if pc.all(wanted).as_py() else pc.if_else(wanted, column["payload"], None)

    key_bytes = _key_bytes(column)
    done = 0
    while done < len(payload) or not done:
        some = slice(done, done + budget.pushes)
        part = decompress(payload[some], column["compression_type"][some], limits, budget.bytes)
        first = 0
        while first < len(part.data) or not first:
            decoded, text_bytes = _decode_within(part.data[first:], key_bytes[done + first :], limits, budget)
            rows = slice(first, first + decoded.payloads.num_rows)
            of_pushes = slice(done + first, done + rows.stop)
            data = part.data[rows]
            too_long = pc.coalesce(
                one_chunk(decoded.payloads["too_much"]),
                _beyond("labels of", _label_bytes(decoded), limits.max_text_bytes),
                _beyond("texts of all points' rows of", text_bytes, limits.max_row_text_bytes),
            )
            if pc.any(pc.is_valid(too_long)).as_py():
                decoded = _without(decoded, np.flatnonzero(too_long.is_valid().to_numpy(zero_copy_only=False)))
            error = one_chunk(decoded.payloads["error"])
            decode_reason = pc.coalesce(
                part.reason[rows],
                pc.if_else(pc.is_valid(error), INVALID_RECORD, None),
                pc.if_else(pc.is_valid(too_long), TELEMETRY_TOO_LARGE, None),
            )
            reason = pc.coalesce(reject_reason[of_pushes], decode_reason)
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


def _decode_within(
    data: pa.LargeBinaryArray, key_bytes: Int64s, limits: Limits, budget: Budget
) -> tuple[Decoded, Int64s]:
    """The payloads up to the budget, decoded, and the bytes of text that the rows of each have."""
    decoded = decode(data, limits, budget)
    text_bytes = _row_text_bytes(decoded, key_bytes, limits.max_text_bytes)
    passed = np.cumsum(np.where(text_bytes > limits.max_row_text_bytes, 0, text_bytes))
    within = max(1, int(np.searchsorted(passed, budget.row_text_bytes, "right")))
    if within < len(text_bytes):  # rare: pushes with ordinary names never get here
        return _decode_within(data[:within], key_bytes, limits, budget)
    return decoded, text_bytes


def _row_text_bytes(decoded: Decoded, key_bytes: Int64s, longest: int) -> Int64s:
    """Bytes of the names, scopes and push keys over all points of each payload; longer ones aren't stored."""
    push = decoded.points["payload"].to_numpy()
    of_point = key_bytes[push]
    for name in ("metric", "scope"):
        texts = one_chunk(decoded.points[name])
        sizes = np.append(pc.binary_length(texts.dictionary).to_numpy(zero_copy_only=False).astype(np.int64), 0)
        sizes[sizes > longest] = 0
        of_point += sizes[texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return np.bincount(push, of_point, decoded.payloads.num_rows).astype(np.int64)


def _key_bytes(column: dict[str, pa.Array]) -> Int64s:
    """Bytes of the texts of each push that every row of its points repeats."""
    sizes = np.zeros(len(column["payload"]), np.int64)
    for name in PUSH_COLUMNS:
        if pa.types.is_string(column[name].type):
            sizes += pc.fill_null(pc.binary_length(column[name]), 0).to_numpy(zero_copy_only=False)
    return sizes


def _label_bytes(decoded: Decoded) -> Int64s:
    sizes: Int64s = np.append(set_bytes(decoded.attribute_sets), 0)[decoded.payloads["resource"].to_numpy()]
    return sizes


def _beyond(what: str, sizes: Int64s, most: int) -> pa.Array:
    """What is wrong with each push that has more than so many bytes, else NULL."""
    text = pc.binary_join_element_wise(what, pa.array(sizes).cast(pa.string()), f"bytes, more than {most}", " ")
    return pc.if_else(pa.array(sizes > most), text, None)


def _without(decoded: Decoded, payloads: Int64s) -> Decoded:
    """`decoded` without the points and labels of these payloads."""
    points = decoded.points.filter(pa.array(~np.isin(decoded.points["payload"].to_numpy(), payloads)))
    table = decoded.payloads
    for name, nothing in (("points", 0), ("resource", -1), ("beyond", 0), ("untimed", 0)):
        values = table[name].to_numpy(zero_copy_only=False).copy()
        values[payloads] = nothing
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(values, field.type))
    return Decoded(table, points.combine_chunks(), decoded.distributions, decoded.attribute_sets)


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
