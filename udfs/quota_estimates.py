"""How much of their quotas clients use by their own byte counters, where no broker tells: an estimate.

A Java client counts the bytes to and from each node (``producer.node.outgoing.byte.total``,
``consumer.node.incoming.byte.total``): request and response framing and other requests included, the broker counts
record bytes. Clients that share a bucket are added up; one that pushes no telemetry is missing from the sum.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from udfs.quota_precedence import Limits, effective_quotas
from udfs.quota_usage import BUCKET, Floats, Ints, floats, micros, usage_ratio, usage_rows
from udfs.rows import TIMESTAMP

DELTAS_IN = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("broker_id", pa.int32()),
        ("user", pa.string()),  # name of the principal
        ("client_id", pa.string()),
        ("start", TIMESTAMP),
        ("end", TIMESTAMP),
        ("bytes", pa.float64()),  # moved between start and end
    ]
)


def estimated_usage(deltas: pa.Table, quota_type: str, limits: Limits, window_seconds: int) -> pa.Table:
    """Byte deltas of clients (`DELTAS_IN`) of one cluster as rows of ``quota_usage.USAGE``, source `client`.

    A delta's bytes are spread evenly over its interval. A window at the edge of the deltas holds only what they cover.
    Whether a client was delayed is not known from bytes: `throttled` is false and `throttle_ms` NULL.

    Args:
        quota_type: produce for bytes that producers sent, fetch for bytes that consumers got.
        limits: configured limits of that type, see ``quota_precedence``.
    """
    start, end = micros(deltas["start"]), micros(deltas["end"])
    usable = deltas.filter(pa.array((end > start) & (floats(deltas["bytes"]) >= 0)))
    quotas = effective_quotas(limits, usable["user"], usable["client_id"])
    row, window, moved = _spread(usable, window_seconds * 1_000_000)
    quotas, usable = quotas.take(pa.array(row)), usable.take(pa.array(row))
    parts = pa.table(
        {
            "cluster_id": usable["cluster_id"],
            "broker_id": usable["broker_id"],
            "quota_type": np.full(len(row), quota_type),
            "user": quotas["bucket_user"],
            "client_id": quotas["bucket_client_id"],
            "window": window,
            "bytes": moved,
            "limit": quotas["quota_limit"],
        }
    )
    sums = parts.group_by([*BUCKET, "window"], use_threads=False).aggregate(
        [("bytes", "sum"), ("bytes", "count"), ("limit", "last")]
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
        status=np.where(np.isnan(limit), "unlimited", np.where(limit == 0, "zero_limit", "ok")),
    )


def _spread(deltas: pa.Table, length: int) -> tuple[Ints, Ints, Floats]:
    """Each delta's part in each window that its interval meets: its row, the window's start, the bytes."""
    start, end = micros(deltas["start"]), micros(deltas["end"])
    first = start // length
    windows = (end - 1) // length - first + 1
    row = np.repeat(np.arange(len(start)), windows)
    number = np.arange(len(row)) - np.repeat(np.cumsum(windows) - windows, windows)
    window = (first[row] + number) * length
    overlap = np.minimum(end[row], window + length) - np.maximum(start[row], window)
    return row, window, floats(deltas["bytes"])[row] * overlap / (end - start)[row]
