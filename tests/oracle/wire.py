"""Points as MetricsData payloads (opentelemetry-proto), and pushes as rows of table `pushes`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from tests.oracle.model import Attributes, Distribution, Point, Push

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def payload(points: Sequence[Point], resource: Attributes = (), one_by_one: bool = False) -> bytes:
    """MetricsData in the order of `points`; `one_by_one`: a ResourceMetrics for each point, as Java does."""
    data = MetricsData()
    last: Point | None = None
    metric: Metric | None = None
    scope_metrics: ScopeMetrics | None = None
    if resource and not points:
        add_resource(data, resource)
    for point in points:
        if one_by_one or last is None or scope_metrics is None:
            scope_metrics = add_scope(add_resource(data, resource), point.scope)
            metric = None
        elif point.scope != last.scope:
            scope_metrics = add_scope(data.resource_metrics[-1], point.scope)
            metric = None
        if metric is None or metric_of(point) != metric_of(last):
            metric = add_metric(scope_metrics, point)
        add_point(metric, point)
        last = point
    return bytes(data.SerializeToString())


def add_resource(data: MetricsData, resource: Attributes) -> ResourceMetrics:
    resource_metrics = data.resource_metrics.add()
    if resource:
        resource_metrics.resource.attributes.extend(key_values(resource))
    return resource_metrics


def add_scope(resource_metrics: ResourceMetrics, scope: str | None) -> ScopeMetrics:
    scope_metrics = resource_metrics.scope_metrics.add()
    if scope is not None:
        scope_metrics.scope.name = scope
        scope_metrics.scope.version = "1"
    return scope_metrics


def metric_of(point: Point | None) -> tuple[object, ...]:
    return () if point is None else (point.metric, point.kind, point.temporality, point.is_monotonic)


def add_metric(scope_metrics: ScopeMetrics, point: Point) -> Metric:
    metric = scope_metrics.metrics.add(name=point.metric)
    data = getattr(metric, point.kind)
    data.SetInParent()
    if point.kind not in ("gauge", "summary"):
        data.aggregation_temporality = point.temporality
    if point.kind == "sum":
        data.is_monotonic = point.is_monotonic
    return metric


def add_point(metric: Metric, point: Point) -> None:
    target = getattr(metric, point.kind).data_points.add(
        start_time_unix_nano=point.start_ns,
        time_unix_nano=point.time_ns,
        flags=point.flags,
        attributes=key_values(point.attributes),
    )
    if isinstance(point.number, int):
        target.as_int = point.number
    elif point.number is not None:
        target.as_double = point.number
    if point.distribution is not None:
        fill(target, point.kind, point.distribution)


def fill(target: Any, kind: str, d: Distribution) -> None:
    target.count = d.count
    for name in ("sum", "min", "max"):
        value = getattr(d, name)
        if value is not None and not (kind == "summary" and name != "sum"):
            setattr(target, name, value)
    if kind == "histogram":
        target.explicit_bounds.extend(d.bounds)
        target.bucket_counts.extend(d.buckets)
    elif kind == "exponential_histogram":
        target.scale, target.zero_count, target.zero_threshold = d.scale, d.zero_count, d.zero_threshold
        target.positive.offset, target.negative.offset = d.positive_offset, d.negative_offset
        target.positive.bucket_counts.extend(d.positive)
        target.negative.bucket_counts.extend(d.negative)
    else:
        for quantile, value in d.quantiles:
            target.quantile_values.add(quantile=quantile, value=value)


def key_values(attributes: Attributes) -> list[KeyValue]:
    pairs = []
    for key, value in attributes:
        pair = KeyValue(key=key)
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value
        pairs.append(pair)
    return pairs


def landed(push: Push) -> dict[str, Any]:
    """The push as a row of table `pushes`, uncompressed."""
    return {
        "source": push.source,
        "cluster_id": push.cluster_id,
        "topic": push.topic,
        "partition": push.partition,
        "offset": push.offset,
        "landed_at": EPOCH + timedelta(microseconds=push.landed_at_us),
        "client_instance_id": push.client_instance_id,
        "client_id": push.client_id,
        "terminating": push.terminating,
        "compression_type": "none",
        "push_interval_ms": 1000,
        "payload": push.payload,
    }
