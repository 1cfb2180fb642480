"""Rows of `metric_points` and `client_events` as OTLP's messages.

A resource is a client instance, a data point is a row, a log record an event: one of OpenTelemetry, with a name and a
unique id. Names are those of OpenTelemetry's conventions (https://opentelemetry.io/docs/specs/semconv/):
`service.name`, `service.instance.id`, `messaging.*`. What has no convention begins with `kafka.`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kafka_telemetry_lake.pipelines.events.event_id import ORDER, event_id, plain_event
from kafka_telemetry_lake.pipelines.export.known_clients import KNOWN
from kafka_telemetry_lake.pipelines.export.measures import UNCOUNTED
from kafka_telemetry_lake.udfs.identity import text_hash

MOST_SERIES = 200_000


@dataclass(slots=True)
class Total:
    """A series' total.

    Attributes:
        start, time: of its first and newest increment, ns since 1970.
        number: the sum.
        whole: the exact sum, as long as all increments are whole numbers.
    """

    start: int
    time: int
    number: float = 0.0
    whole: int | None = 0


class Totals:
    """The totals of the series that were added to last, for backends that take cumulative points only.

    A series that is forgotten begins anew, with another start.
    """

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: dict[int, Total] = {}

    def add(self, series: int, start: int, time: int, delta: float, delta_int: int | None) -> Total:
        """Add an increment over (start, time], and return the total. A late increment moves no time back."""
        total = self._series.pop(series, None) or Total(start or time, time)
        self._series[series] = total  # now the newest
        total.time = max(total.time, time)
        total.number += delta
        total.whole = None if total.whole is None or delta_int is None else total.whole + delta_int
        if len(self._series) > self._most:
            del self._series[next(iter(self._series))]
        return total

    def stored(self) -> list[tuple[Any, ...]]:
        """All totals, the one that was added to last at the end."""
        return [(series, *astuple(total)) for series, total in self._series.items()]

    def restore(self, stored: Iterable[tuple[Any, ...]]) -> None:
        """Take over what was stored."""
        self._series = {int(series): Total(*parts) for series, *parts in stored}


SCOPE = "kafka-telemetry-lake"
UNNAMED = "unknown_service:kafka-client"  # as SDKs name a service without a name
POINTS = 5000  # of a request
COLUMNS = (
    "cluster_id", "client_instance_id", "client_id", "series_id", "metric", "attributes", "kind", "is_monotonic",
    "time", "value", "value_int", "delta_start", "delta", "delta_int", "delta_status", "count", "sum", "min", "max",
    "explicit_bounds", "scale", "zero_threshold", "positive_offset", "negative_offset", "quantiles", "count_delta",
    "sum_delta", "bucket_counts_delta", "positive_counts_delta", "negative_counts_delta", "zero_count_delta",
    "landed_at",
)  # fmt: skip
NEEDED = ~pc.field("delta_status").isin(UNCOUNTED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE

Row = Mapping[str, Any]


def nanoseconds(at: datetime | None) -> int:
    """Unix time in ns; 0: not known."""
    return 0 if at is None else (at - _EPOCH) // timedelta(microseconds=1) * 1000


def attribute(key: str, value: str) -> KeyValue:
    """An attribute with a text."""
    result = KeyValue(key=key)
    result.value.string_value = value
    return result


class Resources:
    """The resource of each client instance.

    Args:
        clients: rows with the columns of `KNOWN`.
    """

    def __init__(self, clients: pa.Table, instances: pa.ChunkedArray) -> None:
        named = clients.filter(pc.is_in(clients["client_instance_id"], pc.unique(instances)))
        self._clients = {row["client_instance_id"]: row for row in named.to_pylist()}

    def of(self, row: Row) -> Resource:
        """The resource of the client of a row."""
        known = self._clients.get(row["client_instance_id"], dict.fromkeys(KNOWN.names))
        texts = {
            "service.name": known["application"] or row["client_id"] or UNNAMED,
            "service.instance.id": row["client_instance_id"],
            "messaging.system": "kafka",
            "messaging.client.id": row["client_id"],
            "messaging.consumer.group.name": known["group_id"],
            "kafka.cluster.id": row["cluster_id"],
            "kafka.client.software.name": known["client_software_name"],
            "kafka.client.software.version": known["client_software_version"],
        }
        return Resource(attributes=[attribute(key, text) for key, text in texts.items() if text])


def point_requests(
    rows: pa.Table, clients: pa.Table, totals: Totals | None
) -> Iterator[tuple[ExportMetricsServiceRequest, int]]:
    """Requests of at most `POINTS` points each, and the number of their points.

    Args:
        rows: columns `COLUMNS` of metric_points.
        totals: makes sums cumulative; None: they are sent as increments.
    """
    order = [(name, "ascending") for name in ("client_instance_id", "metric", "time", "series_id")]
    sent = rows.filter(NEEDED).sort_by(order)
    for first in range(0, sent.num_rows, POINTS):
        part = sent.slice(first, POINTS)
        request, number = _request(part, Resources(clients, part["client_instance_id"]), totals)
        if number:
            yield request, number


def _request(part: pa.Table, resources: Resources, totals: Totals | None) -> tuple[ExportMetricsServiceRequest, int]:
    request, number = ExportMetricsServiceRequest(), 0
    client: tuple[Any, ...] | None = None
    metric: Metric | None = None
    of: tuple[Any, ...] | None = None
    scope: Any = None
    for row in part.to_pylist():
        if row["kind"] not in _ADD or not _is_measured(row):
            continue
        if client != (client := (row["cluster_id"], row["client_instance_id"], row["client_id"])):
            resource = request.resource_metrics.add(resource=resources.of(row))
            scope, of = resource.scope_metrics.add(), None
            scope.scope.name = SCOPE
        if of != (of := (row["metric"], row["kind"], row["is_monotonic"])):
            metric = scope.metrics.add(name=row["metric"])
        assert metric is not None
        _ADD[row["kind"]](metric, row, totals)
        number += 1
    return request, number


def _is_measured(row: Row) -> bool:
    """Whether a row has something to send: an increment, or a state."""
    if row["kind"] == "gauge":
        return row["value"] is not None
    if row["kind"] == "summary":
        return row["count"] is not None
    return (row["delta"] if row["kind"] == "sum" else row["count_delta"]) is not None


def _common(point: Any, row: Row, start: int) -> None:
    point.time_unix_nano = nanoseconds(row["time"])
    point.start_time_unix_nano = start
    point.attributes.extend(attribute(key, text or "") for key, text in row["attributes"] or ())


def _series(row: Row) -> int:
    """A hash of the series of a row, of all clients' series (I1)."""
    return text_hash(f"{row['cluster_id'] or ''} {row['client_instance_id']} {row['series_id']}")


def _number(point: NumberDataPoint, whole: int | None, number: float) -> None:
    if whole is None:
        point.as_double = number
    else:
        point.as_int = whole


def _add_gauge(metric: Metric, row: Row, _: Totals | None) -> None:
    point = metric.gauge.data_points.add()
    _common(point, row, 0)
    _number(point, row["value_int"], row["value"])


def _add_sum(metric: Metric, row: Row, totals: Totals | None) -> None:
    metric.sum.is_monotonic = bool(row["is_monotonic"])
    point = metric.sum.data_points.add()
    start, time = nanoseconds(row["delta_start"]), nanoseconds(row["time"])
    if totals is None:
        metric.sum.aggregation_temporality = _DELTA
        _common(point, row, start)
        _number(point, row["delta_int"], row["delta"])
        return
    metric.sum.aggregation_temporality = _CUMULATIVE
    total = totals.add(_series(row), start, time, row["delta"], row["delta_int"])
    _common(point, row, total.start)
    point.time_unix_nano = total.time
    _number(point, total.whole, total.number)


def _add_histogram(metric: Metric, row: Row, _: Totals | None) -> None:
    metric.histogram.aggregation_temporality = _DELTA
    point = metric.histogram.data_points.add()
    _common(point, row, nanoseconds(row["delta_start"]))
    point.count = max(row["count_delta"], 0)
    if row["sum_delta"] is not None:
        point.sum = row["sum_delta"]
    if row["bucket_counts_delta"]:
        point.explicit_bounds.extend(row["explicit_bounds"] or ())
        point.bucket_counts.extend(row["bucket_counts_delta"])


def _add_exponential(metric: Metric, row: Row, _: Totals | None) -> None:
    metric.exponential_histogram.aggregation_temporality = _DELTA
    point = metric.exponential_histogram.data_points.add()
    _common(point, row, nanoseconds(row["delta_start"]))
    point.count = max(row["count_delta"], 0)
    point.scale, point.zero_count = row["scale"] or 0, row["zero_count_delta"] or 0
    point.zero_threshold = row["zero_threshold"] or 0.0
    if row["sum_delta"] is not None:
        point.sum = row["sum_delta"]
    for buckets, which in ((point.positive, "positive"), (point.negative, "negative")):
        buckets.offset = row[f"{which}_offset"] or 0
        buckets.bucket_counts.extend(row[f"{which}_counts_delta"] or ())


def _add_summary(metric: Metric, row: Row, _: Totals | None) -> None:
    point = metric.summary.data_points.add()
    _common(point, row, 0)
    point.count, point.sum = row["count"], row["sum"] or 0.0
    for quantile, value in row["quantiles"] or ():
        point.quantile_values.add(quantile=quantile, value=value)


_ADD: dict[str, Callable[[Metric, Row, Totals | None], None]] = {
    "gauge": _add_gauge,
    "sum": _add_sum,
    "histogram": _add_histogram,
    "exponential_histogram": _add_exponential,
    "summary": _add_summary,
}


EVENTS = 1000  # of a request
NAMED = "kafka.client."  # before an event's name


def event_requests(rows: pa.Table, clients: pa.Table) -> Iterator[tuple[ExportLogsServiceRequest, int]]:
    """Requests of at most `EVENTS` events each, and their number."""
    order = [(name, "ascending") for name in ORDER]
    ordered = rows.sort_by(order)
    for first in range(0, ordered.num_rows, EVENTS):
        part = ordered.slice(first, EVENTS)
        resources, request = Resources(clients, part["client_instance_id"]), ExportLogsServiceRequest()
        for row in part.to_pylist():
            scope = request.resource_logs.add(resource=resources.of(row)).scope_logs.add()
            scope.scope.name = SCOPE
            record = scope.log_records.add(
                time_unix_nano=nanoseconds(row["at"]),
                observed_time_unix_nano=nanoseconds(row["landed_at"]),
                severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
                event_name=f"{NAMED}{row['event']}",
            )
            record.body.string_value = row["event"] or ""
            # By log.record.uid a receiver knows a record that was sent again.
            record.attributes.append(attribute("log.record.uid", event_id(plain_event(row))))
            record.attributes.extend(attribute(f"{NAMED}{key}", text or "") for key, text in row["detail"] or ())
        yield request, part.num_rows
