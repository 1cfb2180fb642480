"""What clients themselves report about quotas (Q11), and the usage that follows where no broker reports it (Q12, Q13).

A Java client counts the bytes of all requests to and from each node; a broker counts those of the quota type only.
Clients that share a bucket are added up; a client that pushes no telemetry is missing from the sum. Java and librdkafka
producers and Java consumers report the longest delay that a response asked for. The two libraries agree only on whether
it is above 0: librdkafka skips responses without a delay.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import Doubles, Int64s
from kafka_telemetry_lake.udfs.quotas.limits import QuotaLimits, effective_quotas
from kafka_telemetry_lake.udfs.quotas.usage import BUCKET, floats, micros, usage_ratio, usage_rows
from kafka_telemetry_lake.udfs.rows import METRIC_POINTS, PUSH_KEY, columns

PREFIX = "org.apache.kafka."
# Metric to quota type.
BYTES = {f"{PREFIX}producer.node.outgoing.byte.total": "produce", f"{PREFIX}consumer.node.incoming.byte.total": "fetch"}
DELAYS = {
    f"{PREFIX}producer.produce.throttle.time.max": "produce",
    f"{PREFIX}consumer.fetch.manager.fetch.throttle.time.max": "fetch",
    f"{PREFIX}consumer.share.fetch.manager.fetch.throttle.time.max": "fetch",
}
METRICS = (*BYTES, *DELAYS)

POINTS_IN = pa.schema(
    [
        *PUSH_KEY,
        *(
            METRIC_POINTS.field(name)
            for name in (
                "client_instance_id", "client_id", "metric", "attributes", "delta_start", "time", "value", "delta",
            )
        ),
    ]
)  # fmt: skip


REPORTS = pa.schema(columns("quota_reports"))


def quota_reports(points: pa.Table, principals: pa.ChunkedArray) -> pa.Table:
    """The points (`POINTS_IN`) about quotas, as rows of `REPORTS`: byte increments and delays, each above 0.

    Bytes to bootstrap nodes or to a group's coordinator aren't produce or fetch bytes, and are left out.

    Args:
        principals: of each point's push, as Kafka prints them: ``User:alice``.
    """
    node, role = (pc.map_lookup(points["attributes"], name, "first") for name in ("node_id", "node_role"))
    is_broker = pc.and_(pc.equal(role, "broker"), pc.match_substring_regex(node, r"^[0-9]{1,9}$"))
    moves = pc.and_(pc.is_in(points["metric"], pa.array(BYTES)), pc.greater(points["delta"], 0))
    moves = pc.fill_null(pc.and_(moves, is_broker), False)
    delays = pc.and_(pc.is_in(points["metric"], pa.array(DELAYS)), pc.greater(points["value"], 0))
    delays = pc.fill_null(delays, False)
    types = BYTES | DELAYS
    rows = pa.table(
        {
            **{field.name: points[field.name] for field in PUSH_KEY},
            "client_instance_id": points["client_instance_id"],
            "client_id": points["client_id"],
            "user": pc.replace_substring_regex(principals, r"^[^:]*:", "", max_replacements=1),
            "broker_id": pc.cast(pc.if_else(moves, node, None), pa.int32()),
            "quota_type": pc.take(pa.array(types.values()), pc.index_in(points["metric"], pa.array(types))),
            "delta_start": pc.if_else(moves, points["delta_start"], None),
            "time": points["time"],
            "bytes": pc.if_else(moves, points["delta"], None),
            "throttle_ms": pc.if_else(delays, points["value"], None),
        }
    )
    return rows.filter(pc.or_(moves, delays)).select(REPORTS.names).cast(REPORTS)


# A longer interval says nothing about single windows: a client's first push may cover its whole lifetime.
MAX_INTERVAL_S = 3600


def estimated_usage(
    reports: pa.Table, quota_type: str, limits: QuotaLimits, window_seconds: int, start: int, end: int
) -> pa.Table:
    """Usage by the bytes that clients of one cluster report, as rows of ``usage.USAGE``, source `client` (Q12).

    Bytes are spread evenly over their interval. A client without a limit gives no row. Bytes don't show whether a
    client was delayed: `throttled` is false and `throttle_ms` NULL.

    Args:
        reports: `REPORTS`, those with bytes of this quota type.
        limits: configured limits of that type, see `limits.QuotaLimits`.
        start, end: of the windows that rows are wanted of, Unix seconds.
    """
    began, ended = micros(reports["delta_start"]), micros(reports["time"])
    usable = (ended > began) & (ended - began <= MAX_INTERVAL_S * 1_000_000) & (floats(reports["bytes"]) >= 0)
    reports = reports.filter(pa.array(usable))
    quotas = effective_quotas(limits, reports["user"], reports["client_id"])
    limited = pc.is_valid(quotas["quota_limit"])
    reports, quotas = reports.filter(limited), quotas.filter(limited)
    row, window, moved = _spread(reports, window_seconds * 1_000_000, start * 1_000_000, end * 1_000_000)
    parts = _in_buckets(reports.take(pa.array(row)), quotas.take(pa.array(row)), quota_type, window)
    sums = (
        parts.append_column("bytes", pa.array(moved))
        .group_by([*BUCKET, "window"], use_threads=False)
        .aggregate([("bytes", "sum"), ("bytes", "count"), ("limit", "last")])
    )
    rate, limit = floats(sums["bytes_sum"]) / window_seconds, floats(sums["limit_last"])
    return usage_rows(
        sums,
        micros(sums["window"]),
        window_seconds,
        samples=micros(sums["bytes_count"]),
        rate=rate,
        ratio=usage_ratio(rate, limit),
        limit=limit,
        full=rate >= limit,
        throttle_ms=np.full(len(rate), np.nan),
        throttled=np.zeros(len(rate), dtype=bool),
        source="client",
        status=np.where(limit == 0, "zero_limit", "ok"),
    )


def throttle_evidence(
    reports: pa.Table, quota_type: str, limits: QuotaLimits | None, window_seconds: int, start: int, end: int
) -> pa.Table:
    """Delays reported by the clients of one cluster, as rows of ``usage.USAGE``, source `evidence` (Q13).

    A row says that a client of the bucket reported a delay in the window. The delay happened since the client's push
    before (librdkafka) or up to a minute before the report (Java). The broker is unknown.

    Args:
        reports: `REPORTS`, those with a delay of this quota type.
        limits: as for `estimated_usage`; None: unknown, then each client counts as a bucket of its own.
    """
    time = micros(reports["time"])
    reports = reports.filter(pa.array((time >= start * 1_000_000) & (time < end * 1_000_000)))
    quotas = effective_quotas(limits or {}, reports["user"], reports["client_id"])
    length = window_seconds * 1_000_000
    parts = _in_buckets(reports, quotas, quota_type, micros(reports["time"]) // length * length)
    sums = (
        parts.append_column("throttle", reports["throttle_ms"])
        .group_by([*BUCKET, "window"], use_threads=False)
        .aggregate([("throttle", "mean"), ("throttle", "count"), ("limit", "last")])
    )
    limit = floats(sums["limit_last"])
    unknown, all_true = np.full(sums.num_rows, np.nan), np.ones(sums.num_rows, dtype=bool)
    return usage_rows(
        sums,
        micros(sums["window"]),
        window_seconds,
        samples=micros(sums["throttle_count"]),
        rate=unknown,
        ratio=unknown,
        limit=limit,
        full=all_true,
        throttle_ms=floats(sums["throttle_mean"]),
        throttled=all_true,
        source="evidence",
        status=np.where(np.isnan(limit), "limit_unknown", "no_rate"),
    )


def _in_buckets(reports: pa.Table, quotas: pa.Table, quota_type: str, window: Int64s) -> pa.Table:
    """Columns `BUCKET`, `window` and `limit` of each report."""
    return pa.table(
        {
            "cluster_id": reports["cluster_id"],
            "broker_id": reports["broker_id"],
            "quota_type": pa.array([quota_type] * len(window), pa.string()),
            "user": quotas["bucket_user"],
            "client_id": quotas["bucket_client_id"],
            "window": window,
            "limit": quotas["quota_limit"],
        }
    )


def _spread(reports: pa.Table, length: int, start: int, end: int) -> tuple[Int64s, Int64s, Doubles]:
    """Divide each report among the windows from start to end that its interval overlaps: row, window and bytes."""
    began, ended = micros(reports["delta_start"]), micros(reports["time"])
    first = np.maximum(began, start) // length
    windows = np.maximum((np.minimum(ended, end) - 1) // length - first + 1, 0)
    row = np.repeat(np.arange(len(began)), windows)
    number = np.arange(len(row)) - np.repeat(np.cumsum(windows) - windows, windows)
    window = (first[row] + number) * length
    overlap = np.minimum(ended[row], window + length) - np.maximum(began[row], window)
    return row, window, floats(reports["bytes"])[row] * overlap / (ended - began)[row]
