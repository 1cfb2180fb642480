"""What clients would push under other subscriptions, from what they pushed under recorded ones (M13, M14, M15).

A client runs for as long as before and pushes once each interval. A metric has as many points in a push as it had, on
average, in those of the client's pushes for which it was requested. Of a metric that was never requested of a client,
clients like it are asked: same software, version and kind. If it was requested of none of them either, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s
from kafka_telemetry_lake.udfs.subscriptions.matching import ALL_METRICS, Subscription, asked, push_interval_ms

STAR_AS_PREFIX = "**"  # no metric begins with it
KIND_AT = "org.apache.kafka."
EXCLUSIVE = ("producer", "consumer", "admin")  # a client instance is one of them


class Requested(NamedTuple):
    """What brokers request of a client: metrics by prefixes, `*` for all, each `interval_ms`. No prefixes: no push."""

    prefixes: frozenset[str]
    interval_ms: int

    def asks_for(self, metric: str) -> bool:
        """Whether it requests a metric, by its whole name."""
        return ALL_METRICS in self.prefixes or metric.startswith(tuple(self.prefixes))


class RecordedPushes(NamedTuple):
    """What client instances pushed, and what was requested of them. `n` instances, `r` distinct requests."""

    requests: Sequence[Requested]
    kinds: Sequence[frozenset[str]]
    """of each group of instances: those of equal software, version and kinds, such as producer"""
    groups: Int64s
    """group of each instance, shape (n,)"""
    active: Doubles
    """the share of the time for which each ran, shape (n,)"""
    pushes: Doubles
    """of which the request is known, shape (n, r)"""
    fixed: Doubles
    """of each group, decompressed bytes of a push without points"""
    repeats: Bools
    """of each group, whether its pushes repeat their labels for each metric"""
    size: Doubles
    """decompressed bytes of these pushes, shape (n,)"""
    payload: Doubles
    """their bytes as they were received, shape (n,)"""
    metrics: pa.Array
    """distinct names"""
    client: Int64s
    """of each row of points: instance; and its request, its metric, how many, and the bytes that they should have"""
    request: Int64s
    metric: Int64s
    points: Doubles
    bytes: Doubles


class ExpectedPushes(NamedTuple):
    """What each instance would push, shape (n,)."""

    pushes_s: Doubles
    points: Doubles
    """in a push"""
    borrowed: Doubles
    """of them, those that are estimated from clients like it"""
    size: Doubles
    """decompressed bytes of a push"""
    payload: Doubles
    """the same as received: where a receiver gets compressed pushes, in the client's ratio so far"""
    interval_s: Doubles
    """infinite: it isn't asked"""
    unknown: Sequence[tuple[str, ...]]
    """prefixes of which it isn't known how many metrics they would bring"""

    def windows_s(self, seconds: int) -> Doubles:
        """Rows of a rollup of such windows a second, at most one for each series."""
        share = np.minimum(1 / self.interval_s, 1 / seconds)
        rows: Doubles = self.pushes_s * np.where(np.isinf(self.interval_s), 0.0, self.interval_s) * self.points * share
        return rows


def request(matching: Iterable[Subscription], star_is_prefix: bool = False) -> Requested:
    """What a client is asked that matches these subscriptions (M3, M4).

    Args:
        star_is_prefix: its library takes `*` for a prefix, which no metric has: franz-go.
    """
    known = tuple(matching)
    prefixes = frozenset(prefix for each in known for prefix in each.metrics)
    if star_is_prefix and ALL_METRICS in prefixes:
        prefixes = prefixes - {ALL_METRICS} | {STAR_AS_PREFIX}
    return Requested(prefixes, push_interval_ms(each.interval_ms for each in known))


def expected(recorded: RecordedPushes, requested: Int64s) -> ExpectedPushes:
    """What each instance would push if it were asked this.

    Args:
        requested: of each instance, its request: a row of `recorded.requests`.
    """
    names, wanted = len(recorded.metrics), _wanted(recorded)
    patterns, pattern = np.unique(recorded.pushes > 0, axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    had: Bools = (patterns.astype(np.int64) @ wanted.astype(np.int64)) > 0  # of each pattern, metrics ever requested
    who, what, mean, each = _points_a_push(recorded, wanted)

    own = wanted[requested[who], what]
    points: Doubles = np.bincount(who[own], mean[own], len(recorded.groups)).astype(np.float64)
    size = recorded.fixed[recorded.groups] + np.bincount(who[own], (mean * each)[own], len(recorded.groups))

    groups = len(recorded.kinds)
    asked_of = np.zeros((groups, len(patterns)))
    np.add.at(asked_of, (recorded.groups, pattern), 1)
    counted = asked_of @ had
    cell = recorded.groups[who] * names + what
    with np.errstate(divide="ignore", invalid="ignore"):
        of_group = np.bincount(cell, mean, groups * names).reshape(groups, names) / counted
        bytes_of_group = np.bincount(cell, mean * each, groups * names).reshape(groups, names) / counted

    alike, number = np.unique(np.stack([recorded.groups, pattern, requested], axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    borrowed, borrowed_bytes = np.zeros(len(alike)), np.zeros(len(alike))
    unknown: list[tuple[str, ...]] = []
    for row, (group, past, now) in enumerate(alike.tolist()):
        new = wanted[now] & ~had[past] & (counted[group] > 0)
        borrowed[row], borrowed_bytes[row] = of_group[group][new].sum(), bytes_of_group[group][new].sum()
        known = _prefixes(recorded, patterns[asked_of[group] > 0].any(axis=0))
        unknown.append(_unknown(recorded.requests[now], known, recorded.kinds[group]))
    points = points + borrowed[number]
    of_point, of_push = _labels(recorded)
    size = size + borrowed_bytes[number] + points * of_point + of_push
    ratio = np.where(recorded.size > 0, recorded.payload / np.maximum(recorded.size, 1), 1.0)
    asks = np.array([bool(each.prefixes) for each in recorded.requests])[requested]
    interval = np.array([each.interval_ms / 1000 for each in recorded.requests])[requested]
    interval_s = np.where(asks, interval, np.inf)
    return ExpectedPushes(
        recorded.active / interval_s,
        points,
        borrowed[number],
        size,
        size * ratio,
        interval_s,
        [unknown[row] for row in number.tolist()],
    )


def kind_of(metric: str) -> str:
    """The kind of client that a metric's name says: producer, consumer, admin, stream, ..., or the empty text."""
    return metric.removeprefix(KIND_AT).partition(".")[0] if metric.startswith(KIND_AT) else ""


def is_of(metric: str, kinds: frozenset[str]) -> bool:
    """Whether a client of these kinds may have a metric: a producer has none of a consumer's. No kinds: it may."""
    own = kinds.intersection(EXCLUSIVE)
    return not own or kind_of(metric) not in EXCLUSIVE or kind_of(metric) in own


def _wanted(recorded: RecordedPushes) -> Bools:
    """Which metrics each request asks for, shape (requests, metrics)."""
    wanted = np.zeros((len(recorded.requests), len(recorded.metrics)), np.bool_)
    for number, each in enumerate(recorded.requests):
        prefixes = Subscription("", tuple(each.prefixes))
        wanted[number] = asked(recorded.metrics, prefixes).to_numpy(zero_copy_only=False)
    return wanted


def _points_a_push(recorded: RecordedPushes, wanted: Bools) -> tuple[Int64s, Int64s, Doubles, Doubles]:
    """Instance, metric, points in a push for which it was requested, and the bytes that a point should have."""
    fits = wanted[recorded.request, recorded.metric]
    keys, row = np.unique((recorded.client * len(recorded.metrics) + recorded.metric)[fits], return_inverse=True)
    who, what = np.divmod(keys, max(len(recorded.metrics), 1))
    pushes = np.zeros(len(keys))
    for number in range(len(recorded.requests)):
        pushes += recorded.pushes[who, number] * wanted[number, what]
    points = np.bincount(row, recorded.points[fits], len(keys))
    each = np.bincount(row, recorded.bytes[fits], len(keys)) / np.maximum(points, 1)
    return who, what, points / np.maximum(pushes, 1), each


def _labels(recorded: RecordedPushes) -> tuple[Doubles, Doubles]:
    """Bytes of a point, and of a push, that each instance's pushes had more than they should have had.

    Labels differ: they are those of its group, and its members.
    """
    pushes, count = recorded.pushes.sum(axis=1), len(recorded.groups)
    points = np.bincount(recorded.client, recorded.points, count)
    should = pushes * recorded.fixed[recorded.groups] + np.bincount(recorded.client, recorded.bytes, count)
    more = np.where(recorded.size > 0, recorded.size - should, 0.0)
    repeats = recorded.repeats[recorded.groups]
    of_point: Doubles = np.where(repeats & (points > 0), more / np.maximum(points, 1), 0.0)
    of_push: Doubles = np.where(~repeats & (pushes > 0), more / np.maximum(pushes, 1), 0.0)
    return of_point, of_push


def _prefixes(recorded: RecordedPushes, which: Bools) -> frozenset[str]:
    return frozenset(
        prefix for number in np.flatnonzero(which).tolist() for prefix in recorded.requests[number].prefixes
    )


def _unknown(request: Requested, recorded: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
    """Prefixes that no recorded one covers, but for those of another kind of client."""
    if ALL_METRICS in recorded:
        return ()
    prefixes = {ALL_METRICS} if ALL_METRICS in request.prefixes else request.prefixes
    left = (each for each in prefixes if not each.startswith(tuple(recorded)) and is_of(each, kinds))
    return tuple(sorted(ALL_METRICS if each == STAR_AS_PREFIX else each for each in left))
