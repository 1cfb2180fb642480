"""Payloads with a dimension of `limits.Limits` at its most, and what a slice of them costs.

python -m tests.support.largest_pushes <pushes> <dimension+dimension>...

prints bytes, CPU-seconds, peak bytes, what, outcomes.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.shard import process_parts
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS as L
from tests.support.otlp_builder import T0_NS, push, table
from tests.unit.otlp.otlp_mutations import varint

MOST = L.max_decompressed_bytes
T = b"\x19" + struct.pack("<Q", T0_NS)
VALUE = b"\x31" + bytes(8)


def field(tag: int, content: bytes) -> bytes:
    """A field of wire type 2."""
    return varint(tag) + varint(len(content)) + content


def metric(name: bytes, data: bytes) -> bytes:
    """MetricsData of one metric."""
    return field(0x0A, field(0x12, field(0x12, field(0x0A, name) + data)))


def points(count: int, content: bytes) -> bytes:
    """So many equal data points."""
    return field(0x0A, content) * count


def gauge(data_points: bytes, name: bytes = b"m") -> bytes:
    """MetricsData of one gauge."""
    return metric(name, field(0x2A, data_points))


def histogram_points(kind: str, items: int, count: int) -> bytes:
    """MetricsData of distributions with lists of so many items."""
    content = {
        "bounds": field(0x3A, bytes(8 * items)),
        "counts": field(0x32, bytes(8 * items)),
        "exponential": field(0x42, field(0x12, bytes(items))),
        "unpacked": field(0x42, b"\x10\x00" * items),
        "quantiles": field(0x32, b"") * items,
    }[kind]
    tag = {"bounds": 0x4A, "counts": 0x4A, "quantiles": 0x5A}.get(kind, 0x52)
    temporality = b"" if kind == "quantiles" else b"\x10\x02"
    return metric(b"h", field(tag, points(count, content + T) + temporality))


def _series() -> bytes:
    """Cumulative counters, each of its own name."""
    one = points(1, VALUE + T)
    return b"".join(
        field(0x12, field(0x0A, b"%x" % n) + field(0x3A, one + b"\x10\x02\x18\x01"))
        for n in range(L.max_points_per_push)
    )


def _attributes() -> bytes:
    """Lists of empty pairs, each with one that makes it differ."""
    lists = L.max_attributes_per_push // L.max_attributes
    empty = b"\x3a\x00" * (L.max_attributes - 1)
    return gauge(
        b"".join(points(1, empty + field(0x3A, field(0x0A, b"%x" % n)) + VALUE + T) for n in range(lists)),
        b"attributes",
    )


def _texts() -> bytes:
    """Attributes of the longest texts, all different."""
    longest = L.max_text_bytes - 16
    return gauge(
        b"".join(
            points(1, field(0x3A, field(0x0A, b"%012x" % n + b"k" * (longest - 12))) + VALUE + T) for n in range(200)
        ),
        b"texts",
    )


DIMENSIONS: dict[str, Callable[[], bytes]] = {
    "points": lambda: gauge(points(L.max_points_per_push, VALUE + T), b"p"),
    "untimed": lambda: gauge(points(2_000_000, b""), b"n" * 60_000),
    "rejected": lambda: gauge(points(L.max_points_per_push, T), b"n" * (L.max_text_bytes + 1)),
    "series": lambda: field(0x0A, field(0x12, _series())),
    "attributes": _attributes,
    "long lists": lambda: gauge(points(1, b"\x3a\x00" * 1_000_000 + T), b"long"),
    "buckets": lambda: histogram_points("exponential", L.max_buckets, L.max_buckets_per_push // L.max_buckets),
    "quantiles": lambda: histogram_points("quantiles", L.max_buckets, L.max_buckets_per_push // L.max_buckets // 2),
    "row texts": lambda: gauge(
        points(L.max_row_text_bytes // L.max_text_bytes - 40, VALUE + T), b"n" * (L.max_text_bytes - 16)
    ),
    "texts": _texts,
    "scopes": lambda: field(0x0A, field(0x12, b"") * 1_000_000),
    # 3 fields a point, in a form that only the reference decoder reads.
    "slow": lambda: b"\x7b\x7c" + gauge(points(L.max_reference_fields // 3 - 10, VALUE + T), b"slow"),
    "group": lambda: b"\x7b\x7c",
}


def together(names: tuple[str, ...]) -> bytes:
    """MetricsData with these dimensions."""
    return b"".join(DIMENSIONS[name]() for name in names)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def measured(copies: int, names: tuple[str, ...]) -> tuple[int, float, int, list[str]]:
    """Uncompressed bytes, CPU-seconds, peak bytes and outcomes of a slice of equal pushes."""
    payload = together(names)
    pushes = table([push(n, payload=payload, client_instance_id=f"client-{n}") for n in range(copies)])
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before, begun = _status("VmRSS"), time.process_time()
    outcomes: list[str] = []
    for rows, _, _ in process_parts(pushes, ShardState.empty()):
        outcomes += rows.push_outcomes["outcome"].to_pylist()
    seconds = time.process_time() - begun
    return len(payload) * copies, seconds, _status("VmHWM") - before, sorted(set(outcomes))


def main(copies: int, combinations: list[str]) -> None:
    """Measure combinations one after the other, after a warm-up."""
    list(process_parts(table([push(0, payload=gauge(points(1, VALUE + T)))]), ShardState.empty()))
    for names in combinations:
        size, seconds, peak, outcomes = measured(copies, tuple(names.split("+")))
        print(size, seconds, peak, names.replace(" ", "-"), *outcomes, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
