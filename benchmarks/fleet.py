"""A fleet of synthetic clients: captured pushes under any number of instance ids, with consistent times.

A captured payload is a template. The positions of its times, temporalities and counter values are determined in
advance, and each push is the template with these bytes replaced. A client always uses the same template, so its series
stay the same from push to push, a DELTA push starts where the previous one ended, and a cumulative counter grows.
Kafka's clients push no histograms: their templates are those of `benchmarks.corpora`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import snappy
import zstandard

from benchmarks.corpora import LANDED, captured, exponential_histograms, histograms

DELTA, CUMULATIVE = 1, 2
NANOS = 1_000_000_000
STEP = 7  # growth of a cumulative counter from push to push
INSTANCES = 200  # of an application
PRINCIPALS = 100
MIN_POINTS, MAX_POINTS = 8, 250

Places = npt.NDArray[np.int64]

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "zstd": zstandard.ZstdCompressor().compress,
    "lz4": lz4.frame.compress,
    "gzip": lambda payload: gzip.compress(payload, 6, mtime=0),
    "snappy": snappy.compress,
}


@dataclass(frozen=True)
class Template:
    """A payload and the offsets of its variable parts; all but `temporalities` are 8 bytes, little-endian."""

    payload: npt.NDArray[np.uint8]
    points: int
    starts: Places
    times: Places
    temporalities: Places  # one-byte varints
    doubles: Places  # values of monotonic sums; sums of histograms
    ints: Places  # values of monotonic sums; of a histogram, its count and the count of one bucket
    software: str
    version: str
    client_id: str

    def push(self, start_ns: int, time_ns: int, temporality: int, pushes_before: int) -> bytes:
        """The payload of a push over (start_ns, time_ns]; a cumulative one has grown by `pushes_before` steps."""
        data = self.payload.copy()
        _write(data, self.starts, np.array([start_ns], np.int64))
        _write(data, self.times, np.array([time_ns], np.int64))
        data[self.temporalities] = temporality
        if temporality == CUMULATIVE:
            grown = pushes_before * STEP
            _write(data, self.doubles, _read(data, self.doubles, np.float64) + grown)
            _write(data, self.ints, _read(data, self.ints, np.int64) + grown)
        return data.tobytes()


@dataclass(frozen=True)
class Landing:
    """The content of a landing record of the fleet."""

    client_instance_id: str
    landed_ms: int
    payload: bytes
    points: int
    headers: list[tuple[str, bytes]]


class Fleet:
    """`clients` instances, each pushing every `interval_s`, evenly spread; share `cumulative` of them sends totals.

    The same arguments give the same pushes. `first_ms` is the landing time of the first push; push n lands
    n / clients intervals later.

    Args:
        codecs: of the payloads, in turn by the instances of an application.
        templates: those of the captured pushes, if none are given.
        instances: of an application; those of one application push the same metrics.
        first_client: number of the first client, so that two fleets can have different instance ids.
    """

    def __init__(
        self,
        clients: int,
        first_ms: int,
        interval_s: float = 300,
        cumulative: float = 0.2,
        *,
        codecs: Sequence[str] = ("none",),
        templates: Sequence[Template] | None = None,
        instances: int = INSTANCES,
        first_client: int = 0,
    ) -> None:
        self.clients = clients
        self.interval_ns = int(interval_s * NANOS)
        self.first_ns = first_ms * 1_000_000
        self.codecs = codecs
        self.templates = templates or captured_templates()
        self._totals_every = round(1 / cumulative) if cumulative else 0
        self._applications = -(-clients // instances)
        self._first_client = first_client

    def landings(self, first: int, last: int) -> Iterator[Landing]:
        """Pushes number `first` to `last` - 1 of the fleet, in the order of landing."""
        for number in range(first, last):
            yield self.landing(number)

    def landing(self, push: int) -> Landing:
        turn, client = divmod(push, self.clients)
        application = client % self._applications  # whose instances are spread over the interval
        template = self.templates[application % len(self.templates)]
        is_total = self._totals_every and application % self._totals_every == 0
        landed_ns = self.first_ns + push * self.interval_ns // self.clients
        born_ns = self.first_ns + client * self.interval_ns // self.clients - self.interval_ns
        payload = template.push(
            born_ns if is_total else landed_ns - self.interval_ns, landed_ns, CUMULATIVE if is_total else DELTA, turn
        )
        codec = self.codecs[client // self._applications % len(self.codecs)]
        payload = COMPRESS[codec](payload)
        number = self._first_client + client
        headers = self._headers(application, number, codec, len(payload))
        return Landing(instance_id(number), landed_ns // 1_000_000, payload, template.points, headers)

    def _headers(self, application: int, client: int, codec: str, size: int) -> list[tuple[str, bytes]]:
        template = self.templates[application % len(self.templates)]
        texts = {
            "record_version": "1",
            "client_instance_id": instance_id(client),
            "client_id": f"{template.client_id}-{application}",
            "terminating": "false",
            "content_type": "OTLP",
            "compression_type": codec,
            "push_interval_ms": str(self.interval_ns // 1_000_000),
            # Fleets of other sizes have the same instances, and an instance belongs to one principal.
            "principal": f"User:team-{client % PRINCIPALS}",
            "listener": "PLAINTEXT",
            "security_protocol": "PLAINTEXT",
            "client_address": f"10.{client >> 16 & 255}.{client >> 8 & 255}.{client & 255}",
            "client_software_name": template.software,
            "client_software_version": template.version,
            "broker_id": str(client % 3 + 1),
            "cluster_id": "benchmark",
            "payload_bytes": str(size),
        }
        return [(name, text.encode()) for name, text in texts.items()]


def instance_id(client: int) -> str:
    """22 characters of URL-safe base64, as Kafka prints a Uuid."""
    return base64.urlsafe_b64encode(hashlib.blake2b(client.to_bytes(8, "little"), digest_size=16).digest())[
        :22
    ].decode()


@cache
def captured_templates() -> list[Template]:
    """One push of each captured client with about 100 points per push (`MIN_POINTS` to `MAX_POINTS`)."""
    landed = pq.read_table(LANDED, columns=["headers"])["headers"].to_pylist()
    chosen: dict[str, Template] = {}
    for headers, payload in zip(landed, captured().to_pylist(), strict=True):
        texts = {header["key"]: (header["value"] or b"").decode() for header in headers}
        template = _template(payload, texts)
        if MIN_POINTS <= template.points <= MAX_POINTS:
            chosen[texts["client_instance_id"]] = template
    return list(chosen.values())


@cache
def histogram_templates() -> list[Template]:
    """Pushes of 50 histograms and pushes of 50 exponential histograms, in turn."""
    pairs = zip(histograms(20).to_pylist(), exponential_histograms(20).to_pylist(), strict=True)
    about = {"client_software_name": "otel-sdk", "client_software_version": "1.0", "client_id": "histograms"}
    return [_template(payload, about) for pair in pairs for payload in pair]


def _template(payload: bytes, texts: dict[str, str]) -> Template:
    offsets: dict[str, list[int]] = {name: [] for name in ("starts", "times", "temporalities", "doubles", "ints")}
    points = 0
    for resource_metrics in _children(payload, 0, len(payload), 1):
        for scope_metrics in _children(payload, *resource_metrics, 2):
            for metric in _children(payload, *scope_metrics, 2):
                for field, wire, at, end in _fields(payload, *metric):
                    if wire == 2 and field in DATA_KINDS:
                        points += _collect(payload, at, end, field, offsets)
    return Template(
        np.frombuffer(payload, np.uint8),
        points,
        **{name: np.array(places, np.int64) for name, places in offsets.items()},
        software=texts.get("client_software_name", ""),
        version=texts.get("client_software_version", ""),
        client_id=texts.get("client_id", ""),
    )


SUM, HISTOGRAM, EXPONENTIAL = 7, 9, 10
DATA_KINDS = (5, SUM, HISTOGRAM, EXPONENTIAL, 11)  # Metric.gauge, sum, histogram, exponential_histogram, summary
# Fields of a point that grow together: a sum's value; a histogram's count, sum and first bucket; an exponential
# histogram's count and zero_count.
DOUBLES = {SUM: (4,), HISTOGRAM: (5,), EXPONENTIAL: ()}
INTS = {SUM: (6,), HISTOGRAM: (4, 6), EXPONENTIAL: (4, 7)}


def _collect(payload: bytes, at: int, end: int, kind: int, offsets: dict[str, list[int]]) -> int:
    """Add the offsets inside one Metric.data; returns its number of points."""
    fields = list(_fields(payload, at, end))
    is_monotonic = any(field == 3 and payload[place] for field, wire, place, _ in fields if wire == 0)
    growing = kind if kind in (HISTOGRAM, EXPONENTIAL) or (kind == SUM and is_monotonic) else 0
    offsets["temporalities"] += [place for field, wire, place, _ in fields if field == 2 and wire == 0]
    points = [(place, stop) for field, wire, place, stop in fields if field == 1 and wire == 2]
    for point in points:
        for field, wire, place, _ in _fields(payload, *point):
            if wire == 1 and field in (2, 3):
                offsets["starts" if field == 2 else "times"].append(place)
            elif field in DOUBLES.get(growing, ()):
                offsets["doubles"].append(place)
            elif field in INTS.get(growing, ()):
                offsets["ints"].append(place)
    return len(points)


def _children(payload: bytes, at: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    return ((place, stop) for field, wire, place, stop in _fields(payload, at, end) if field == number and wire == 2)


def _fields(payload: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, start and end of the value of each field of a message, which must be valid."""
    while at < end:
        key, at = _varint(payload, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            _, stop = _varint(payload, at)
        elif wire == 2:
            length, at = _varint(payload, at)
            stop = at + length
        else:
            stop = at + (8 if wire == 1 else 4)
        yield field, wire, at, stop
        at = stop


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = payload[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _write(data: npt.NDArray[np.uint8], places: Places, values: npt.NDArray[np.generic]) -> None:
    data[places[:, None] + np.arange(8)] = values.view(np.uint8).reshape(-1, 8)


def _read(data: npt.NDArray[np.uint8], places: Places, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    return np.ascontiguousarray(data[places[:, None] + np.arange(8)]).view(kind).reshape(-1)


def describe() -> dict[str, float]:
    """Statistics of the fleet's pushes, for the benchmark's report."""
    chosen = captured_templates()
    return {
        "templates": len(chosen),
        "points_per_push": round(sum(each.points for each in chosen) / len(chosen), 1),
        "bytes_per_push": round(sum(len(each.payload) for each in chosen) / len(chosen)),
    }
