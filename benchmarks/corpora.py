"""Payloads for benchmarks: lists of uncompressed MetricsData messages.

All synthetic values come from fixed seeds. Names, attributes and times look like those of Kafka clients.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.udfs.conversion.compression import decompress

LANDED = Path(__file__).parent.parent / "sandbox" / "data" / "captured" / "landed.parquet"
START_NS = 1_795_262_781_047_000_000
CUMULATIVE = 2


@cache
def captured() -> pa.LargeBinaryArray:
    """1,415 pushes of real clients, decompressed: 157,260 data points, 198 bytes each."""
    landed = pq.read_table(LANDED)
    types = [
        next((header["value"].decode() for header in headers if header["key"] == "compression_type"), None)
        for headers in landed["headers"].to_pylist()
    ]
    result = decompress(landed["value"].combine_chunks(), pa.array(types, pa.string()))
    if result.reason.null_count != len(landed):
        raise ValueError(f"{LANDED} has payloads that can't be decompressed")
    return result.data


def distinct(payloads: int = 10_000, points: int = 30) -> pa.LargeBinaryArray:
    """Payloads that each have their own resource and their own attribute set, which the points share."""
    names = [f"org.apache.kafka.producer.metric.number.{number}.total" for number in range(points)]

    def fill(index: int, metrics: Any, numbers: random.Random) -> None:
        attributes = texts(client_id=f"producer-{index:05d}", node_id=f"node-{index % 97}", topic=f"orders-{index}")
        for name in names:
            data = metrics.add(name=name).sum
            data.aggregation_temporality, data.is_monotonic = CUMULATIVE, True
            data.data_points.add(
                attributes=attributes, start_time_unix_nano=START_NS, time_unix_nano=START_NS + index,
                as_double=numbers.random() * 1e6,
            )  # fmt: skip

    return _corpus(payloads, fill)


def histograms(payloads: int = 1_000, points: int = 50, buckets: int = 16) -> pa.LargeBinaryArray:
    """Histograms with explicit bounds."""
    bounds = [float(2**exponent) for exponent in range(buckets - 1)]

    def fill(index: int, metrics: Any, numbers: random.Random) -> None:
        data = metrics.add(name="org.apache.kafka.producer.request.latency").histogram
        data.aggregation_temporality = CUMULATIVE
        for node in range(points):
            counts = [numbers.randrange(1000) for _ in range(buckets)]
            data.data_points.add(
                attributes=texts(client_id=f"producer-{index % 100}", node_id=f"node-{node}"),
                start_time_unix_nano=START_NS, time_unix_nano=START_NS + index, count=sum(counts),
                sum=numbers.random() * 1e6, min=0.5, max=1e5, explicit_bounds=bounds, bucket_counts=counts,
            )  # fmt: skip

    return _corpus(payloads, fill)


def exponential_histograms(payloads: int = 1_000, points: int = 50, buckets: int = 40) -> pa.LargeBinaryArray:
    """Exponential histograms with positive buckets."""

    def fill(index: int, metrics: Any, numbers: random.Random) -> None:
        data = metrics.add(name="org.apache.kafka.producer.request.latency").exponential_histogram
        data.aggregation_temporality = CUMULATIVE
        for node in range(points):
            counts = [numbers.randrange(1000) for _ in range(buckets)]
            point = data.data_points.add(
                attributes=texts(client_id=f"producer-{index % 100}", node_id=f"node-{node}"),
                start_time_unix_nano=START_NS, time_unix_nano=START_NS + index, count=sum(counts) + 3,
                sum=numbers.random() * 1e6, min=0.5, max=1e5, scale=3, zero_count=3,
            )  # fmt: skip
            point.positive.offset = -4
            point.positive.bucket_counts.extend(counts)

    return _corpus(payloads, fill)


def texts(**attributes: str) -> list[KeyValue]:
    """Attributes with text values."""
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]


def _corpus(payloads: int, fill: Callable[[int, Any, random.Random], None]) -> pa.LargeBinaryArray:
    numbers = random.Random(payloads)
    messages = []
    for index in range(payloads):
        data = pb.MetricsData()
        resource_metrics = data.resource_metrics.add()
        resource_metrics.resource.attributes.extend(
            texts(client_instance=f"{index:022d}", client_rack=f"rack-{index % 3}", **{"service.name": "orders"})
        )
        scope_metrics = resource_metrics.scope_metrics.add()
        scope_metrics.scope.name = "org.apache.kafka"
        fill(index, scope_metrics.metrics, numbers)
        messages.append(data.SerializeToString())
    return pa.array(messages, pa.large_binary())
