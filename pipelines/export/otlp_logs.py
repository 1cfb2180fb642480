"""Rows of `client_events` as OTLP log records: events of OpenTelemetry, with a name and a unique id."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

from kafka_telemetry_lake.pipelines.events.event_id import ORDER, event_id, plain_event
from kafka_telemetry_lake.pipelines.export.otlp_points import SCOPE, Resources, attribute, nanoseconds

EVENTS = 1000  # of a request
NAMED = "kafka.client."  # before an event's name


def requests(rows: pa.Table, clients: pa.Table) -> Iterator[tuple[ExportLogsServiceRequest, int]]:
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
