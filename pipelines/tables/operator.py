"""Tables of landed records, and tables that the operator computes from them."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.quotas import reports as quota_reports
from kafka_telemetry_lake.udfs.quotas import usage as quota_usage
from kafka_telemetry_lake.udfs.rows import PUSH_KEY, TIMESTAMP, column

PUSHES = Table(
    "pushes",
    "One landed push, unchanged; the payload is stored for replay.",
    pa.schema(
        [
            *PUSH_KEY,
            column("received_at", TIMESTAMP, "when the receiver plugin received the push"),
            column("client_instance_id", pa.string(), "header, else key; NULL when absent, malformed or the zero UUID"),
            column("client_id", pa.string(), "client.id of the request"),
            column("terminating", pa.bool_(), "PushTelemetryRequest.Terminating"),
            column("content_type", pa.string(), "OTLP, or the MIME type that the record names"),
            column("compression_type", pa.string(), "compression of the payload; NULL reads as none"),
            column("push_interval_ms", pa.int32(), "push interval of the client's subscription, ms"),
            column("subscription_id", pa.int32(), "PushTelemetryRequest.SubscriptionId, where the receiver sees it"),
            column("principal", pa.string(), "authenticated principal"),
            column("listener", pa.string(), "listener of the broker"),
            column("security_protocol", pa.string(), "security protocol of the connection"),
            column("client_address", pa.string(), "source address of the client"),
            column("client_port", pa.int32(), "source port of the client"),
            column("client_software_name", pa.string(), "ApiVersionsRequest.ClientSoftwareName"),
            column("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion"),
            column("broker_id", pa.int32(), "broker that received the push"),
            column("correlation_id", pa.int32(), "correlation id of the request"),
            column("record_version", pa.int32(), "version of the landing record"),
            column("dropped", pa.string(), "reason why the receiver landed headers only"),
            column("payload", pa.binary(), "the metrics bytes as landed"),
            column("payload_bytes", pa.int64(), "size of the metrics bytes as the receiver got them"),
            column("reject_reason", pa.string(), "Kafka's error name when the record breaks the landing contract"),
            column("reject_detail", pa.string(), "what is wrong with the record"),
        ]
    ),
    ("landed_at", "partition", "offset", "client_instance_id"),
    # Clients of one kind push similar payloads, megabytes apart: level 1 looks back 512 KB only.
    zstd_level=3,
)

METRIC_POINTS = Table(
    "metric_points",
    "One data point, with the delta that conversion computed for it.",
    rows.METRIC_POINTS,
    ("landed_at", "time", "partition", "offset", "client_instance_id", "metric"),
)

QUARANTINE = Table(
    "quarantine",
    "One rejected push or point, with the reason.",
    rows.QUARANTINE,
    ("landed_at", "partition", "offset"),
)

PUSH_OUTCOMES = Table(
    "push_outcomes",
    "The outcome of each push: points, statuses, labels and time span.",
    rows.PUSH_OUTCOMES,
    ("landed_at", "partition", "offset", "client_instance_id"),
)

CLIENT_EVENTS = Table(
    "client_events",
    "One event of a client instance or of the fleet.",
    rows.CLIENT_EVENTS,
    ("landed_at", "at", "client_instance_id"),
)

_ROLLUP = "Contribution of a batch's points to a window of a metric and client id; sum the rows of one key."
METRIC_ROLLUPS_1M = Table(
    "metric_rollups_1m",
    f"{_ROLLUP} Windows of a minute.",
    rows.METRIC_ROLLUPS,
    ("window_start", "metric", "client_id"),
    zstd_level=2,
)
METRIC_ROLLUPS_1H = Table(
    "metric_rollups_1h",
    f"{_ROLLUP} Windows of an hour.",
    rows.METRIC_ROLLUPS,
    ("window_start", "metric", "client_id"),
    zstd_level=2,
)

RECEIVER_HEALTH = Table(
    "receiver_health",
    "One status of a broker's receiver: received = landed + dropped + queued since started_at.",
    pa.schema(
        [
            *PUSH_KEY,
            column("broker_id", pa.int32(), "broker that the receiver runs in"),
            column("reported_at", TIMESTAMP, "when the receiver read its counters"),
            column("started_at", TIMESTAMP, "when the receiver started; its counters are monotonic since"),
            column("received", pa.int64(), "pushes taken from the broker"),
            column("landed", pa.int64(), "pushes acknowledged by the landing topic"),
            column("dropped", pa.map_(pa.string(), pa.int64()), "pushes lost, by reason"),
            column("dropped_total", pa.int64(), "pushes lost in all"),
            column("queue_depth", pa.int64(), "pushes waiting or in flight"),
            column("quota_samples_landed", pa.int64(), "quota samples acknowledged by their topic"),
            column("quota_samples_lost", pa.int64(), "quota samples taken that did not land"),
            column("problem", pa.string(), "text of the record if it is not a valid status of a known version"),
        ]
    ),
    ("landed_at", "reported_at"),
)

BROKER_CONNECTIONS = Table(
    "broker_connections",
    "Connections of a broker at one status of its receiver, by listener and client software (KIP-511).",
    pa.schema(
        [
            *PUSH_KEY,
            column("broker_id", pa.int32(), "broker that counted"),
            column("reported_at", TIMESTAMP, "when it counted, by its clock"),
            column("listener", pa.string(), "listener of the connections"),
            column(
                "client_software_name",
                pa.string(),
                "ApiVersionsRequest.ClientSoftwareName, `unknown`: the client sends none; NULL: all connections of the "
                "listener that no other row counts",
            ),
            column("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion, as the name"),
            column("connections", pa.int64(), "open connections"),
        ]
    ),
    ("landed_at", "reported_at", "broker_id"),
)

QUOTA_SAMPLES = Table(
    "quota_samples",
    "One sample of a broker's own quota sensor.",
    pa.schema(
        [
            *PUSH_KEY,
            column("broker_id", pa.int32(), "broker that was sampled"),
            column("time", TIMESTAMP, "time of the sample by the broker's clock"),
            column("quota_type", pa.string(), "produce, fetch, request"),
            column("user", pa.string(), "user name, URL-decoded; empty: not part of the entity"),
            column("client_id", pa.string(), "client id; empty: not part of the entity"),
            column("observed_rate", pa.float64(), "bytes/s, or percent of one thread's time; NULL: no sample"),
            column("quota_limit", pa.float64(), "limit in force at the time; NULL: none"),
            column("throttle_time_ms", pa.float64(), "average delay of throttled responses, ms; NULL: no sample"),
        ]
    ),
    ("landed_at", "time", "broker_id"),
)

QUOTA_REPORTS = Table(
    "quota_reports",
    "Data on quotas in one push: bytes to or from one broker, or a throttle delay.",
    quota_reports.REPORTS,
    ("landed_at", "delta_start", "time"),
)

QUOTA_USAGE = Table(
    "quota_usage",
    "Quota usage of one entity on one broker in one window. landed_date is the UTC date of window_start.",
    quota_usage.USAGE,
    ("window_start", "window_seconds", "broker_id"),
    dated_by="window_start",
)

# Written by the operator's tasks, in this order.
ROWS_OF_PUSHES = (METRIC_POINTS, QUARANTINE, PUSH_OUTCOMES, CLIENT_EVENTS)
OPERATOR_TABLES = (*ROWS_OF_PUSHES, METRIC_ROLLUPS_1M, METRIC_ROLLUPS_1H)
TABLES = (PUSHES, *OPERATOR_TABLES, RECEIVER_HEALTH)
