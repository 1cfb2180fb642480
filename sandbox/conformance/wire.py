"""The two telemetry requests of KIP-714 and their answers, version 0, and ApiVersions that offers them.

Frames are without their size. GetTelemetrySubscriptionsRequest.json and PushTelemetryRequest.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import (
    API_VERSIONS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    after_tags,
    varint,
)

NO_INSTANCE = bytes(16)
_FLEXIBLE_API_VERSIONS = 3


@dataclass(frozen=True)
class Subscription:
    """What a GetTelemetrySubscriptions answer tells a client.

    Attributes:
        metrics: prefixes of names; empty: none are asked for.
        codecs: accepted compression types, those preferred first: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        delta: temporality of sums: DELTA, else CUMULATIVE.
        max_bytes: of a push, as it is sent.
    """

    id: int
    interval_ms: int
    metrics: tuple[str, ...]
    codecs: tuple[int, ...] = (4, 3, 1, 2)
    delta: bool = True
    max_bytes: int = 1 << 20


@dataclass(frozen=True)
class Push:
    """A PushTelemetry request; ``metrics`` is MetricsData, compressed by ``codec`` (0: not at all)."""

    subscription_id: int
    terminating: bool
    codec: int
    metrics: bytes


def header(request: bytes) -> tuple[int, int, int]:
    """API key, version and correlation id."""
    key, version, correlation_id = struct.unpack_from(">hhi", request)
    return key, version, correlation_id


def asking_instance(request: bytes) -> bytes:
    """The client instance id, 16 bytes, of either telemetry request; all zero: it has none yet. Raises as `push_of`."""
    begin = _body(request)
    return _bytes(request, begin, 16, "the client instance id ends")


def push_of(request: bytes) -> Push:
    """Raises ``struct.error``, ``IndexError`` or ``ValueError`` for one that is cut off."""
    begin = _body(request) + 16
    subscription_id, terminating, codec = struct.unpack_from(">i?b", request, begin)
    size, begin = varint(request, begin + 6)
    return Push(subscription_id, terminating, codec, _bytes(request, begin, max(0, size - 1), "the metrics end"))


def software_of(request: bytes) -> tuple[str, str]:
    """Name and version of the client's software, of an ApiVersions request (KIP-511); empty before version 3.

    Raises:
        ValueError: it isn't UTF-8, or is cut off; or ``IndexError``.
    """
    key, version, _ = header(request)
    if key != API_VERSIONS or version < _FLEXIBLE_API_VERSIONS:
        return "", ""
    size, begin = varint(request, _body(request))
    name = _bytes(request, begin, size - 1, "the software's name ends").decode()
    size, begin = varint(request, begin + size - 1)
    return name, _bytes(request, begin, size - 1, "the software's version ends").decode()


def subscription_answer(correlation_id: int, instance: bytes, subscription: Subscription) -> bytes:
    """A GetTelemetrySubscriptions answer without an error."""
    codecs = struct.pack(f">{len(subscription.codecs)}b", *subscription.codecs)
    names = [name.encode() for name in subscription.metrics]
    return b"".join(
        [
            struct.pack(">ibih", correlation_id, 0, 0, 0),  # no tags, not throttled, no error
            instance,
            struct.pack(">i", subscription.id),
            unsigned(len(codecs) + 1),
            codecs,
            struct.pack(">ii?", subscription.interval_ms, subscription.max_bytes, subscription.delta),
            unsigned(len(names) + 1),
            *(unsigned(len(name) + 1) + name for name in names),
            b"\0",
        ]
    )


def push_answer(correlation_id: int, error: int) -> bytes:
    """A PushTelemetry answer with this error code of Kafka's; 0: none."""
    return struct.pack(">ibihb", correlation_id, 0, 0, error, 0)


def with_telemetry(answer: bytes, version: int) -> bytes:
    """An ApiVersions answer that offers both telemetry requests, in version 0, whether the broker does or not.

    Args:
        version: of the request. An answer with an error stays as it is: clients ask again with a lower version.
    """
    (error,) = struct.unpack_from(">h", answer, 4)
    if error:
        return answer
    flexible = version >= _FLEXIBLE_API_VERSIONS
    if flexible:
        count, begin = varint(answer, 6)
        count -= 1
    else:
        (count,), begin = struct.unpack_from(">i", answer, 6), 10
    end, offered = begin, set()
    for _ in range(count):
        offered.add(struct.unpack_from(">h", answer, end)[0])
        end = after_tags(answer, end + 6) if flexible else end + 6
    missing = sorted({GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY} - offered)
    added = b"".join(struct.pack(">hhh", key, 0, 0) + (b"\0" if flexible else b"") for key in missing)
    total = count + len(missing)
    size = unsigned(total + 1) if flexible else struct.pack(">i", total)
    return answer[:6] + size + answer[begin:end] + added + answer[end:]


def _body(request: bytes) -> int:
    """Where the body begins, after a header of version 2: the client id's length has two bytes even there."""
    (size,) = struct.unpack_from(">h", request, 8)
    return after_tags(request, 10 + max(0, size))


def _bytes(request: bytes, begin: int, size: int, what: str) -> bytes:
    found = request[begin : begin + size]
    if len(found) < size:
        raise ValueError(f"{what} after {len(found)} of {size} bytes")
    return found


def unsigned(number: int) -> bytes:
    """An unsigned varint of Kafka's protocol (KIP-482); `varint` reads it."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
