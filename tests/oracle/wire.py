"""Points as MetricsData payloads (opentelemetry-proto) and back, and pushes as rows of table `pushes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import DecodeError
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
    plain = {field.name: getattr(push, field.name) for field in fields(push)}
    names = plain.keys() - {"landed_at_us", "points", "resource"}
    at = EPOCH + timedelta(microseconds=push.landed_at_us)
    return {name: plain[name] for name in names} | {
        "landed_at": at,
        "compression_type": "none",
        "push_interval_ms": 1000,
    }


def points_of(payload: bytes) -> tuple[tuple[Point, ...], Attributes]:
    """The points of a payload with one resource at most, and the resource's attributes."""
    data, points = MetricsData.FromString(payload), list[Point]()
    for scope_metrics in (each for resource in data.resource_metrics for each in resource.scope_metrics):
        scope = scope_metrics.scope.name if scope_metrics.HasField("scope") else None
        for metric in scope_metrics.metrics:
            kind = metric.WhichOneof("data") or "gauge"
            of_metric = getattr(metric, kind)
            for each in of_metric.data_points:
                which = each.WhichOneof("value") if kind in ("gauge", "sum") else None
                points.append(
                    Point(
                        metric.name, kind, getattr(of_metric, "aggregation_temporality", 0),
                        getattr(of_metric, "is_monotonic", True), each.start_time_unix_nano, each.time_unix_nano,
                        None if which is None else getattr(each, which),
                        None if kind in ("gauge", "sum") else distribution_of(each, kind),
                        attributes_of(each.attributes), scope, each.flags,
                    )
                )  # fmt: skip
    resources = [resource.resource.attributes for resource in data.resource_metrics]
    return tuple(points), attributes_of(resources[0] if resources else ())


def distribution_of(point: Any, kind: str) -> Distribution:
    if kind == "summary":
        quantiles = tuple((each.quantile, each.value) for each in point.quantile_values)
        return Distribution(point.count, point.sum, quantiles=quantiles)
    total, low, high = (getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max"))
    if kind == "histogram":
        return Distribution(point.count, total, low, high, tuple(point.explicit_bounds), tuple(point.bucket_counts))
    return Distribution(
        point.count, total, low, high, (), (), point.scale, point.zero_count, point.zero_threshold,
        point.positive.offset, tuple(point.positive.bucket_counts), point.negative.offset,
        tuple(point.negative.bucket_counts),
    )  # fmt: skip


def attributes_of(pairs: Iterable[KeyValue]) -> Attributes:
    return tuple((pair.key, getattr(pair.value, pair.value.WhichOneof("value") or "string_value")) for pair in pairs)


def push_of(row: Mapping[str, Any]) -> Push | None:
    """A row of table `pushes` as the oracle sees it; None: it has what the oracle doesn't know."""
    known = {field.name for field in fields(Push)} | {"landed_at", "compression_type", "push_interval_ms"}
    is_plain = row["compression_type"] == "none" and row["push_interval_ms"] == 1000
    if not is_plain or row["client_instance_id"] is None or any(row[name] for name in row.keys() - known):
        return None
    try:
        points, resource = points_of(row["payload"])
    except DecodeError:
        return None
    return Push(
        client_instance_id=row["client_instance_id"], offset=row["offset"],
        landed_at_us=(row["landed_at"] - EPOCH) // timedelta(microseconds=1), points=points, payload=row["payload"],
        resource=resource, terminating=bool(row["terminating"]), client_id=row["client_id"], source=row["source"],
        cluster_id=row["cluster_id"], topic=row["topic"], partition=row["partition"],
    )  # fmt: skip
