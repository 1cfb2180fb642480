"""How many bytes of a client's pushes each metric takes: seen in one of them, as libraries lay them out differently.

Java repeats the resource with its labels for each point, librdkafka has it once a push and describes each metric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

FIXED, POINT = 0.0, 60.0  # where no push could be read: bytes of a push, and of a point besides names and attributes


class PushLayout(NamedTuple):
    """Decompressed bytes."""

    push: float
    """of a push without points"""
    points: Mapping[str, float]
    """of a point of each metric, with its share of what is repeated for it"""
    repeats: bool = False
    """whether labels are repeated for each metric"""


UNSEEN = PushLayout(FIXED, {})


def layout(payload: bytes | None) -> PushLayout:
    """The layout of an uncompressed MetricsData message (metrics.proto); `UNSEEN` if it isn't one."""
    try:
        data = MetricsData.FromString(payload or b"")
    except DecodeError:
        return UNSEEN
    size: dict[str, float] = defaultdict(float)
    points: dict[str, int] = defaultdict(int)
    fixed, repeated = float(data.ByteSize()), len(data.resource_metrics) > 1
    for resource in data.resource_metrics:
        metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
        rest = _field(resource.ByteSize()) - sum(_field(metric.ByteSize()) for metric in metrics)
        shared = rest / len(metrics) if repeated and metrics else 0.0
        for metric in metrics:
            bytes_ = _field(metric.ByteSize()) + shared
            size[metric.name] += bytes_
            points[metric.name] += _points(metric)
            fixed -= bytes_
    return PushLayout(fixed, {name: size[name] / points[name] for name in size if points[name]}, repeated)


def _field(size: int) -> int:
    """Bytes of a message of this size with its tag and length."""
    return size + 1 + max(1, -(-size.bit_length() // 7))


def _points(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return len(getattr(metric, kind).data_points) if kind else 0
