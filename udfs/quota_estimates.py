"""How much of their quotas clients use by what they tell themselves, where no broker tells: an estimate, and evidence.

A Java client counts the bytes to and from each node: all requests, where the broker counts those of its quota type.
Clients that share a bucket are added up; one that pushes no telemetry is missing from the sum.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.quota_precedence import Limits, effective_quotas
from udfs.quota_usage import BUCKET, Floats, Ints, floats, micros, usage_ratio, usage_rows

# A longer interval says nothing about single windows: a client that was asked late tells all that it ever moved.
MAX_INTERVAL_S = 3600


def estimated_usage(
    reports: pa.Table, quota_type: str, limits: Limits, window_seconds: int, start: int, end: int
) -> pa.Table:
    """Bytes that clients of one cluster tell, as rows of ``quota_usage.USAGE``, source `client`.

    Bytes are spread evenly over their interval. A client without a limit gives no row. Whether one was delayed is not
    known from bytes: `throttled` is false and `throttle_ms` NULL.

    Args:
        reports: ``quota_reports.REPORTS``, those with bytes of this quota type.
        limits: configured limits of that type, see ``quota_precedence``.
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
    reports: pa.Table, quota_type: str, limits: Limits | None, window_seconds: int, start: int, end: int
) -> pa.Table:
    """Delays that clients of one cluster tell, as rows of ``quota_usage.USAGE``, source `evidence`.

    A row says that a client of the bucket told of a delay in the window; it happened since its push before (librdkafka)
    or up to a minute earlier (Java), on a broker that isn't known.

    Args:
        reports: ``quota_reports.REPORTS``, those with a delay of this quota type.
        limits: as for `estimated_usage`; None: not known, the bucket is taken to be the client's own.
    """
    told = micros(reports["time"])
    reports = reports.filter(pa.array((told >= start * 1_000_000) & (told < end * 1_000_000)))
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


def _in_buckets(reports: pa.Table, quotas: pa.Table, quota_type: str, window: Ints) -> pa.Table:
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


def _spread(reports: pa.Table, length: int, start: int, end: int) -> tuple[Ints, Ints, Floats]:
    """Each report's part in each window from start to end that its interval meets: its row, the window, the bytes."""
    began, ended = micros(reports["delta_start"]), micros(reports["time"])
    first = np.maximum(began, start) // length
    windows = np.maximum((np.minimum(ended, end) - 1) // length - first + 1, 0)
    row = np.repeat(np.arange(len(began)), windows)
    number = np.arange(len(row)) - np.repeat(np.cumsum(windows) - windows, windows)
    window = (first[row] + number) * length
    overlap = np.minimum(ended[row], window + length) - np.maximum(began[row], window)
    return row, window, floats(reports["bytes"])[row] * overlap / (ended - began)[row]
