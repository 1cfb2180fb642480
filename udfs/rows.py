"""The rows that the operator takes and gives, as Arrow schemas: the contract tables' columns, each with its meaning.

Times are UTC microseconds. ``pipelines.tables.operator`` makes the Delta tables of these schemas.
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
TEXT_LIST = pa.list_(pa.string())
TEXT_MAP = pa.map_(pa.string(), pa.string())
DOUBLES = pa.list_(pa.float64())
BIGINTS = pa.list_(pa.int64())


def column(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    """A column of a table, with what it means: docs/schema.md is made of that."""
    return pa.field(name, kind, metadata={"comment": meaning})


PUSH_KEY = [
    column("source", pa.string(), "where the record was read: `kafka`, or the name of a files source"),
    column("cluster_id", pa.string(), "Kafka cluster that the client pushed to; NULL when the record doesn't say"),
    column("topic", pa.string(), "landing topic"),
    column("partition", pa.int32(), "partition of the landing topic"),
    column("offset", pa.int64(), "offset of the landing record"),
    column("landed_at", TIMESTAMP, "Kafka's record time of the landing record"),
]

# What the operator reads of table `pushes`.
PUSHES_IN = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "header, else key; NULL when absent, malformed or the zero UUID"),
        column("client_id", pa.string(), "client.id of the request"),
        column("terminating", pa.bool_(), "PushTelemetryRequest.Terminating"),
        column("compression_type", pa.string(), "none, gzip, snappy, lz4, zstd, or 0 to 4; NULL reads as none"),
        column("push_interval_ms", pa.int32(), "push interval of the client's subscription, ms"),
        column("subscription_id", pa.int32(), "PushTelemetryRequest.SubscriptionId, where the receiver sees it"),
        column("principal", pa.string(), "principal of the request's connection, as the privacy settings store it"),
        column("client_address", pa.string(), "source address of the client"),
        column("client_port", pa.int32(), "source port of the client"),
        column("client_software_name", pa.string(), "ApiVersionsRequest.ClientSoftwareName"),
        column("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion"),
        column("dropped", pa.string(), "reason why the receiver landed headers only"),
        column("reject_reason", pa.string(), "Kafka's error name when the record breaks the landing contract"),
        column("reject_detail", pa.string(), "what is wrong with the record"),
        column("payload", pa.binary(), "the metrics bytes as landed"),
    ]
)

METRIC_POINTS = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "KIP-714 client instance id"),
        column("client_id", pa.string(), "client.id of the request"),
        column(
            "series_id",
            pa.int64(),
            "stable 64-bit hash that tells the series of a client instance apart; clients with equal series share it",
        ),
        column("metric", pa.string(), "Metric.name"),
        column("attributes", TEXT_MAP, "the point's attributes, normalised (node_id, node_role, group_member_id)"),
        column("scope", pa.string(), "InstrumentationScope.name"),
        column("kind", pa.string(), "gauge, sum, histogram, exponential_histogram, summary"),
        column("temporality", pa.string(), "delta, cumulative; NULL for gauges and summaries"),
        column("is_monotonic", pa.bool_(), "Sum.is_monotonic; true for histograms; NULL for gauges and summaries"),
        column("start_time", TIMESTAMP, "start_time_unix_nano; NULL when 0"),
        column("time", TIMESTAMP, "time_unix_nano"),
        column("value", pa.float64(), "the number; NULL when not finite or not recorded"),
        column("value_int", pa.int64(), "the exact number when the source is int64"),
        column("delta_start", TIMESTAMP, "the delta is the increment over (delta_start, time]"),
        column("delta", pa.float64(), "increment; for distributions see count_delta"),
        column("delta_int", pa.int64(), "the exact increment when the series is int64"),
        column("delta_status", pa.string(), "result of the conversion; see docs/semantics"),
        column(
            "flags",
            TEXT_LIST,
            "start_moved, duplicate_attribute, monotonic_assumed, value_assumed, clock_ahead; NULL: none",
        ),
        column(
            "subscriptions", TEXT_LIST, "subscriptions that ask for it, by view point_subscriptions; NULL as stored"
        ),
        column("count", pa.int64(), "number of observations"),
        column("sum", pa.float64(), "sum of observations"),
        column("min", pa.float64(), "smallest observation"),
        column("max", pa.float64(), "largest observation"),
        column("explicit_bounds", DOUBLES, "upper bounds of the histogram's buckets"),
        column("bucket_counts", BIGINTS, "observations per bucket"),
        column("scale", pa.int32(), "ExponentialHistogram.scale: base = 2^(2^-scale)"),
        column("zero_count", pa.int64(), "observations in the zero bucket"),
        column("zero_threshold", pa.float64(), "half width of the zero bucket"),
        column("positive_offset", pa.int32(), "index of the first positive bucket"),
        column("positive_counts", BIGINTS, "observations per positive bucket"),
        column("negative_offset", pa.int32(), "index of the first negative bucket"),
        column("negative_counts", BIGINTS, "observations per negative bucket"),
        column("quantiles", pa.map_(pa.float64(), pa.float64()), "Summary: quantile to value"),
        column("count_delta", pa.int64(), "increment of count over (delta_start, time]"),
        column("sum_delta", pa.float64(), "increment of sum; NULL unless both points have one"),
        column("bucket_counts_delta", BIGINTS, "increments per bucket; NULL when the bounds changed"),
        column("positive_counts_delta", BIGINTS, "increments per positive bucket at the row's scale"),
        column("negative_counts_delta", BIGINTS, "increments per negative bucket at the row's scale"),
        column("zero_count_delta", pa.int64(), "increment of zero_count"),
    ]
)

QUARANTINE = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "NULL: the record has none"),
        column("client_id", pa.string(), "client.id of the request"),
        column("scope", pa.string(), "what was rejected: push, point or quota_sample"),
        column("reason", pa.string(), "Kafka's error name for pushes, the rule's name for points"),
        column("detail", pa.string(), "what is wrong, in words"),
        column("metric", pa.string(), "metric of a rejected point"),
        column("payload", pa.binary(), "the rejected push as landed, for replay after a fix; NULL for points"),
    ]
)

# Connection metrics of a push (udfs.conversion.push_rows.push_signals); NULL when it has no such metric.
CONNECTION_SIGNALS = pa.schema(
    [
        column("client_port", pa.int32(), "source port of the client"),
        column("bootstrap_requests", pa.int64(), "increment of the requests to bootstrap nodes (Java)"),
        column("broker_requests", pa.int64(), "increment of the requests to brokers (Java)"),
        column("broker_responses", pa.int64(), "increment of the responses of brokers (Java)"),
        column("connections_created", pa.int64(), "increment of the connections made; librdkafka: that were tried"),
        column("connections_closed", pa.int64(), "increment of the connections that ended or failed (Java)"),
        column("bootstrap_nodes", pa.int32(), "bootstrap nodes and librdkafka's coordinator, by node.request.latency"),
        column("broker_nodes", pa.int32(), "brokers by id that the client knows, by node.request.latency"),
        column("answering_nodes", pa.int32(), "those of them with a latency above 0"),
        column("metadata_age_s", pa.float64(), "age of the producer's metadata, s (Java)"),
    ]
)

PUSH_COLUMNS = [*(field.name for field in PUSH_KEY), "client_instance_id", "client_id"]
"""The columns that every row of a push, and of its points, has of it."""

PUSH_OUTCOMES = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "KIP-714 client instance id"),
        column("client_id", pa.string(), "client.id of the request"),
        column("client_attributes_id", pa.int64(), "row of client_attributes: subscriptions are matched against it"),
        column("terminating", pa.bool_(), "PushTelemetryRequest.Terminating"),
        column("outcome", pa.string(), "points, heartbeat, duplicate, too_late, quarantined, dropped"),
        column("points", pa.int32(), "rows of this push in metric_points"),
        column("quarantined_points", pa.int32(), "points of this push in quarantine"),
        column("statuses", pa.map_(pa.string(), pa.int32()), "points per delta_status"),
        column("labels", TEXT_MAP, "resource attributes, normalised"),
        column("temporality", pa.string(), "delta, cumulative, mixed; NULL when the push has neither"),
        column("first_start", TIMESTAMP, "earliest start of its delta points"),
        column("first_time", TIMESTAMP, "earliest time of its points"),
        column("last_time", TIMESTAMP, "latest time of its points"),
        column("lost_start", TIMESTAMP, "start of the interval that is missing before this push"),
        column("lost_end", TIMESTAMP, "end of that interval"),
        column("decompressed_bytes", pa.int64(), "size of the payload after decompression, bytes"),
        column("digest", pa.int64(), "xxh3-64 of the decompressed payload"),
        *CONNECTION_SIGNALS,
    ]
)

CLIENT_EVENTS = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "KIP-714 client instance id; NULL for fleet events"),
        column("client_id", pa.string(), "client.id of the request"),
        column("at", TIMESTAMP, "when it happened"),
        column("event", pa.string(), "temporality_flip, lost_interval, lost_interval_closed, too_late, ..."),
        column("detail", TEXT_MAP, "the event's evidence"),
    ]
)

METRIC_ROLLUPS = pa.schema(
    [
        column("cluster_id", pa.string(), "Kafka cluster that the clients pushed to"),
        column("window_start", TIMESTAMP, "start of the window of the points' times"),
        column("client_id", pa.string(), "client.id of the requests"),
        column("metric", pa.string(), "Metric.name"),
        column("kind", pa.string(), "gauge, sum, histogram, exponential_histogram, summary"),
        column("temporality", pa.string(), "delta, cumulative; NULL for gauges and summaries"),
        column(
            "attribute_keys",
            pa.string(),
            "names of the points' attributes, sorted, comma-separated; empty: none. A metric may come at several "
            "levels, say per client and per topic: sum one of them",
        ),
        column("points", pa.int64(), "data points, whatever their status"),
        column("increase", pa.float64(), "sum of delta; NULL when no point has one"),
        column("increase_int", pa.int64(), "sum of delta_int, when every delta has one"),
        column("covered_s", pa.float64(), "seconds that the deltas cover: sum of time - delta_start over the series"),
        column("resets", pa.int64(), "points with status reset or inferred_reset"),
        column("baselines", pa.int64(), "points with status baseline or flip_baseline: their increment is unknown"),
        column("refused", pa.int64(), "points with status late, duplicate, conflict or too_late: not counted"),
        column("value_count", pa.int64(), "points with a value"),
        column("value_sum", pa.float64(), "sum of value"),
        column("value_min", pa.float64(), "least value"),
        column("value_max", pa.float64(), "greatest value"),
        column("observations", pa.int64(), "sum of count_delta"),
        column("observed_sum", pa.float64(), "sum of sum_delta"),
        column("landed_at", TIMESTAMP, "latest landing of these points"),
    ]
)
