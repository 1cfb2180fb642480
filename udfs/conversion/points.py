"""Decides which points are converted, by rules I4, P3, P5 and P8."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import FRANZ_GO_SCOPE, AttributeSets, mix, set_bytes, text_hashes
from kafka_telemetry_lake.udfs.kernels.arrays import (
    Bools,
    Doubles,
    Int8s,
    Int32s,
    Int64s,
    UInt32s,
    UInt64s,
    column,
    one_chunk,
)
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded, Excess, Kind, Number, Temporality

NO_RECORDED_VALUE = 1  # DataPointFlags, a bit mask
START_TOLERANCE_NS = 1_000_000_000
CLOCK_TOLERANCE_US = 1_000_000  # C13; captured clients are 0.5 ms ahead at most
MAX_INT64 = (1 << 63) - 1


class Reason(IntEnum):
    """Why a point is in quarantine: it is bad (P3, P8), or beyond a limit."""

    NONE = 0
    NO_TIME = 1
    NO_VALUE = 2
    UNKNOWN_TEMPORALITY = 3
    START_AFTER_TIME = 4
    BAD_BUCKETS = 5
    FUTURE_TIME = 6
    TOO_MANY_POINTS = 7
    TEXT_TOO_LONG = 8
    TOO_MANY_SERIES = 9
    TOO_MANY_ATTRIBUTES = 10
    TOO_MANY_BUCKETS = 11
    TOO_MANY_SERIES_OF_PRINCIPAL = 12


# Bits of the `flags` column of metric_points, and their texts.
START_MOVED, DUPLICATE_ATTRIBUTE, MONOTONIC_ASSUMED, VALUE_ASSUMED, CLOCK_AHEAD = 1, 2, 4, 8, 16
FLAGS = ("start_moved", "duplicate_attribute", "monotonic_assumed", "value_assumed", "clock_ahead")


class Points(NamedTuple):
    """One row per decoded point; see `decoded.POINTS`. Times are ns, 0: none."""

    push: Int64s  # row of its push
    metric: Int32s  # index into the dictionary of names
    attributes: Int32s
    scope: Int32s  # index into the dictionary of scopes, -1: no scope
    kind: Int8s
    temporality: Int8s
    monotonic: Bools
    start: Int64s
    time: Int64s
    number: Int8s
    value: Doubles  # 0 when number is NONE
    value_int: Int64s  # 0 unless number is INT
    distribution: Int32s
    flags: Int8s  # bits, see FLAGS
    recorded: Bools  # P5
    reason: Int8s  # Reason
    series_id: Int64s  # of the client's series
    series: Int64s  # of all clients' series: the state's key


def read_points(
    decoded: Decoded,
    landed_at: Int64s,
    clients: Int64s,
    attributes: AttributeSets,
    bad_buckets: Bools,
    future_tolerance_s: int,
) -> Points:
    """Normalise (I4), identify (I1) and check (P3, P5, P8) the points, in the order of P0.

    Args:
        decoded: the decoder's columns, a payload per push.
        landed_at: landing time of each push, us.
        clients: `identity.client_keys` of each push.
        attributes: the normalised `decoded.attribute_sets`.
        bad_buckets: for each distribution, whether its buckets are inconsistent (P3).
        future_tolerance_s: how far a point's time may be after the landing time of its push (P8).
    """
    table = decoded.points.combine_chunks()
    metric, scope = _chunk(table, "metric"), _chunk(table, "scope")
    names = pa.array([], pa.string()) if metric is None else metric.dictionary
    scopes = pa.array([], pa.string()) if scope is None else scope.dictionary
    n = table.num_rows
    points = Points(
        push=column(table, "payload").astype(np.int64),
        metric=_indices(metric),
        attributes=column(table, "attributes"),
        scope=_indices(scope),
        kind=column(table, "kind"),
        temporality=column(table, "temporality"),
        monotonic=column(table, "is_monotonic").copy(),
        start=np.zeros(n, np.int64),
        time=np.zeros(n, np.int64),
        number=column(table, "number").copy(),
        value=column(table, "value", 0.0).copy(),
        value_int=column(table, "value_int", 0).copy(),
        distribution=column(table, "distribution"),
        flags=np.zeros(n, np.int8),
        recorded=np.zeros(n, np.bool_),
        reason=np.zeros(n, np.int8),
        series_id=np.zeros(n, np.uint64),
        series=np.zeros(n, np.uint64),
    )
    _check(
        points,
        column(table, "start_ns"),
        column(table, "time_ns"),
        column(table, "flags"),
        np.array([name.endswith(".total") for name in names.to_pylist()], np.bool_),
        np.array([name == FRANZ_GO_SCOPE for name in scopes.to_pylist()], np.bool_),
        attributes.duplicate,
        bad_buckets,
        landed_at,
        future_tolerance_s * 1_000_000,
    )
    _identify(
        points,
        clients.view(np.uint64),
        text_hashes(names),
        attributes.hashes,
        np.append(text_hashes(scopes), text_hashes(pa.array([""]))),
    )
    return points._replace(series_id=points.series_id.view(np.int64), series=points.series.view(np.int64))


def rejected(points: Points, where: Bools | Int64s, reason: Int8s | Reason) -> Points:
    """The points, those at `where` (one boolean a point, or indices) with another reason."""
    reasons = points.reason.copy()
    reasons[where] = reason
    return points._replace(reason=reasons)


def long_texts(decoded: Decoded, points: Points, max_bytes: int) -> Bools:
    """Which points have a name, a scope or attributes of more bytes than the limit."""
    long = (set_bytes(decoded.attribute_sets) > max_bytes)[points.attributes]
    for name, index in (("metric", points.metric), ("scope", points.scope)):
        texts = _chunk(decoded.points, name)
        if texts is not None and len(texts.dictionary):
            sizes = np.append(pc.binary_length(texts.dictionary).fill_null(0).to_numpy(zero_copy_only=False), 0)
            if sizes.max() > max_bytes:
                long |= sizes[index] > max_bytes  # -1: no scope
    too_long: Bools = long
    return too_long


def long_lists(decoded: Decoded) -> Int8s:
    """The reason of each point that has more attributes or buckets than the limits, else NONE."""
    excess = column(decoded.points, "excess")
    reasons = np.zeros(len(excess), np.int8)
    reasons[excess & Excess.BUCKETS != 0] = Reason.TOO_MANY_BUCKETS
    reasons[excess & Excess.ATTRIBUTES != 0] = Reason.TOO_MANY_ATTRIBUTES
    return reasons


def _chunk(table: pa.Table, name: str) -> pa.DictionaryArray | None:
    chunks = table[name]
    return one_chunk(chunks) if chunks.num_chunks else None


def _indices(array: pa.DictionaryArray | None) -> Int32s:
    indices: Int32s = np.zeros(0, np.int32)
    if array is not None:
        indices = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    indices.setflags(write=False)  # always, as Arrow's arrays: a kernel is compiled again for writable ones
    return indices


@kernel
def _check(
    points: Points,
    start_ns: UInt64s,
    time_ns: UInt64s,
    point_flags: UInt32s,
    is_total: Bools,
    is_franz_go: Bools,
    duplicate_attribute: Bools,
    bad_buckets: Bools,
    landed_at: Int64s,
    tolerance_us: int,
) -> None:
    latest = np.uint64(MAX_INT64)
    for i in range(len(start_ns)):
        points.recorded[i] = point_flags[i] & NO_RECORDED_VALUE == 0
        if duplicate_attribute[points.attributes[i]]:
            points.flags[i] |= DUPLICATE_ATTRIBUTE
        if points.scope[i] >= 0 and is_franz_go[points.scope[i]]:
            _correct_franz_go(points, i, is_total[points.metric[i]])
        if start_ns[i] <= latest:
            points.start[i] = start_ns[i]
        if time_ns[i] <= latest:
            points.time[i] = time_ns[i]
        if points.recorded[i]:
            bad = points.distribution[i] >= 0 and bad_buckets[points.distribution[i]]
            # Compared in us: landing times reach further than int64 ns.
            ahead_us = points.time[i] // 1000 - landed_at[points.push[i]]
            in_future = ahead_us > tolerance_us or (ahead_us == tolerance_us and points.time[i] % 1000 > 0)
            points.reason[i] = _reason(points, i, start_ns[i], time_ns[i], bad, in_future)
            if ahead_us > CLOCK_TOLERANCE_US:
                points.flags[i] |= CLOCK_AHEAD


@linked
def _correct_franz_go(points: Points, i: int, is_total: bool) -> None:
    """I4, franz-go: it leaves out zeros, and before 1.22 its counters aren't marked monotonic."""
    if points.kind[i] <= Kind.SUM and points.number[i] == Number.NONE and points.recorded[i]:
        points.number[i] = Number.INT
        points.flags[i] |= VALUE_ASSUMED
    if points.kind[i] == Kind.SUM and is_total and not points.monotonic[i]:
        points.monotonic[i] = True
        points.flags[i] |= MONOTONIC_ASSUMED


@linked
def _reason(points: Points, i: int, start: np.uint64, time: np.uint64, bad_buckets: bool, in_future: bool) -> Reason:
    kind = points.kind[i]
    is_interval = kind not in (Kind.GAUGE, Kind.SUMMARY)
    reason = Reason.NONE
    if time == 0:
        reason = Reason.NO_TIME
    elif kind <= Kind.SUM and points.number[i] == Number.NONE:
        reason = Reason.NO_VALUE
    elif is_interval and points.temporality[i] == Temporality.UNSPECIFIED:
        reason = Reason.UNKNOWN_TEMPORALITY
    elif is_interval and start > time and start - time > np.uint64(START_TOLERANCE_NS):
        reason = Reason.START_AFTER_TIME
    elif bad_buckets:
        reason = Reason.BAD_BUCKETS
    elif in_future or time > np.uint64(MAX_INT64):
        reason = Reason.FUTURE_TIME
    return reason


_mix = linked(mix)


@kernel
def _identify(points: Points, clients: UInt64s, metrics: UInt64s, attributes: UInt64s, scopes: UInt64s) -> None:
    """Hash the identity (I1), without and with the client. It excludes some fields on purpose (I2, I3)."""
    for i in range(len(points.series)):
        shape = np.uint64(points.kind[i] * 2 + points.monotonic[i])
        descriptor = _mix(_mix(metrics[points.metric[i]], attributes[points.attributes[i]]), scopes[points.scope[i]])
        points.series_id[i] = _mix(descriptor, shape)
        points.series[i] = _mix(_mix(clients[points.push[i]], descriptor), shape)


class PushTimes(NamedTuple):
    """Summary of each push's points, one row per push; times in ns, 0: none."""

    points: Int64s  # rows for metric_points
    quarantined: Int64s
    first_time: Int64s
    last_time: Int64s
    first_start: Int64s  # earliest start of DELTA points over a positive interval
    delta_time: Int64s  # latest time of DELTA points
    temporalities: Int8s  # bits: 1 DELTA, 2 CUMULATIVE


def push_times(points: Points, pushes: int) -> PushTimes:
    """Summarise the points of each push; quarantined ones are only counted."""
    kinds = {"temporalities": np.int8}
    times = PushTimes._make(np.zeros(pushes, kinds.get(name, np.int64)) for name in PushTimes._fields)
    _sum_up(points, times)
    return times


@kernel
def _sum_up(points: Points, times: PushTimes) -> None:
    for i in range(len(points.push)):
        p = points.push[i]
        if points.reason[i] != Reason.NONE:
            times.quarantined[p] += 1
            continue
        times.points[p] += 1
        times.temporalities[p] |= points.temporality[i]
        if not points.recorded[i]:  # its time may be anything, P8 doesn't look at it
            continue
        time, start = points.time[i], points.start[i]
        if times.first_time[p] == 0 or time < times.first_time[p]:
            times.first_time[p] = time
        times.last_time[p] = max(times.last_time[p], time)
        if points.temporality[i] == Temporality.DELTA:
            times.delta_time[p] = max(times.delta_time[p], time)
            # A zero interval covers no time: after a flip Java sends its lifetime total like this (C9).
            if 0 < start < time and (times.first_start[p] == 0 or start < times.first_start[p]):
                times.first_start[p] = start
