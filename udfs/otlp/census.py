"""Counts a payload's fields in place, before upb creates an object for each.

Everything is counted, groups, repeated members and damaged bytes included. Counting ends at malformed bytes, as upb
does. The count is never below what upb reads, because it accepts every tag and length that upb accepts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)  # wire types
MOST_NESTED = 128  # upb refuses more than 100 levels
SKIPPED = -1  # in a table of fields: text, bytes and unknown fields
PACKED = -2  # varints in one field
FIXED = -3  # eight bytes each in one field


def _tables() -> Int64s:
    """By message and field number: the message that a field holds, or how its content is counted."""
    messages: list[Descriptor] = [MetricsData.DESCRIPTOR]
    rows: list[Int64s] = []
    for message in messages:  # the list grows during the loop
        row = np.full(16, SKIPPED, np.int64)
        for field in message.fields:
            if field.message_type is not None:
                if field.message_type not in messages:
                    messages.append(field.message_type)
                row[field.number] = messages.index(field.message_type)
            elif field.is_packed:
                wide = field.type in (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_DOUBLE)
                row[field.number] = FIXED if wide else PACKED
        rows.append(row)
    return np.stack(rows)


TABLES = _tables()


def fields(data: UInt8s, starts: Int64s, ends: Int64s, most: int, budget: int) -> Int64s:
    """Fields and items of packed lists of each payload ``data[start:end]``, up to the budget (at least one payload).

    One with more than `most` is not counted to its end, and not in the budget.
    """
    counts, stack = np.zeros(len(starts), np.int64), np.zeros((2, MOST_NESTED), np.int64)
    return counts[: _count(data, starts, ends, TABLES, stack, most, budget, counts)]


@linked
def _varint(data: UInt8s, pos: int, end: int) -> Any:
    """The low 63 bits of the varint at `pos`, and the position behind it; -1 when it breaks off."""
    value, shift = 0, 0
    while pos < end and shift < 70:
        byte = int(data[pos])
        pos += 1
        if shift < 63:
            value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    return value, -1


@linked
def _after(data: UInt8s, pos: int, end: int, wire_type: int) -> int:
    """The position behind a field's content that isn't a message or text; -1 when it is malformed."""
    if wire_type == VARINT:
        return int(_varint(data, pos, end)[1])
    size = 8 if wire_type == FIXED64 else 4 if wire_type == FIXED32 else 0
    return pos + size if wire_type <= FIXED32 and size <= end - pos else -1


@linked
def _items(data: UInt8s, pos: int, size: int, inside: int) -> int:
    """Items of a packed list."""
    if inside == FIXED:
        return size >> 3
    items = 0
    if inside == PACKED:
        for offset in range(size):
            items += 1 if data[pos + offset] < 0x80 else 0
    return items


@linked
def _count_one(data: UInt8s, start: int, last: int, tables: Int64s, stack: Int64s, most: int) -> int:
    """Fields and items of one payload. `stack`: the message at each level, and where it ends."""
    pos, level, groups, count = start, 0, 0, 0
    stack[0, 0], stack[1, 0] = 0, last
    while count <= most:
        while level > 0 and pos == stack[1, level]:
            level -= 1
        end = stack[1, level]
        if pos == end:
            break
        tag, pos = _varint(data, pos, end)
        wire_type, field = tag & 7, tag >> 3
        count += 1
        if pos < 0:
            break
        if wire_type != LENGTH:
            groups += 1 if wire_type == GROUP else -1 if wire_type == END_GROUP else 0
            pos = _after(data, pos, end, wire_type)
            if pos < 0 or groups < 0:
                break
            continue
        size, pos = _varint(data, pos, end)
        if pos < 0 or size < 0 or size > end - pos:
            break
        # What a group holds is unknown, so nothing in it is read.
        inside = tables[stack[0, level], field] if groups == 0 and 0 < field < tables.shape[1] else SKIPPED
        if inside >= 0 and level + 1 < MOST_NESTED:
            level += 1
            stack[0, level], stack[1, level] = inside, pos + size
        else:
            count += _items(data, pos, size, inside)
            pos += size
    return count


@kernel
def _count(
    data: UInt8s, starts: Int64s, ends: Int64s, tables: Int64s, stack: Int64s, most: int, budget: int, counts: Int64s
) -> int:
    """Count payloads, and return how many."""
    total = 0
    for payload in range(len(starts)):
        if payload > 0 and total >= budget:
            return payload
        counts[payload] = _count_one(data, starts[payload], ends[payload], tables, stack, most)
        if counts[payload] <= most:
            total += counts[payload]
    return len(starts)
