"""What is in a push: its points, as far as rules are about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafka_telemetry_lake.sandbox.conformance.wire import Push
from kafka_telemetry_lake.udfs.conversion.compression import decompress

_TEMPORALITY = ("UNSPECIFIED", "DELTA", "CUMULATIVE")


@dataclass(frozen=True)
class Point:
    """A number; ``temporality`` is None for one that isn't of a sum, ``attributes`` are as text, in their order."""

    name: str
    attributes: str
    temporality: str | None
    value: float

    @property
    def series(self) -> tuple[str, str]:
        """What it is a number of: name and attributes."""
        return self.name, self.attributes


@dataclass(frozen=True)
class Content:
    """A push, decompressed and decoded.

    Attributes:
        resource: keys of the resource's attributes.
        problem: why it can't be read, in which case it has no points; None: it can.
    """

    points: tuple[Point, ...] = ()
    resource: frozenset[str] = frozenset()
    problem: str | None = None

    def sums(self) -> Iterator[Point]:
        return (point for point in self.points if point.temporality is not None)


@lru_cache(maxsize=1000)
def content(push: Push) -> Content:
    """What a push holds; of other kinds of metrics than gauges and sums nothing."""
    plain = decompress(pa.array([push.metrics]), pa.array([str(push.codec)]))
    data = plain.data[0].as_py()
    if data is None:
        return Content(problem=f"{plain.reason[0].as_py()}, {plain.detail[0].as_py()}")
    try:
        message = MetricsData.FromString(data)
    except DecodeError as error:
        return Content(problem=str(error))
    resource = {item.key for each in message.resource_metrics for item in each.resource.attributes}
    metrics = [metric for each in message.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
    points = []
    for metric in metrics:
        is_sum = metric.HasField("sum")
        temporality = _TEMPORALITY[metric.sum.aggregation_temporality] if is_sum else None
        for point in (metric.sum if is_sum else metric.gauge).data_points:
            value = point.as_double if point.HasField("as_double") else float(point.as_int)
            points.append(Point(metric.name, str(point.attributes), temporality, value))
    return Content(tuple(points), frozenset(resource))
