"""When a client that no longer pushes counts as silent, and when nobody asks it to push any more.

The threshold is the broker's own for forgetting a client instance (``ClientMetricsManager``): max(60 s, 3 intervals).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.subscription_history import Timeline, subscription_of, timeline
from udfs.subscriptions import matching

Int64s = npt.NDArray[np.int64]

NEVER = np.int64(np.iinfo(np.int64).max)
LEAST_THRESHOLD_US = 60_000_000
INTERVALS = 3
# A client that nothing is asked of asks again after the longest interval; a broker never tells a longer one.
LONGEST_INTERVAL_MS = 300_000


def thresholds(interval_ms: Int64s) -> Int64s:
    """How long after its last push a client counts as silent, µs; an interval of 0 is unknown: the longest counts."""
    known = np.where(interval_ms > 0, interval_ms, LONGEST_INTERVAL_MS)
    after: Int64s = np.maximum(LEAST_THRESHOLD_US, INTERVALS * 1000 * known)
    return after


def silences(
    clients: pa.Table, cluster_ids: list[str | None], last_seen: Int64s, interval_ms: Int64s, versions: pa.Table
) -> tuple[Int64s, Int64s]:
    """When each client falls silent if it doesn't push any more, as the subscriptions' history tells.

    A change of interval counts from its own time: the client learns of it at its next push, and waits the new interval.
    Without any matching subscription it isn't awaited; once there is one again, it asks within five minutes.

    Args:
        clients: columns of ``subscriptions.CLIENTS``.
        cluster_ids: cluster of each.
        last_seen: when each one's last push landed, µs.
        interval_ms: push interval of that push; 0: unknown, the subscriptions' counts.
        versions: rows of table `subscriptions`; a cluster without any is taken to ask all along.

    Returns:
        silent_at and unsubscribed_at, µs; `NEVER` where it doesn't come to that.
    """
    silent_at = last_seen + thresholds(interval_ms)
    unsubscribed_at = np.full(len(last_seen), NEVER)
    clusters = np.array(cluster_ids, object)
    for cluster in set(versions["cluster_id"].to_pylist()):
        rows = np.flatnonzero(clusters == cluster)
        if len(rows) == 0:
            continue
        own = versions.filter(pa.array([each == cluster for each in versions["cluster_id"].to_pylist()]))
        when, asked = timeline(own), _asked(clients.take(pa.array(rows)), own)
        for row, asks in zip(rows.tolist(), asked, strict=True):
            silent_at[row], unsubscribed_at[row] = _walk(int(last_seen[row]), int(interval_ms[row]), when, asks)
    return silent_at, unsubscribed_at


def _asked(clients: pa.Table, versions: pa.Table) -> list[list[int]]:
    """Interval that each version asks of each client, ms; 0: it asks nothing. A match that can't be told counts."""
    columns = []
    for version in versions.to_pylist():
        subscription = subscription_of(version)
        interval = min(subscription.interval_ms, LONGEST_INTERVAL_MS) if subscription.metrics else 0
        matched = matching(clients, subscription).fill_null(True).to_numpy(zero_copy_only=False)
        columns.append(np.where(matched, interval, 0))
    return np.stack(columns, axis=1).tolist() if columns else [[] for _ in range(clients.num_rows)]


def _walk(last_seen: int, interval_ms: int, when: Timeline, asks: list[int]) -> tuple[int, int]:
    def asked(epoch: int) -> int:
        intervals = [asks[version] for version in when.in_force[epoch] if asks[version]]
        return min(intervals, default=0)

    def threshold(interval: int) -> int:
        return int(thresholds(np.array([interval]))[0])

    never = int(NEVER)
    epoch = int(when.epochs(np.array([last_seen]))[0])
    known = epoch > 0  # before the first poll nobody knows
    interval = asked(epoch) if known else interval_ms
    # A client that pushed under an older interval learns of the longer one by that push.
    told = [each for each in (interval_ms, interval) if each]
    silent_at = last_seen + max(threshold(each) for each in told or [0])
    unsubscribed_at = never
    awaited = not known or interval > 0
    for after in range(epoch + 1, len(when.starts)):
        at = int(when.starts[after])
        if awaited and at > silent_at:
            break
        now = asked(after)
        if not known:  # the first poll tells what was there before, not what changed
            known, interval = True, now or interval
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
