"""The rows that the operator takes and gives, as Arrow schemas: the contract tables' columns, each with its meaning.

Times are UTC microseconds. ``pipelines.tables`` makes the Delta tables of these schemas.
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
TEXT_LIST = pa.list_(pa.string())
TEXT_MAP = pa.map_(pa.string(), pa.string())
DOUBLES = pa.list_(pa.float64())
BIGINTS = pa.list_(pa.int64())


def _field(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": meaning})


PUSH_KEY = [
    _field("source", pa.string(), "where the record was read: `kafka`, or the name of a files source"),
    _field("cluster_id", pa.string(), "Kafka cluster that the client pushed to; NULL when the record doesn't say"),
    _field("topic", pa.string(), "landing topic"),
    _field("partition", pa.int32(), "partition of the landing topic"),
    _field("offset", pa.int64(), "offset of the landing record"),
    _field("landed_at", TIMESTAMP, "Kafka's record time of the landing record"),
]

# What the operator reads of table `pushes`.
PUSHES_IN = pa.schema(
    [
        *PUSH_KEY,
        _field("client_instance_id", pa.string(), "header, else key; NULL when absent, malformed or the zero UUID"),
        _field("client_id", pa.string(), "client.id of the request"),
        _field("terminating", pa.bool_(), "PushTelemetryRequest.Terminating"),
        _field("compression_type", pa.string(), "none, gzip, snappy, lz4, zstd, or 0 to 4; NULL reads as none"),
        _field("push_interval_ms", pa.int32(), "push interval of the client's subscription, ms"),
        _field("subscription_id", pa.int32(), "PushTelemetryRequest.SubscriptionId, where the receiver sees it"),
        _field("client_address", pa.string(), "source address of the client"),
        _field("client_port", pa.int32(), "source port of the client"),
        _field("client_software_name", pa.string(), "ApiVersionsRequest.ClientSoftwareName"),
        _field("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion"),
        _field("dropped", pa.string(), "reason why the receiver landed headers only"),
        _field("reject_reason", pa.string(), "Kafka's error name when the record breaks the landing contract"),
        _field("reject_detail", pa.string(), "what is wrong with the record"),
        _field("payload", pa.binary(), "the metrics bytes as landed"),
    ]
)

METRIC_POINTS = pa.schema(
    [
        *PUSH_KEY,
        _field("client_instance_id", pa.string(), "KIP-714 client instance id"),
        _field("client_id", pa.string(), "client.id of the request"),
        _field("series_id", pa.int64(), "stable 64-bit hash of the series' identity"),
        _field("metric", pa.string(), "Metric.name"),
        _field("attributes", TEXT_MAP, "the point's attributes, normalised (node_id, node_role, group_member_id)"),
        _field("scope", pa.string(), "InstrumentationScope.name"),
        _field("kind", pa.string(), "gauge, sum, histogram, exponential_histogram, summary"),
        _field("temporality", pa.string(), "delta, cumulative; NULL for gauges and summaries"),
        _field("is_monotonic", pa.bool_(), "Sum.is_monotonic; true for histograms; NULL for gauges and summaries"),
        _field("start_time", TIMESTAMP, "start_time_unix_nano; NULL when 0"),
        _field("time", TIMESTAMP, "time_unix_nano"),
        _field("value", pa.float64(), "the number; NULL when not finite or not recorded"),
        _field("value_int", pa.int64(), "the exact number when the source is int64"),
        _field("delta_start", TIMESTAMP, "the delta is the increment over (delta_start, time]"),
        _field("delta", pa.float64(), "increment; for distributions see count_delta"),
        _field("delta_int", pa.int64(), "the exact increment when the series is int64"),
        _field("delta_status", pa.string(), "what conversion did with the point; see docs/semantics"),
        _field(
            "flags", TEXT_LIST, "start_moved, duplicate_attribute, monotonic_assumed, value_assumed; NULL when none"
        ),
        _field("subscriptions", TEXT_LIST, "who asked for it: filled by view point_subscriptions, NULL as stored"),
        _field("count", pa.int64(), "number of observations"),
        _field("sum", pa.float64(), "sum of observations"),
        _field("min", pa.float64(), "smallest observation"),
        _field("max", pa.float64(), "largest observation"),
        _field("explicit_bounds", DOUBLES, "upper bounds of the histogram's buckets"),
        _field("bucket_counts", BIGINTS, "observations per bucket"),
        _field("scale", pa.int32(), "ExponentialHistogram.scale: base = 2^(2^-scale)"),
        _field("zero_count", pa.int64(), "observations in the zero bucket"),
        _field("zero_threshold", pa.float64(), "half width of the zero bucket"),
        _field("positive_offset", pa.int32(), "index of the first positive bucket"),
        _field("positive_counts", BIGINTS, "observations per positive bucket"),
        _field("negative_offset", pa.int32(), "index of the first negative bucket"),
        _field("negative_counts", BIGINTS, "observations per negative bucket"),
        _field("quantiles", pa.map_(pa.float64(), pa.float64()), "Summary: quantile to value"),
        _field("count_delta", pa.int64(), "increment of count over (delta_start, time]"),
        _field("sum_delta", pa.float64(), "increment of sum; NULL unless both points have one"),
        _field("bucket_counts_delta", BIGINTS, "increments per bucket; NULL when the bounds changed"),
        _field("positive_counts_delta", BIGINTS, "increments per positive bucket at the row's scale"),
        _field("negative_counts_delta", BIGINTS, "increments per negative bucket at the row's scale"),
        _field("zero_count_delta", pa.int64(), "increment of zero_count"),
    ]
)

QUARANTINE = pa.schema(
    [
        *PUSH_KEY,
        _field("client_instance_id", pa.string(), "as far as the record tells"),
        _field("client_id", pa.string(), "client.id of the request"),
        _field("scope", pa.string(), "what was rejected: push or point"),
        _field("reason", pa.string(), "Kafka's error name for pushes, the rule's name for points"),
        _field("detail", pa.string(), "what is wrong, in words"),
        _field("metric", pa.string(), "metric of a rejected point"),
        _field("payload", pa.binary(), "the rejected push as landed, for replay after a fix; NULL for points"),
    ]
)

PUSH_OUTCOMES = pa.schema(
    [
        *PUSH_KEY,
        _field("client_instance_id", pa.string(), "KIP-714 client instance id"),
        _field("client_id", pa.string(), "client.id of the request"),
        _field("client_attributes_id", pa.int64(), "row of client_attributes: what subscriptions are matched with"),
        _field("terminating", pa.bool_(), "PushTelemetryRequest.Terminating"),
        _field("outcome", pa.string(), "points, heartbeat, duplicate, too_late, quarantined, dropped"),
        _field("points", pa.int32(), "rows of this push in metric_points"),
        _field("quarantined_points", pa.int32(), "points of this push in quarantine"),
        _field("statuses", pa.map_(pa.string(), pa.int32()), "points per delta_status"),
        _field("labels", TEXT_MAP, "resource attributes, normalised"),
        _field("temporality", pa.string(), "delta, cumulative, mixed; NULL when the push has neither"),
        _field("first_start", TIMESTAMP, "earliest start of its delta points"),
        _field("first_time", TIMESTAMP, "earliest time of its points"),
        _field("last_time", TIMESTAMP, "latest time of its points"),
        _field("lost_start", TIMESTAMP, "start of the interval that is missing before this push"),
        _field("lost_end", TIMESTAMP, "end of that interval"),
        _field("decompressed_bytes", pa.int64(), "size of the payload after decompression, bytes"),
        _field("digest", pa.int64(), "xxh3-64 of the decompressed payload"),
    ]
)

CLIENT_EVENTS = pa.schema(
    [
        *PUSH_KEY,
        _field("client_instance_id", pa.string(), "KIP-714 client instance id; NULL for fleet events"),
        _field("client_id", pa.string(), "client.id of the request"),
        _field("at", TIMESTAMP, "when it happened"),
        _field("event", pa.string(), "temporality_flip, lost_interval, lost_interval_closed, too_late, ..."),
        _field("detail", TEXT_MAP, "the event's evidence"),
    ]
)

METRIC_ROLLUPS = pa.schema(
    [
        _field("cluster_id", pa.string(), "Kafka cluster that the clients pushed to"),
        _field("window_start", TIMESTAMP, "start of the window of the points' times"),
        _field("client_id", pa.string(), "client.id of the requests"),
        _field("metric", pa.string(), "Metric.name"),
        _field("kind", pa.string(), "gauge, sum, histogram, exponential_histogram, summary"),
        _field("temporality", pa.string(), "delta, cumulative; NULL for gauges and summaries"),
        _field(
            "attribute_keys",
            pa.string(),
            "names of the points' attributes, sorted, comma-separated; empty: none. A metric may come at several "
            "levels, say per client and per topic: sum one of them",
        ),
        _field("points", pa.int64(), "data points, whatever their status"),
        _field("increase", pa.float64(), "sum of delta; NULL when no point has one"),
        _field("increase_int", pa.int64(), "sum of delta_int, when every delta has one"),
        _field("covered_s", pa.float64(), "seconds that the deltas cover: sum of time - delta_start over the series"),
        _field("resets", pa.int64(), "points with status reset or inferred_reset"),
        _field("baselines", pa.int64(), "points with status baseline or flip_baseline: their increment is unknown"),
        _field("refused", pa.int64(), "points with status late, duplicate, conflict or too_late: not counted"),
        _field("value_count", pa.int64(), "points with a value"),
        _field("value_sum", pa.float64(), "sum of value"),
        _field("value_min", pa.float64(), "least value"),
        _field("value_max", pa.float64(), "greatest value"),
        _field("observations", pa.int64(), "sum of count_delta"),
        _field("observed_sum", pa.float64(), "sum of sum_delta"),
        _field("landed_at", TIMESTAMP, "latest landing of these points"),
    ]
)
