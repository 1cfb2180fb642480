"""When a client that stops pushing counts as silent, and when no subscription asks it to push any more.

The threshold (L3) is the age at which a broker drops an instance (``ClientMetricsManager``): max(60 s, 3 intervals).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.subscriptions.history import Timeline, subscription_of, timeline
from kafka_telemetry_lake.udfs.subscriptions.matching import matching, push_interval_ms

NEVER = np.int64(np.iinfo(np.int64).max)
LEAST_THRESHOLD_US = 60_000_000
INTERVALS = 3
# A client without subscriptions asks for them again after this time; a broker never sends a longer interval.
LONGEST_INTERVAL_MS = 300_000


def thresholds(interval_ms: Int64s) -> Int64s:
    """How long after its last push a client counts as silent, µs. Interval 0: unknown, the longest applies (L4)."""
    assumed_ms = np.where(interval_ms > 0, interval_ms, LONGEST_INTERVAL_MS)
    after: Int64s = np.maximum(LEAST_THRESHOLD_US, INTERVALS * 1000 * assumed_ms)
    return after


def silences(
    clients: pa.Table, cluster_ids: list[str | None], last_seen: Int64s, interval_ms: Int64s, versions: pa.Table
) -> tuple[Int64s, Int64s]:
    """When each client falls silent if it doesn't push again, given the history of subscriptions (L5).

    A new interval applies from the time of the change: the client learns it at its next push, then waits that long. A
    client that no subscription matches isn't expected to push; once one matches again, it asks within five minutes.

    Args:
        clients: columns of ``subscriptions.CLIENTS``.
        cluster_ids: cluster of each.
        last_seen: when each one's last push landed, µs.
        interval_ms: push interval of that push; 0: unknown, the subscriptions' interval applies.
        versions: rows of table `subscriptions`; a cluster without rows is taken to ask always.

    Returns:
        silent_at and unsubscribed_at, µs; `NEVER` where that doesn't happen.
    """
    silent_at = last_seen + thresholds(interval_ms)
    unsubscribed_at = np.full(len(last_seen), NEVER)
    clusters = np.array(cluster_ids, object)
    for cluster in set(versions["cluster_id"].to_pylist()):
        rows = np.flatnonzero(clusters == cluster)
        if len(rows) == 0:
            continue
        of_cluster = versions.filter(pa.array([each == cluster for each in versions["cluster_id"].to_pylist()]))
        when, asked = timeline(of_cluster), _asked(clients.take(pa.array(rows)), of_cluster)
        for row, asks in zip(rows.tolist(), asked, strict=True):
            silent_at[row], unsubscribed_at[row] = _walk(int(last_seen[row]), int(interval_ms[row]), when, asks)
    return silent_at, unsubscribed_at


def _asked(clients: pa.Table, versions: pa.Table) -> list[list[int]]:
    """The interval that each version asks of each client, ms; 0: none. What can't be decided counts as asked."""
    columns = []
    for version in versions.to_pylist():
        subscription = subscription_of(version)
        asks = subscription.metrics or subscription.unread is not None
        interval = subscription.interval_ms if asks else 0
        matched = matching(clients, subscription).fill_null(True).to_numpy(zero_copy_only=False)
        columns.append(np.where(matched, interval, 0))
    return np.stack(columns, axis=1).tolist() if columns else [[] for _ in range(clients.num_rows)]


def _walk(last_seen: int, interval_ms: int, when: Timeline, asks: list[int]) -> tuple[int, int]:
    def asked(epoch: int) -> int:
        intervals = [asks[version] for version in when.in_force[epoch] if asks[version]]
        return push_interval_ms(intervals) if intervals else 0

    def threshold(interval: int) -> int:
        return int(thresholds(np.array([interval]))[0])

    never = int(NEVER)
    epoch = int(when.epochs(np.array([last_seen]))[0])
    is_polled = epoch > 0  # before the first poll the subscriptions are unknown
    interval = asked(epoch) if is_polled else interval_ms
    # The push may have had the older interval, and its response the newer one: the longer of them applies.
    intervals = [each for each in (interval_ms, interval) if each]
    silent_at = last_seen + max(threshold(each) for each in intervals or [0])
    unsubscribed_at = never
    awaited = not is_polled or interval > 0
    for after in range(epoch + 1, len(when.starts)):
        at = int(when.starts[after])
        if awaited and at > silent_at:
            break
        now = asked(after)
        if not is_polled:  # the first poll finds what was there before; nothing has changed
            is_polled, interval = True, now or interval
            continue
        if now == interval:
            continue
        if now == 0:
            awaited = False
        else:
            wait = LONGEST_INTERVAL_MS * 1000 if interval == 0 else 0
            if not awaited and at > silent_at:
                unsubscribed_at = min(unsubscribed_at, silent_at)
            silent_at, awaited = max(silent_at, at + wait + threshold(now)), True
        interval = now
    if not awaited:
        return never, min(unsubscribed_at, silent_at)
    return silent_at, unsubscribed_at
