"""What has landed, read as any other Kafka consumer would."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import zstandard
from confluent_kafka import Consumer, Message, TopicPartition
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tests.support.patience import PATIENCE_S

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Push:
    key: str
    headers: dict[str, str]
    value: bytes

    @property
    def payload(self) -> bytes:
        """The metrics bytes; of the receiver's codecs only its default is read."""
        codec = self.headers["compression_type"]
        assert codec in ("none", "zstd")
        if codec == "none":
            return self.value
        return zstandard.ZstdDecompressor().decompressobj().decompress(self.value)  # a client's frame states no size

    @property
    def client_id(self) -> str:
        return self.headers["client_id"]

    @property
    def client_instance_id(self) -> str:
        return self.headers["client_instance_id"]

    @property
    def terminating(self) -> bool:
        return self.headers["terminating"] == "true"

    def metrics(self) -> list[pb.Metric]:
        data = pb.MetricsData.FromString(self.payload)
        return [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]


class Landing:
    """The pushes on ``client-telemetry`` since this object was made."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "landing", "enable.metrics.push": False}
        )
        topic = "client-telemetry"
        partitions = [TopicPartition(topic, p) for p in self._consumer.list_topics(topic).topics[topic].partitions]
        for partition in partitions:
            partition.offset = self._consumer.get_watermark_offsets(partition)[1]
        self._consumer.assign(partitions)
        self._pushes: list[Push] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def pushes(self, client_id: str) -> list[Push]:
        """All that has landed so far, per client instance in the order of landing."""
        while messages := self._consumer.consume(1000, 0.1):
            self._pushes += map(_push, messages)
        return [push for push in self._pushes if push.client_id == client_id]

    def wait(self, client_id: str, enough: Callable[[list[Push]], bool]) -> list[Push]:
        deadline = time.monotonic() + PATIENCE_S
        while not enough(pushes := self.pushes(client_id)):
            problem = f"{client_id}: {len(pushes)} pushes in {PATIENCE_S:.0f} s are not enough"
            assert time.monotonic() < deadline, problem
        return pushes

    def wait_for_more(self, client_id: str, more: int) -> list[Push]:
        """All pushes, as soon as there are ``more`` than now."""
        before = len(self.pushes(client_id))
        return self.wait(client_id, lambda pushes: len(pushes) >= before + more)


def _push(message: Message) -> Push:
    key, value, headers = message.key(), message.value(), message.headers()
    assert message.error() is None
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    assert isinstance(headers, list)
    texts = {name: text.decode() for name, text in headers if isinstance(text, bytes)}
    return Push(key.decode(), texts, value)


def delta_totals(pushes: list[Push]) -> dict[Series, float]:
    """The sum of the deltas of each series: its name with its attributes as texts."""
    totals: dict[Series, float] = defaultdict(float)
    for push in pushes:
        for metric in push.metrics():
            if metric.HasField("sum"):
                assert metric.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
                for point in metric.sum.data_points:
                    attributes = frozenset((a.key, _text(a.value)) for a in point.attributes)
                    totals[metric.name, attributes] += _number(point)
    return dict(totals)


def largest(pushes: list[Push], name: str) -> float:
    """The largest value of a gauge over all pushes, NaN apart."""
    points = [p for push in pushes for m in push.metrics() if m.name == name for p in m.gauge.data_points]
    return max(value for value in map(_number, points) if not math.isnan(value))


def _number(point: pb.NumberDataPoint) -> float:
    return float(point.as_int) if point.HasField("as_int") else point.as_double


def _text(value: AnyValue) -> str:
    return str(value.int_value) if value.HasField("int_value") else value.string_value
