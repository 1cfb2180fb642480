"""The hostile clients' pushes: each way of attack makes pushes without end. Their clock starts with this process."""

from __future__ import annotations

import gzip
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import lz4.frame
import snappy
import zstandard
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from benchmarks.soak_extremes import (
    Push,
    Pushes,
    costliest_pushes,
    extreme_headers,
    extreme_samples,
    extreme_statuses,
)
from tests.support.landing_records import captured
from tests.support.ledger import CUMULATIVE, START

BEGAN_NS = time.monotonic_ns()
MIB = 1 << 20
CAP = MIB - 4096  # telemetry.max.bytes is 1 MiB; the rest is for the message around it
NAMES = 1_000_000


def random_bytes(chance: random.Random) -> Pushes:
    while True:
        yield Push(
            chance.randbytes(chance.randrange(1, 4000)), chance.choice(["none", "gzip", "snappy", "lz4", "zstd"])
        )


def mutated_pushes(chance: random.Random) -> Pushes:
    """Pushes of real clients with a few bytes changed, cut or repeated."""
    payloads = [value for value in captured()["value"].to_pylist() if value]
    while True:
        payload = bytearray(chance.choice(payloads))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(payload))
            payload[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        yield Push(bytes(payload))


def payloads_at_the_cap(chance: random.Random) -> Pushes:
    """As many points as fit into 1 MiB, each of 2 to 20 bytes."""
    empty = pb.NumberDataPoint().SerializeToString()
    least = b"\x0a" + bytes([len(empty)]) + empty
    while True:
        gauge = least * ((CAP - 64) // len(least))
        yield Push(_nested(gauge))
        points = [_number(chance.randrange(1 << 30)) for _ in range(20_000)]
        yield Push(_payload(pb.Metric(name="at.the.cap", gauge=pb.Gauge(data_points=points))))


def headers_of_a_mebibyte(chance: random.Random) -> Pushes:
    while True:
        junk = chance.randbytes(MIB // 2).hex().encode()
        yield Push(_payload(_sum("app.total", 1)), headers=(("client_software_name", junk),))
        yield Push(_payload(_sum("app.total", 1)), headers=(("x-junk", junk),))


def labels_of_a_mebibyte(chance: random.Random) -> Pushes:
    while True:
        label = KeyValue(key="team", value=AnyValue(string_value=chance.randbytes(CAP // 2).hex()[: CAP - 200]))
        yield Push(_payload(_sum("app.total", 1), resource=Resource(attributes=[label])))
        many = [KeyValue(key=f"label.{n}", value=AnyValue(string_value="x")) for n in range(50_000)]
        yield Push(_payload(_sum("app.total", 1), resource=Resource(attributes=many)))


def texts_of_a_mebibyte(chance: random.Random) -> Pushes:
    """Metric names and attribute values."""
    while True:
        text = chance.randbytes(CAP // 2).hex()[: CAP - 200]
        yield Push(_payload(_sum(text, 1)))
        yield Push(_payload(_sum("app.total", 1, topic=text)))


def made_up_names(chance: random.Random) -> Pushes:
    """A million metric names from one client, each a separate counter, repeated without end."""
    for first in itertools.cycle(range(0, NAMES, 10_000)):
        yield Push(_payload(*[_sum(f"made.up.{n}.total", chance.randrange(9)) for n in range(first, first + 10_000)]))


def attribute_sets(chance: random.Random) -> Pushes:
    """New attribute sets without end, 100,000 in far less than a minute."""
    for first in itertools.count(0, 5_000):
        yield Push(_payload(*[_sum("app.total", 1, request=f"{first + n}-{chance.random()}") for n in range(5_000)]))


def bomb(codec: str) -> Callable[[random.Random], Pushes]:
    """Alternate between up to 64 MiB of zeros and the maximum number of points in as few bytes as possible."""
    packs: dict[str, Callable[[bytes], bytes]] = {
        "gzip": lambda raw: gzip.compress(raw, 9, mtime=0),
        "snappy": snappy.compress,
        "lz4": lz4.frame.compress,
        "zstd": zstandard.ZstdCompressor(level=9).compress,
    }
    pack = packs[codec]

    def pushes(_: random.Random) -> Pushes:
        nothing = next(each for each in (pack(bytes(size * MIB)) for size in (64, 17)) if len(each) < CAP)
        points = pack(_payload(pb.Metric(name="bomb", gauge=pb.Gauge(data_points=[_number(1)] * 100_000))))
        return itertools.cycle([Push(nothing, codec), Push(points, codec)])

    return pushes


# Attacks, each with the number of its pushes in every round.
WAYS: dict[str, tuple[Callable[[random.Random], Pushes], int]] = {
    "random bytes": (random_bytes, 60),
    "mutated pushes": (mutated_pushes, 60),
    "payloads at the cap": (payloads_at_the_cap, 1),
    "headers of 1 MiB": (headers_of_a_mebibyte, 2),
    "labels of 1 MiB": (labels_of_a_mebibyte, 2),
    "texts of 1 MiB": (texts_of_a_mebibyte, 2),
    "a million metric names": (made_up_names, 4),
    "attribute sets": (attribute_sets, 4),
    **{f"{codec} bomb": (bomb(codec), 2) for codec in ("gzip", "snappy", "lz4", "zstd")},
    "finds of the search": (costliest_pushes, 6),
    "extreme headers": (extreme_headers, 20),
    "extreme statuses": (extreme_statuses, 4),
    "extreme quota samples": (extreme_samples, 4),
}


def now_ns() -> int:
    """The time on the fleet's clock, which starts with this process."""
    return round(START.timestamp()) * 1_000_000_000 + time.monotonic_ns() - BEGAN_NS


def _number(value: int, attributes: tuple[KeyValue, ...] = ()) -> pb.NumberDataPoint:
    at = now_ns()
    return pb.NumberDataPoint(start_time_unix_nano=at - 1, time_unix_nano=at, as_int=value, attributes=attributes)


def _sum(name: str, value: int, **attributes: str) -> pb.Metric:
    cumulative: Any = CUMULATIVE
    pairs = tuple(KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in attributes.items())
    data = pb.Sum(data_points=[_number(value, pairs)], aggregation_temporality=cumulative, is_monotonic=True)
    return pb.Metric(name=name, sum=data)


def _payload(*metrics: pb.Metric, resource: Resource | None = None) -> bytes:
    content = pb.ResourceMetrics(resource=resource, scope_metrics=[pb.ScopeMetrics(metrics=metrics)])
    return pb.MetricsData(resource_metrics=[content]).SerializeToString()


def _nested(points: bytes) -> bytes:
    """A push whose gauge has these encoded points."""
    gauge = pb.Gauge.FromString(points)
    return _payload(pb.Metric(name="least", gauge=gauge))
