"""The readable decoder: opentelemetry-proto's messages over upb, one loop per level of MetricsData.

It is the oracle that the wire-format kernel is tested against, and its fallback for odd shapes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from udfs.decoded import ATTRIBUTES, DISTRIBUTIONS, PAYLOADS, POINTS, Decoded, Kind, Number, Temporality

AttributeList = tuple[tuple[str, str], ...]


def decode(payloads: pa.Array, max_points: int = 1_000_000) -> Decoded:
    """Decode uncompressed MetricsData messages (metrics.proto); ExportMetricsServiceRequest has the same wire form.

    Args:
        payloads: binary array; NULL and empty decode to zero points.
        max_points: data points kept of one payload; the rest is left out and `capped` says so.
    """
    builder = _Builder()
    for index, payload in enumerate(payloads.to_pylist()):
        builder.add(index, payload or b"", max_points)
    return builder.build()


def attribute_text(value: AnyValue) -> str:
    """An AnyValue (common.proto) as the text that the attributes column holds.

    Text as it is, integers in decimal, doubles as Python's shortest repr, booleans ``true``/``false``, bytes in
    base64, arrays and key-value lists as JSON, no value as the empty text.
    """
    which = value.WhichOneof("value")
    if which == "string_value":
        return str(value.string_value)
    if which is None:
        return ""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which == "bytes_value":
        return base64.b64encode(value.bytes_value).decode("ascii")
    if which == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    return None if which is None else getattr(value, which)


class _Builder:
    def __init__(self) -> None:
        self.payloads: list[tuple[Any, ...]] = []
        self.points: list[tuple[Any, ...]] = []
        self.distributions: list[tuple[Any, ...]] = []
        self.attribute_sets: dict[AttributeList, int] = {}

    def add(self, index: int, payload: bytes, max_points: int) -> None:
        try:
            data = MetricsData.FromString(payload)
        except DecodeError as error:
            self.payloads.append((f"not a MetricsData message: {error}", 0, -1, False))
            return
        first = len(self.points)
        merged: dict[str, str] = {}
        capped = False
        for resource_metrics in data.resource_metrics:
            merged.update(_pairs(resource_metrics.resource.attributes))
            for scope_metrics in resource_metrics.scope_metrics:
                scope = scope_metrics.scope.name if scope_metrics.HasField("scope") else None
                for metric in scope_metrics.metrics:
                    room = max_points - (len(self.points) - first)
                    capped |= not self._add_metric(index, scope, metric, room)
        resource = self._attributes(tuple(merged.items())) if merged else -1
        self.payloads.append((None, len(self.points) - first, resource, capped))

    def _add_metric(self, index: int, scope: str | None, metric: Metric, room: int) -> bool:
        which = metric.WhichOneof("data")
        if which is None:
            return True
        kind = Kind[which.upper()]
        data = getattr(metric, which)
        temporality = getattr(data, "aggregation_temporality", Temporality.UNSPECIFIED)
        if temporality not in (Temporality.DELTA, Temporality.CUMULATIVE):
            temporality = Temporality.UNSPECIFIED
        is_monotonic = bool(getattr(data, "is_monotonic", False))
        for point in data.data_points[:room]:
            number, value, value_int = _number(point) if kind <= Kind.SUM else (Number.NONE, None, None)
            distribution = -1
            if kind > Kind.SUM:
                distribution = len(self.distributions)
                self.distributions.append(_distribution(kind, point))
            attributes = self._attributes(tuple(_pairs(point.attributes)))
            self.points.append(
                (index, metric.name, attributes, scope, kind, temporality, is_monotonic, point.start_time_unix_nano,
                 point.time_unix_nano, point.flags, number, value, value_int, distribution)
            )  # fmt: skip
        return len(data.data_points) <= room

    def _attributes(self, pairs: AttributeList) -> int:
        return self.attribute_sets.setdefault(pairs, len(self.attribute_sets))

    def build(self) -> Decoded:
        return Decoded(
            payloads=_table(self.payloads, PAYLOADS),
            points=_table(self.points, POINTS),
            distributions=_table(self.distributions, DISTRIBUTIONS),
            attribute_sets=pa.array([list(pairs) for pairs in self.attribute_sets], ATTRIBUTES),
        )


def _pairs(attributes: Iterable[KeyValue]) -> list[tuple[str, str]]:
    return [(attribute.key, attribute_text(attribute.value)) for attribute in attributes]


def _number(point: Any) -> tuple[Number, float | None, int | None]:
    which = point.WhichOneof("value")
    if which == "as_double":
        return Number.DOUBLE, point.as_double, None
    if which == "as_int":
        return Number.INT, float(point.as_int), point.as_int
    return Number.NONE, None, None


def _distribution(kind: Kind, point: Any) -> tuple[Any, ...]:
    if kind == Kind.SUMMARY:
        quantiles = [(item.quantile, item.value) for item in point.quantile_values]
        return (point.count, point.sum, *[None] * 11, quantiles)
    total, low, high = (getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max"))
    if kind == Kind.HISTOGRAM:
        bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
        return (point.count, total, low, high, bounds, counts, *[None] * 8)
    return (
        point.count, total, low, high, None, None, point.scale, point.zero_count, point.zero_threshold,
        point.positive.offset, list(point.positive.bucket_counts),
        point.negative.offset, list(point.negative.bucket_counts), None,
    )  # fmt: skip


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
