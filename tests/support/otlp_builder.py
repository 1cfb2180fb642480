"""Payloads and pushes for tests, of opentelemetry-proto's messages. Times are seconds after `T0`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kafka_telemetry_lake.udfs.conversion.shard import ShardRows, process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

T0 = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
T0_NS = int(T0.timestamp()) * 1_000_000_000
UNSPECIFIED, DELTA, CUMULATIVE = 0, 1, 2
Temporality = Any  # one of them, or a number that the enum lacks
CLIENT = "jHecHqLPQj2rnaP7QRzrmg"
OTHER_CLIENT = "pjXftqdsQJioN8NYDF8OQg"

Attributes = dict[str, Any] | Sequence[tuple[str, Any]]


def ns(seconds: float | None) -> int:
    """Nanoseconds since 1970 of a time in seconds after T0; None is the wire's 0."""
    return 0 if seconds is None else T0_NS + round(seconds * 1_000_000_000)


def at(seconds: float) -> datetime:
    """The timestamp that a row has for `seconds` after T0."""
    return T0 + timedelta(seconds=seconds)


def any_value(value: Any) -> AnyValue:
    """An AnyValue of a bool, int, float or text."""
    names = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
    return AnyValue(**{names[type(value)]: value})


def key_values(attributes: Attributes) -> list[KeyValue]:
    """KeyValue messages, in order; a list of pairs may repeat a key."""
    pairs = attributes.items() if isinstance(attributes, dict) else attributes
    return [KeyValue(key=key, value=any_value(value)) for key, value in pairs]


def number(
    value: float | None, start: float | None, time: float | None, attributes: Attributes = (), flags: int = 0
) -> Any:
    """A NumberDataPoint; an int becomes as_int, a float as_double, None leaves the value out."""
    point = pb.NumberDataPoint(
        start_time_unix_nano=ns(start),
        time_unix_nano=ns(time),
        attributes=key_values(attributes),
        flags=flags,
    )
    if isinstance(value, int):
        point.as_int = value
    elif value is not None:
        point.as_double = value
    return point


def counter(
    value: float | None,
    start: float | None,
    time: float | None,
    *,
    name: str = "requests.total",
    temporality: Temporality = CUMULATIVE,
    monotonic: bool = True,
    attributes: Attributes = (),
    flags: int = 0,
) -> pb.Metric:
    """A Sum with one point."""
    points = [number(value, start, time, attributes, flags)]
    data = pb.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)
    return pb.Metric(name=name, sum=data)


def delta(value: float | None, start: float | None, time: float | None, **options: Any) -> pb.Metric:
    """A DELTA Sum with one point."""
    return counter(value, start, time, temporality=DELTA, **options)


def gauge(
    value: float | None,
    time: float | None,
    *,
    start: float | None = None,
    name: str = "lag",
    attributes: Attributes = (),
) -> pb.Metric:
    """A Gauge with one point."""
    return pb.Metric(name=name, gauge=pb.Gauge(data_points=[number(value, start, time, attributes)]))


def histogram(
    counts: Sequence[int],
    start: float | None,
    time: float | None,
    *,
    bounds: Sequence[float] = (1.0, 2.0),
    count: int | None = None,
    total: float | None = None,
    temporality: Temporality = CUMULATIVE,
    name: str = "latency",
    flags: int = 0,
    low: float | None = None,
    high: float | None = None,
) -> pb.Metric:
    """A Histogram with one point; without `counts` and bounds it has a count and a sum only."""
    point = pb.HistogramDataPoint(
        start_time_unix_nano=ns(start),
        time_unix_nano=ns(time),
        count=sum(counts) if count is None else count,
        sum=total,
        min=low,
        max=high,
        bucket_counts=counts,
        explicit_bounds=bounds,
        flags=flags,
    )
    return pb.Metric(name=name, histogram=pb.Histogram(data_points=[point], aggregation_temporality=temporality))


def exponential(
    counts: Sequence[int],
    start: float | None,
    time: float | None,
    *,
    offset: int = 0,
    scale: int = 0,
    zero: int = 0,
    zero_threshold: float = 0.0,
    negative: Sequence[int] = (),
    negative_offset: int = 0,
    count: int | None = None,
    total: float | None = None,
    temporality: Temporality = CUMULATIVE,
    name: str = "size",
) -> pb.Metric:
    """An ExponentialHistogram with one point."""
    buckets = pb.ExponentialHistogramDataPoint.Buckets
    point = pb.ExponentialHistogramDataPoint(
        start_time_unix_nano=ns(start),
        time_unix_nano=ns(time),
        count=sum(counts) + sum(negative) + zero if count is None else count,
        sum=total,
        scale=scale,
        zero_count=zero,
        zero_threshold=zero_threshold,
        positive=buckets(offset=offset, bucket_counts=counts),
        negative=buckets(offset=negative_offset, bucket_counts=negative),
    )
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=temporality)
    return pb.Metric(name=name, exponential_histogram=data)


def summary(
    count: int, total: float, time: float | None, quantiles: dict[float, float], *, name: str = "rtt"
) -> pb.Metric:
    """A Summary with one point."""
    values = [pb.SummaryDataPoint.ValueAtQuantile(quantile=q, value=value) for q, value in quantiles.items()]
    point = pb.SummaryDataPoint(time_unix_nano=ns(time), count=count, sum=total, quantile_values=values)
    return pb.Metric(name=name, summary=pb.Summary(data_points=[point]))


def payload(*metrics: pb.Metric, scope: str | None = None, resource: Attributes = ()) -> bytes:
    """MetricsData of one resource and scope."""
    scoped = pb.ScopeMetrics(metrics=metrics, scope=None if scope is None else InstrumentationScope(name=scope))
    described = Resource(attributes=key_values(resource)) if resource else None
    return pb.MetricsData(
        resource_metrics=[pb.ResourceMetrics(resource=described, scope_metrics=[scoped])]
    ).SerializeToString()


def push(
    offset: int,
    *metrics: pb.Metric,
    landed: float | None = None,
    scope: str | None = None,
    resource: Attributes = (),
    **columns: Any,
) -> dict[str, Any]:
    """A row of PUSHES_IN; by default it lands `offset` seconds after T0."""
    row = {
        "source": "kafka",
        "cluster_id": "cluster",
        "topic": "client-telemetry",
        "partition": 0,
        "offset": offset,
        "landed_at": at(offset if landed is None else landed),
        "client_instance_id": CLIENT,
        "client_id": "client",
        "terminating": False,
        "compression_type": "none",
        "push_interval_ms": 1000,
        "payload": payload(*metrics, scope=scope, resource=resource) if metrics else b"",
    }
    return row | columns


def table(pushes: Sequence[dict[str, Any]]) -> pa.Table:
    """The pushes as the operator takes them."""
    return pa.Table.from_pylist(list(pushes), PUSHES_IN)


class Shard:
    """A shard and its state: each call of `run` is a micro-batch."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.state = ShardState.empty()

    def run(self, *pushes: dict[str, Any]) -> ShardRows:
        """Process one micro-batch; the state goes through its bytes, as between real batches."""
        rows, state = process(table(pushes), self.state, self.limits)
        self.state = ShardState.from_bytes(state.to_bytes())
        return rows

    def points(self, *pushes: dict[str, Any]) -> list[dict[str, Any]]:
        """Rows of metric_points of one micro-batch."""
        rows: list[dict[str, Any]] = self.run(*pushes).metric_points.to_pylist()
        return rows

    def one(self, *pushes: dict[str, Any]) -> dict[str, Any]:
        """The only row of metric_points of one micro-batch."""
        (row,) = self.points(*pushes)
        return row


def values_of(rows: Sequence[dict[str, Any]], *names: str) -> list[Any]:
    """The named columns of rows: values for one name, else tuples."""
    return [row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) for row in rows]
