"""The readable decoder: opentelemetry-proto's messages over upb, one loop per level of MetricsData.

It is the oracle that the wire-format kernel is tested against, and its fallback for odd shapes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from kafka_telemetry_lake.udfs.otlp.decoded import (
    ATTRIBUTES,
    DICTIONARY,
    DISTRIBUTIONS,
    MANY_ATTRIBUTES,
    MANY_BUCKETS,
    MANY_LABELS,
    PAYLOADS,
    POINTS,
    Decoded,
    Excess,
    Kind,
    Number,
    Temporality,
)

AttributeList = tuple[tuple[str, str], ...]


def decode(payloads: pa.Array, limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Decode uncompressed MetricsData messages (metrics.proto); ExportMetricsServiceRequest has the same wire form.

    Args:
        payloads: binary array; NULL and empty decode to zero points.
        limits: of one payload; what is left out of it `decoded.PAYLOADS` says.
    """
    builder = _Builder(limits)
    for index, payload in enumerate(payloads.to_pylist()):
        builder.add(index, payload or b"")
    return builder.build()


def attribute_text(value: AnyValue) -> str:
    """An AnyValue (common.proto) as the text of the attributes column.

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
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.payloads: list[tuple[Any, ...]] = []
        self.points: list[tuple[Any, ...]] = []
        self.distributions: list[tuple[Any, ...]] = []
        self.attribute_sets: dict[AttributeList, int] = {}
        self.texts: dict[str, int] = {}

    def add(self, index: int, payload: bytes) -> None:
        try:
            data = MetricsData.FromString(payload)
        except DecodeError as error:
            self.payloads.append((f"not a MetricsData message: {error}", None, 0, -1, 0, 0))
            return
        first, first_distribution = len(self.points), len(self.distributions)
        self.untimed = self.attributes = self.items = 0
        merged: dict[str, str] = {}
        beyond = 0
        for resource_metrics in data.resource_metrics:
            merged.update(_pairs(resource_metrics.resource.attributes))
            for scope_metrics in resource_metrics.scope_metrics:
                scope = self._text(scope_metrics.scope.name) if scope_metrics.HasField("scope") else None
                for metric in scope_metrics.metrics:
                    room = self.limits.max_points_per_push - (len(self.points) - first)
                    beyond += self._add_metric(index, scope, metric, room)
        too_much = self._too_much(merged)
        if too_much is not None:
            del self.points[first:], self.distributions[first_distribution:]
            self.payloads.append((None, too_much, 0, -1, 0, 0))
            return
        resource = self._attributes(tuple(merged.items())) if merged else -1
        untimed = max(0, self.untimed - self.limits.max_listed_points)
        self.payloads.append((None, None, len(self.points) - first, resource, beyond, untimed))

    def _too_much(self, labels: dict[str, str]) -> str | None:
        """Which limit of a payload is exceeded, or None."""
        if len(labels) > self.limits.max_attributes:
            return MANY_LABELS.format(self.limits.max_attributes)
        if self.attributes > self.limits.max_attributes_per_push:
            return MANY_ATTRIBUTES.format(self.limits.max_attributes_per_push)
        if self.items > self.limits.max_buckets_per_push:
            return MANY_BUCKETS.format(self.limits.max_buckets_per_push)
        return None

    def _add_metric(self, index: int, scope: int | None, metric: Metric, room: int) -> int:
        """Add a metric's points, and return how many were beyond the limit."""
        which = metric.WhichOneof("data")
        if which is None:
            return 0
        kind = Kind[which.upper()]
        data = getattr(metric, which)
        temporality = getattr(data, "aggregation_temporality", Temporality.UNSPECIFIED)
        if temporality not in (Temporality.DELTA, Temporality.CUMULATIVE):
            temporality = Temporality.UNSPECIFIED
        is_monotonic = bool(getattr(data, "is_monotonic", False))
        name = self._text(metric.name)
        for place, point in enumerate(data.data_points):
            if room <= 0:
                return len(data.data_points) - place
            if point.time_unix_nano == 0:
                self.untimed += 1
                if self.untimed > self.limits.max_listed_points:
                    continue
            room -= 1
            number, value, value_int = _number(point) if kind <= Kind.SUM else (Number.NONE, None, None)
            distribution, excess = -1, Excess.NONE
            if kind > Kind.SUM:
                distribution = len(self.distributions)
                excess |= self._add_distribution(kind, point)
            pairs: AttributeList = ()
            if len(point.attributes) > self.limits.max_attributes:
                excess |= Excess.ATTRIBUTES
            else:
                pairs = tuple(_pairs(point.attributes))
            self.attributes += len(pairs)
            self.points.append(
                (index, name, self._attributes(pairs), scope, kind, temporality, is_monotonic,
                 point.start_time_unix_nano, point.time_unix_nano, point.flags, number, value, value_int, distribution,
                 excess)
            )  # fmt: skip
        return 0

    def _add_distribution(self, kind: Kind, point: Any) -> Excess:
        lists = _lists(kind, point)
        excess = Excess.BUCKETS if max(map(len, lists)) > self.limits.max_buckets else Excess.NONE
        if excess:
            lists = ([], [])
        # A quantile and its value are two items.
        self.items += sum(map(len, lists)) * (2 if kind == Kind.SUMMARY else 1)
        self.distributions.append(_distribution(kind, point, *map(list, lists)))
        return excess

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _attributes(self, pairs: AttributeList) -> int:
        return self.attribute_sets.setdefault(pairs, len(self.attribute_sets))

    def build(self) -> Decoded:
        return Decoded(
            payloads=_table(self.payloads, PAYLOADS),
            points=self._points(),
            distributions=_table(self.distributions, DISTRIBUTIONS),
            attribute_sets=pa.array([list(pairs) for pairs in self.attribute_sets], ATTRIBUTES),
        )

    def _points(self) -> pa.Table:
        """The points as columns; a text that repeats is stored once."""
        numbered = [field.with_type(pa.int32()) if field.type == DICTIONARY else field for field in POINTS]
        table = _table(self.points, pa.schema(numbered))
        texts = pa.array(list(self.texts), pa.string())
        columns = [
            pa.DictionaryArray.from_arrays(table[field.name].combine_chunks(), texts)
            if field.type == DICTIONARY
            else table[field.name]
            for field in POINTS
        ]
        return pa.table(columns, POINTS)


def _pairs(attributes: Iterable[KeyValue]) -> list[tuple[str, str]]:
    return [(attribute.key, attribute_text(attribute.value)) for attribute in attributes]


def _number(point: Any) -> tuple[Number, float | None, int | None]:
    which = point.WhichOneof("value")
    if which == "as_double":
        return Number.DOUBLE, point.as_double, None
    if which == "as_int":
        return Number.INT, float(point.as_int), point.as_int
    return Number.NONE, None, None


def _lists(kind: Kind, point: Any) -> tuple[Any, ...]:
    """The lists of a distribution, as messages."""
    if kind == Kind.SUMMARY:
        return (point.quantile_values,)
    if kind == Kind.HISTOGRAM:
        return point.explicit_bounds, point.bucket_counts
    return point.positive.bucket_counts, point.negative.bucket_counts


def _distribution(kind: Kind, point: Any, first: list[Any], second: Sequence[Any] = ()) -> tuple[Any, ...]:
    if kind == Kind.SUMMARY:
        quantiles = [(item.quantile, item.value) for item in first]
        return (point.count, point.sum, *[None] * 11, quantiles)
    total, low, high = (getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max"))
    if kind == Kind.HISTOGRAM:
        return (point.count, total, low, high, first, second, *[None] * 8)
    return (
        point.count, total, low, high, None, None, point.scale, point.zero_count, point.zero_threshold,
        point.positive.offset, first, point.negative.offset, second, None,
    )  # fmt: skip


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
