"""Converts cumulative points to deltas, by a state machine per series (C1 to C10); others pass unchanged (P2 to P7)."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.distributions import (
    Distributions,
    Increments,
    Relation,
    difference,
    from_state,
    no_increments,
    state_columns,
)
from kafka_telemetry_lake.udfs.conversion.points import Points, Reason
from kafka_telemetry_lake.udfs.conversion.redelivery import CUMULATIVE, PushVerdicts, Verdict
from kafka_telemetry_lake.udfs.conversion.state import DISTRIBUTIONS, NUMBERS, ShardState
from kafka_telemetry_lake.udfs.conversion.statuses import (
    Baselines,
    Converted,
    Status,
    accept,
    forget_evicted,
    is_ordinary_delta,
    series_columns,
    series_of,
    status_of,
)
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, column
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked
from kafka_telemetry_lake.udfs.kernels.ragged import copy
from kafka_telemetry_lake.udfs.otlp.decoded import Kind, Number, Temporality


def convert(
    points: Points,
    rows: Distributions,
    verdicts: PushVerdicts,
    clients: Int64s,
    state: ShardState,
    future_tolerance_s: int,
) -> tuple[Converted, Increments, ShardState]:
    """Give every point its status and delta.

    Args:
        points: the points; START_MOVED is added to their flags.
        rows: the distributions that the points refer to.
        verdicts: results of the push-level rules, one row per push.
        clients: `identity.client_keys` of each push.
        state: the rows of these clients; its push-level tables are returned unchanged.
        future_tolerance_s: how far clocks may be ahead (P8, C13).

    Returns:
        One row per point, the increments of `rows`, the new state.
    """
    n = len(points.push)
    out = Converted(
        np.zeros(n, np.int8), np.full(n, math.nan), np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.int64)
    )
    stored = from_state(state.distributions)
    increments = no_increments(rows)
    by_series = np.zeros(n, np.bool_)
    jump = future_tolerance_s * 1_000_000_000
    _pass_unchanged(points, verdicts, rows, out, increments, by_series)

    chosen = np.flatnonzero(by_series & (points.kind == Kind.SUM))
    series, group = series_of(state.numbers, points, chosen, clients)
    series.base.is_int[: state.numbers.num_rows] = column(state.numbers, "is_int")
    series.base.value_int[: state.numbers.num_rows] = column(state.numbers, "value")
    order = _time_order(points, verdicts, chosen, group, series.base)
    _convert_numbers(points, verdicts, chosen, group, order, series.base, jump, out)
    numbers = series_columns(series, clients, verdicts)

    chosen = np.flatnonzero(by_series & (points.kind != Kind.SUM))
    series, group = series_of(state.distributions, points, chosen, clients)
    series.base.row[: len(stored.kind)] = np.arange(len(stored.kind))
    order = _time_order(points, verdicts, chosen, group, series.base)
    _convert_distributions(points, verdicts, chosen, group, order, series.base, stored, rows, jump, out, increments)
    distributions = series_columns(series, clients, verdicts)
    distributions |= state_columns(stored, rows, distributions.pop("row"))
    return (
        out,
        increments,
        ShardState(
            state.clients,
            state.recent_pushes,
            state.lost_intervals,
            pa.table([numbers[name] for name in NUMBERS.names], NUMBERS),
            pa.table([distributions[name] for name in DISTRIBUTIONS.names], DISTRIBUTIONS),
        ),
    )


def _time_order(points: Points, verdicts: PushVerdicts, chosen: Int64s, group: Int64s, base: Baselines) -> Int64s:
    """C1: an order of the chosen points in which every series' times rise; ties in order of arrival."""
    epoch = verdicts.epoch[points.push[chosen]]
    time = points.time[chosen]
    if _is_ordered(group, epoch, time, np.zeros(len(base.time), np.int64), np.zeros(len(base.time), np.int64)):
        return np.arange(len(chosen))
    return np.lexsort((time, epoch))


@kernel
def _is_ordered(group: Int64s, epoch: Int64s, time: Int64s, last_epoch: Int64s, last_time: Int64s) -> bool:
    for i in range(len(group)):
        g = group[i]
        if epoch[i] == last_epoch[g] and time[i] < last_time[g]:
            return False
        last_epoch[g], last_time[g] = epoch[i], time[i]
    return True


@kernel
def _pass_unchanged(
    points: Points,
    verdicts: PushVerdicts,
    rows: Distributions,
    out: Converted,
    increments: Increments,
    by_series: Bools,
) -> None:
    """Apply the rules other than C1 to C9 (P1, P2, P4 to P6); set `by_series` for points that C1 to C9 decide."""
    for i in range(len(points.push)):
        push, kind = points.push[i], points.kind[i]
        is_cumulative = points.temporality[i] == Temporality.CUMULATIVE
        if points.reason[i] != Reason.NONE or verdicts.verdict[push] == Verdict.REREAD:
            out.status[i] = Status.NONE
        elif verdicts.verdict[push] == Verdict.DUPLICATE:
            out.status[i] = Status.DUPLICATE
        elif verdicts.verdict[push] == Verdict.TOO_LATE:
            out.status[i] = Status.TOO_LATE
        elif not points.recorded[i]:
            out.status[i] = Status.NO_RECORDED_VALUE
        elif not math.isfinite(points.value[i]):
            out.status[i] = Status.NON_FINITE
        elif kind in (Kind.GAUGE, Kind.SUMMARY) or (is_cumulative and not _is_monotonic(points, i)):
            out.status[i] = Status.VALUE
        elif is_cumulative:
            by_series[i] = True
        else:
            # C9: the series can have a baseline only if its client has sent totals.
            by_series[i] = verdicts.sent[push] & CUMULATIVE != 0 and _is_monotonic(points, i)
            _pass_delta(points, verdicts, i, rows, out, increments)


@linked
def _is_monotonic(points: Points, i: int) -> bool:
    monotonic: bool = points.kind[i] != Kind.SUM or points.monotonic[i]
    return monotonic


@linked
def _pass_delta(
    points: Points, verdicts: PushVerdicts, i: int, rows: Distributions, out: Converted, increments: Increments
) -> None:
    push = points.push[i]
    out.is_int[i] = points.number[i] == Number.INT
    if verdicts.sent[push] & CUMULATIVE and points.start[i] >= points.time[i]:  # C9: a lifetime total
        out.status[i] = Status.FLIP_BASELINE
        out.delta[i] = 0.0
        return
    out.status[i] = Status.DELTA
    if verdicts.filled_end[push] != 0:
        out.status[i] = Status.LATE_DELTA
    elif points.kind[i] == Kind.SUM and points.monotonic[i] and points.value[i] < 0:
        out.status[i] = Status.NEGATIVE
    out.delta_start[i] = points.start[i]
    out.delta[i], out.delta_int[i] = points.value[i], points.value_int[i]
    if points.distribution[i] >= 0:
        _count_in_full(rows, points.distribution[i], increments)


@kernel
def _convert_numbers(
    points: Points,
    verdicts: PushVerdicts,
    chosen: Int64s,
    group: Int64s,
    order: Int64s,
    base: Baselines,
    jump: int,
    out: Converted,
) -> None:
    for k in order:
        i, g = chosen[k], group[k]
        forget_evicted(verdicts, points.push[i], base, g)
        if is_ordinary_delta(points, i, base, g):
            continue
        # P7: a series is int64 while all its points are.
        is_int = points.number[i] == Number.INT and (base.is_int[g] or not base.present[g])
        old = float(base.value_int[g]) if base.is_int[g] else base.value_double[g]
        if is_int:
            fell, equal = points.value_int[i] < base.value_int[g], points.value_int[i] == base.value_int[g]
        else:
            fell, equal = points.value[i] < old, points.value[i] == old
        relation = Relation.FELL if fell else Relation.EQUAL if equal else Relation.GREW
        status = status_of(points, verdicts, i, base, g, relation, jump)
        out.status[i] = status
        if status in (Status.LATE, Status.DUPLICATE, Status.CONFLICT):
            out.delta[i], out.is_int[i] = math.nan, False
            continue
        out.is_int[i] = is_int
        if status in (Status.FIRST, Status.RESET, Status.INFERRED_RESET):
            out.delta[i], out.delta_int[i] = points.value[i], points.value_int[i]
        elif status in (Status.BASELINE, Status.FLIP_BASELINE):
            out.delta[i] = 0.0
        elif is_int:
            out.delta_int[i] = points.value_int[i] - base.value_int[g]
            out.delta[i] = float(out.delta_int[i])
            if out.delta_int[i] < 0:  # it grew by more than the range of int64
                out.delta[i] = points.value[i] - old
                out.is_int[i] = False
        else:
            out.delta[i] = points.value[i] - old
        out.delta_start[i] = _delta_start(points, i, base, g, status)
        accept(points, i, base, g)
        base.is_int[g] = is_int
        if is_int:
            base.value_int[g] = points.value_int[i]
        else:
            base.value_double[g] = points.value[i]


@linked
def _delta_start(points: Points, i: int, base: Baselines, g: int, status: Status) -> int:
    start: int = base.time[g]
    if status in (Status.FIRST, Status.RESET):
        start = points.start[i]
    elif status in (Status.BASELINE, Status.FLIP_BASELINE):
        start = 0
    return start if start <= points.time[i] else 0  # C13: the clock was set back since


@kernel
def _convert_distributions(
    points: Points,
    verdicts: PushVerdicts,
    chosen: Int64s,
    group: Int64s,
    order: Int64s,
    base: Baselines,
    stored: Distributions,
    rows: Distributions,
    jump: int,
    out: Converted,
    increments: Increments,
) -> None:
    stored_rows = len(stored.kind)
    for k in order:
        i, g = chosen[k], group[k]
        row, before = points.distribution[i], base.row[g]
        forget_evicted(verdicts, points.push[i], base, g)
        if is_ordinary_delta(points, i, base, g):
            continue
        relation = Relation.GREW
        if base.present[g] and before < stored_rows:
            relation = difference(stored, before, rows, row, increments)
        elif base.present[g]:
            relation = difference(rows, before - stored_rows, rows, row, increments)
        status = status_of(points, verdicts, i, base, g, relation, jump)
        out.status[i] = status
        if status in (Status.LATE, Status.DUPLICATE, Status.CONFLICT):
            continue
        if status in (Status.FIRST, Status.RESET, Status.INFERRED_RESET):
            _count_in_full(rows, row, increments)
        elif status in (Status.BASELINE, Status.FLIP_BASELINE):
            _count_nothing(rows, row, increments)
        else:
            increments.buckets[row] = relation != Relation.REBUCKETED
        out.delta_start[i] = _delta_start(points, i, base, g, status)
        accept(points, i, base, g)
        base.row[g] = stored_rows + row


@linked
def _count_in_full(rows: Distributions, row: int, increments: Increments) -> None:
    increments.observations[row] = rows.observations[row]
    increments.sum[row] = rows.sum[row]
    increments.zero_count[row] = rows.zero_count[row]
    counts, positive, negative = _buckets_of(rows, row, rows.counts, rows.positive, rows.negative)
    counts_increments, positive_increments, negative_increments = _buckets_of(
        rows, row, increments.counts, increments.positive, increments.negative
    )
    copy(counts, counts_increments)
    copy(positive, positive_increments)
    copy(negative, negative_increments)


@linked
def _count_nothing(rows: Distributions, row: int, increments: Increments) -> None:
    increments.observations[row] = increments.zero_count[row] = 0
    increments.sum[row] = 0.0 if not math.isnan(rows.sum[row]) else math.nan
    counts, positive, negative = _buckets_of(rows, row, increments.counts, increments.positive, increments.negative)
    for buckets in (counts, positive, negative):
        for k in range(len(buckets)):
            buckets[k] = 0


@linked
def _buckets_of(
    rows: Distributions, row: int, counts: Int64s, positive: Int64s, negative: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """The parts of these columns that are the row's."""
    return (
        counts[rows.counts_first[row] : rows.counts_first[row + 1]],
        positive[rows.positive_first[row] : rows.positive_first[row + 1]],
        negative[rows.negative_first[row] : rows.negative_first[row + 1]],
    )
