"""Bytes that are, or nearly are, MetricsData messages: real payloads, odd but legal encodings, and damage."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    EntityRef,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from benchmarks.corpora import captured

SOME_DOUBLES = (0.0, -0.0, 1.5, -1.0, float("nan"), float("inf"), 1e300, 5e-324)
SOME_INTS = (0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63))
SOME_COUNTS = (0, 1, 127, 128, 300, 2**53 + 1, 2**64 - 1)
SOME_TIMES = (0, 1, 1_795_262_781_047_000_000, 2**64 - 1)
SOME_TEXTS = ("", "a", "client_id", "org.apache.kafka.producer.record.send.total", "é", "日本", "🦜", "x" * 130)


def any_value(random: Random, depth: int = 0) -> AnyValue:
    """Any of AnyValue's members, seldom a nested one."""
    choice = random.randrange(20)
    if choice == 18 and depth < 2:
        return AnyValue(array_value=ArrayValue(values=[any_value(random, depth + 1)]))
    if choice == 19 and depth < 2:
        return AnyValue(kvlist_value=KeyValueList(values=key_values(random, depth + 1)))
    members: tuple[dict[str, Any], ...] = (
        {},
        {"bool_value": random.random() < 0.5},
        {"double_value": random.choice(SOME_DOUBLES)},
        {"bytes_value": random.randbytes(3)},
        *[{"int_value": random.choice(SOME_INTS)}] * 3,
    )
    text = {"string_value": random.choice(SOME_TEXTS)}
    return AnyValue(**(members[choice] if choice < len(members) else text))


def key_values(random: Random, depth: int = 0) -> list[KeyValue]:
    """Up to three KeyValues; nested values are rare enough for most payloads to have none."""
    simple = random.random() < 0.8
    pairs = []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        value = AnyValue(string_value=random.choice(SOME_TEXTS)) if simple else any_value(random, depth)
        pairs.append(KeyValue(key=random.choice(SOME_TEXTS), value=value))
    return pairs


def exemplars(random: Random) -> list[Any]:
    """Seldom an exemplar."""
    if random.random() < 0.9:
        return []
    return [pb.Exemplar(filtered_attributes=key_values(random), as_int=3, span_id=b"\xff\xfe", trace_id=b"\x80")]


def maybe(random: Random, message: Any, **fields: Any) -> None:
    """Set each field with a probability of three quarters."""
    for name, value in fields.items():
        if random.random() < 0.75:
            setattr(message, name, value)


def data_point(random: Random, message: Any) -> Any:
    """A data point of the message's type."""
    point = message()
    point.attributes.extend(key_values(random))
    maybe(
        random,
        point,
        start_time_unix_nano=random.choice(SOME_TIMES),
        time_unix_nano=random.choice(SOME_TIMES),
        flags=random.choice((0, 1, 2**32 - 1)),
    )
    if message is pb.NumberDataPoint:
        if random.random() < 0.5:
            maybe(random, point, as_double=random.choice(SOME_DOUBLES))
        else:
            maybe(random, point, as_int=random.choice(SOME_INTS))
    else:
        maybe(random, point, count=random.choice(SOME_COUNTS), sum=random.choice(SOME_DOUBLES))
    if message in (pb.HistogramDataPoint, pb.ExponentialHistogramDataPoint):
        maybe(random, point, min=random.choice(SOME_DOUBLES), max=random.choice(SOME_DOUBLES))
    counts = [random.choice(SOME_COUNTS) for _ in range(random.randrange(4))]
    if message is pb.HistogramDataPoint:
        point.bucket_counts.extend(counts)
        point.explicit_bounds.extend(random.choice(SOME_DOUBLES) for _ in counts[1:])
    elif message is pb.ExponentialHistogramDataPoint:
        maybe(
            random, point, scale=random.choice((-10, 0, 20)), zero_count=counts[0] if counts else 0, zero_threshold=1e-9
        )
        if random.random() < 0.75:
            point.positive.offset = random.choice((-(2**31), -1, 0, 2**31 - 1))
            point.positive.bucket_counts.extend(counts)
        if random.random() < 0.25:
            point.negative.bucket_counts.extend(counts)
    elif message is pb.SummaryDataPoint:
        for count in counts:
            point.quantile_values.add(quantile=random.choice(SOME_DOUBLES), value=count)
    if message is not pb.SummaryDataPoint:
        point.exemplars.extend(exemplars(random))
    return point


def metric(random: Random) -> Any:
    """A metric of any kind, seldom without data."""
    message = pb.Metric(name=random.choice(SOME_TEXTS))
    maybe(random, message, description=random.choice(SOME_TEXTS), unit="1")
    if random.random() < 0.1:
        message.metadata.extend(key_values(random))
    kind, point = random.choice(
        (
            (message.gauge, pb.NumberDataPoint),
            (message.sum, pb.NumberDataPoint),
            (message.histogram, pb.HistogramDataPoint),
            (message.exponential_histogram, pb.ExponentialHistogramDataPoint),
            (message.summary, pb.SummaryDataPoint),
        )
    )
    if random.random() < 0.95:
        kind.SetInParent()
        kind.data_points.extend(data_point(random, point) for _ in range(random.choice((0, 1, 1, 1, 2, 5))))
        if hasattr(kind, "aggregation_temporality"):
            kind.aggregation_temporality = random.choice((0, 1, 2, 2, 2, 3, -1))
        if hasattr(kind, "is_monotonic"):
            kind.is_monotonic = random.random() < 0.5
    return message


def metrics_data(random: Random) -> Any:
    """A MetricsData message with all that its definition has, mostly of one resource and one scope."""
    data = pb.MetricsData()
    for _ in range(random.choice((0, 1, 1, 1, 1, 1, 1, 2))):
        resource_metrics = data.resource_metrics.add(schema_url=random.choice(("", "https://a")))
        if random.random() < 0.8:
            resource_metrics.resource.CopyFrom(Resource(attributes=key_values(random)))
        if random.random() < 0.1:
            resource_metrics.resource.entity_refs.append(EntityRef(type="service", id_keys=["a", "é"]))
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            scope_metrics = resource_metrics.scope_metrics.add(schema_url=random.choice(("", "https://b")))
            if random.random() < 0.8:
                name = random.choice(("", "kgo", "é"))
                scope_metrics.scope.CopyFrom(
                    InstrumentationScope(name=name, version="1", attributes=key_values(random))
                )
            scope_metrics.metrics.extend(metric(random) for _ in range(random.randrange(4)))
    return data


def varint(value: int, random: Random | None = None) -> bytes:
    """A varint, seldom longer than need be when there is a `random`."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    if random is not None and random.random() < 0.02:
        out[-1] |= 128
        out += bytes([128] * random.randrange(3)) + b"\0"
    return bytes(out)


def fields(payload: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of a well-formed message without groups."""
    result, pos = [], 0

    def read() -> int:
        nonlocal pos
        value = shift = 0
        while True:
            byte = payload[pos]
            pos += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while pos < len(payload):
        tag = read()
        first = pos
        if tag & 7 == 0:
            read()
        elif tag & 7 == 2:
            size = read()
            first, pos = pos, pos + size
        else:
            pos += {1: 8, 5: 4}[tag & 7]
        result.append((tag, payload[first:pos]))
    return result


UNKNOWN = (
    b"\x80\x01\x05",  # field 16, varint
    b"\xf2\xff\xff\xff\x0f\x02hi",  # a large field number
    b"\x7d\x01\x02\x03\x04",  # field 15, fixed32
    b"\x7a\x02\xff\xfe",  # field 15, bytes
    b"\x7b\x08\x01\x7c",  # field 15, group
    b"\x0d\x01\x02\x03\x04",  # field 1 of another wire type
    b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # field 2, ten bytes
    b"\x38\x01",  # field 7, varint
)


def reencoded(payload: bytes, descriptor: Descriptor, random: Random, rate: float) -> bytes:
    """The message in another legal encoding: order, repetition, packing, lengths, unknown fields."""
    parts = []
    for tag, content in fields(payload):
        field: FieldDescriptor | None = descriptor.fields_by_number.get(tag >> 3)
        if tag & 7 == 2 and field is not None and field.message_type is not None:
            content = reencoded(content, field.message_type, random, rate)  # noqa: PLW2901  # the same, nested
        if tag & 7 == 2:
            unpacked = field is not None and field.message_type is None and field.is_packed and random.random() < rate
            if unpacked and field is not None and field.type in (field.TYPE_FIXED64, field.TYPE_DOUBLE):
                parts += [varint(tag - 1) + content[i : i + 8] for i in range(0, len(content), 8)]
                continue
            parts.append(
                varint(tag, random if random.random() < rate else None) + varint(len(content), random) + content
            )
        else:
            parts.append(varint(tag) + content)
        if random.random() < rate / 4:
            parts.append(parts[-1])
    if random.random() < rate:
        parts.insert(random.randrange(len(parts) + 1), random.choice(UNKNOWN))
    if random.random() < rate:
        random.shuffle(parts)
    return b"".join(parts)


def damaged(payload: bytes, other: bytes, random: Random) -> bytes:
    """The payload with a few bytes changed, removed, added or taken from another one."""
    data = bytearray(payload)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        choice = random.randrange(8)
        if choice == 0:
            del data[at:]
        elif choice == 1:
            del data[at : at + random.randrange(1, 6)]
        elif choice == 2:
            data[at:at] = random.randbytes(random.randrange(1, 4))
        elif choice == 3:
            start = random.randrange(len(other) + 1)
            data[at : at + random.randrange(20)] = other[start : start + random.randrange(20)]
        elif choice == 4 and at < len(data):
            data[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 0x0A, 0x12, 0x3A, 0x0B, 0x0C, 0xC0, 0xED, 0xF4))
        elif choice == 5 and at < len(data):
            data[at] = (data[at] + random.choice((-2, -1, 1, 2, 8))) % 256
        elif at < len(data):
            data[at] ^= 1 << random.randrange(8)
    return bytes(data)


def mutated_payloads(count: int, seed: int) -> list[bytes]:
    """Payloads of captures and of all kinds of messages; two thirds are damaged, half are reencoded."""
    random = Random(seed)
    small = [payload for payload in captured().to_pylist() if 0 < len(payload) < 3000]
    descriptor = pb.MetricsData.DESCRIPTOR
    result: list[bytes] = []
    while len(result) < count:
        is_captured = random.random() < 0.1
        payload = random.choice(small) if is_captured else metrics_data(random).SerializeToString()
        if random.random() < 0.5:
            payload = reencoded(payload, descriptor, random, random.choice((0.01, 0.1)))
        for _ in range(3):
            whole = random.random() < 0.33
            result.append(payload if whole else damaged(payload, result[-1] if result else b"", random))
    return result[:count]
