"""Cumulative points to deltas: C1 to C10 as a state machine per series, and what passes unchanged (P2 to P7)."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.compiled import kernel
from udfs.decoded import Kind, Number, Temporality
from udfs.distributions import (
    Distributions,
    Increments,
    Relation,
    difference,
    from_state,
    joined,
    no_increments,
    state_columns,
    without_first,
)
from udfs.hashing import number
from udfs.points import START_MOVED, Points, Reason
from udfs.redelivery import CUMULATIVE, DELTA, PushVerdicts, Verdict
from udfs.state import DISTRIBUTIONS, NUMBERS, ShardState, column

Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]


class Status(IntEnum):
    """`delta_status`; the texts are the names in lower case. NONE: no row for metric_points."""

    DELTA = 0
    LATE_DELTA = 1
    NEGATIVE = 2
    FIRST = 3
    RESET = 4
    INFERRED_RESET = 5
    CONVERTED = 6
    BOUNDS_CHANGED = 7
    FLIP_CONVERTED = 8
    BASELINE = 9
    FLIP_BASELINE = 10
    LATE = 11
    DUPLICATE = 12
    CONFLICT = 13
    TOO_LATE = 14
    NO_RECORDED_VALUE = 15
    NON_FINITE = 16
    VALUE = 17
    NONE = 18


class Converted(NamedTuple):
    """One row per point."""

    status: Int8s
    delta: Doubles  # NaN: none
    delta_int: Int64s
    is_int: Bools  # whether delta_int holds the delta exactly
    delta_start: Int64s  # ns, 0: none


class Baselines(NamedTuple):
    """The last accepted point of each series; value_int and value_double are two views of the same 8 bytes."""

    present: Bools
    epoch: Int64s
    start: Int64s
    time: Int64s
    delta_since: Bools  # ordinary DELTA points have passed since
    is_delta: Bools  # it was itself a lifetime total sent as DELTA
    is_int: Bools
    value_int: Int64s
    value_double: Doubles
    row: Int64s  # of the last distribution


class _Series(NamedTuple):
    """The series of a batch and of the state: state's rows first, then what is new, by first appearance."""

    client: Int64s
    series: Int64s
    base: Baselines


def convert(
    points: Points, rows: Distributions, verdicts: PushVerdicts, clients: Int64s, state: ShardState
) -> tuple[Converted, Increments, ShardState]:
    """Give every point its status and delta.

    Args:
        points: the points; START_MOVED is added to their flags.
        rows: the distributions that they refer to.
        verdicts: what the push-level rules say, one row per push.
        clients: `identity.client_keys` of each push.
        state: the rows of these clients; the push-level tables are passed on.

    Returns:
        One row per point, the increments of `rows`, the new state.
    """
    n = len(points.push)
    out = Converted(
        np.zeros(n, np.int8),
        np.full(n, math.nan),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
    )
    all_rows = joined(from_state(state.distributions), rows)
    increments = no_increments(all_rows)
    by_series = np.zeros(n, np.bool_)
    held = state.distributions.num_rows
    _pass_unchanged(points, verdicts, all_rows, held, out, increments, by_series)

    chosen = np.flatnonzero(by_series & (points.kind == Kind.SUM))
    series, group = _series(state.numbers, points, chosen, clients)
    series.base.is_int[: state.numbers.num_rows] = column(state.numbers, "is_int")
    series.base.value_int[: state.numbers.num_rows] = column(state.numbers, "value")
    order = _time_order(points, verdicts, chosen, group, series.base)
    _convert_numbers(points, verdicts, chosen, group, order, series.base, out)
    numbers = _series_columns(series, clients, verdicts)

    chosen = np.flatnonzero(by_series & (points.kind != Kind.SUM))
    series, group = _series(state.distributions, points, chosen, clients)
    series.base.row[:held] = np.arange(held)
    order = _time_order(points, verdicts, chosen, group, series.base)
    _convert_distributions(points, verdicts, chosen, group, order, series.base, all_rows, held, out, increments)
    distributions = _series_columns(series, clients, verdicts)
    distributions |= state_columns(all_rows, distributions.pop("row"))
    return (
        out,
        without_first(increments, all_rows, held),
        ShardState(
            state.clients,
            state.recent_pushes,
            state.lost_intervals,
            pa.table([numbers[name] for name in NUMBERS.names], NUMBERS),
            pa.table([distributions[name] for name in DISTRIBUTIONS.names], DISTRIBUTIONS),
        ),
    )


def _series(table: pa.Table, points: Points, chosen: Int64s, clients: Int64s) -> tuple[_Series, Int64s]:
    """The baselines in `table` with room for the chosen points' series, and the series of each of these points."""
    held = table.num_rows
    ids = np.concatenate([column(table, "series"), points.series[chosen]])
    group, size = number(ids)
    client, series = np.empty(size, np.int64), np.empty(size, np.int64)
    series[group] = ids
    client[group] = np.concatenate([column(table, "client"), clients[points.push[chosen]]])
    value = np.zeros(size, np.int64)
    base = Baselines(
        present=np.arange(size) < held,
        epoch=np.zeros(size, np.int64),
        start=np.zeros(size, np.int64),
        time=np.zeros(size, np.int64),
        delta_since=np.zeros(size, np.bool_),
        is_delta=np.zeros(size, np.bool_),
        is_int=np.zeros(size, np.bool_),
        value_int=value,
        value_double=value.view(np.float64),
        row=np.zeros(size, np.int64),
    )
    for name in ("start", "time", "delta_since", "is_delta"):
        getattr(base, name)[:held] = column(table, name)
    return _Series(client, series, base), group[held:]


def _series_columns(series: _Series, clients: Int64s, verdicts: PushVerdicts) -> dict[str, npt.NDArray[Any]]:
    """The baselines for the state, less those from before their client's eviction."""
    base = series.base
    keep = base.present
    if verdicts.epoch.any():
        index, size = number(np.concatenate([clients, series.client]))
        last = np.zeros(size, np.int64)
        np.maximum.at(last, index[: len(clients)], verdicts.epoch)
        keep = keep & (base.epoch == last[index[len(clients) :]])
    columns = {"client": series.client, "series": series.series, "value": base.value_int, **base._asdict()}
    return {name: values[keep] for name, values in columns.items()}


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
    held: int,
    out: Converted,
    increments: Increments,
    by_series: Bools,
) -> None:
    """Everything but C1 to C9: sets `by_series` for the points that those rules decide on."""
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
            # C9: only of a client that has sent totals may the series have a baseline.
            by_series[i] = verdicts.sent[push] & CUMULATIVE != 0 and _is_monotonic(points, i)
            _pass_delta(points, verdicts, i, rows, held, out, increments)


@kernel
def _is_monotonic(points: Points, i: int) -> bool:
    monotonic: bool = points.kind[i] != Kind.SUM or points.monotonic[i]
    return monotonic


@kernel
def _pass_delta(
    points: Points,
    verdicts: PushVerdicts,
    i: int,
    rows: Distributions,
    held: int,
    out: Converted,
    increments: Increments,
) -> None:
    push = points.push[i]
    out.is_int[i] = points.number[i] == Number.INT
    if verdicts.sent[push] & CUMULATIVE and points.start[i] >= points.time[i]:  # C9: a lifetime total
        out.status[i] = Status.FLIP_BASELINE
        out.delta[i] = 0.0
        return
    out.status[i] = Status.DELTA
    if verdicts.found_end[push] != 0:
        out.status[i] = Status.LATE_DELTA
    elif points.kind[i] == Kind.SUM and points.monotonic[i] and points.value[i] < 0:
        out.status[i] = Status.NEGATIVE
    out.delta_start[i] = points.start[i]
    out.delta[i], out.delta_int[i] = points.value[i], points.value_int[i]
    if points.distribution[i] >= 0:
        _count_in_full(rows, held + points.distribution[i], increments)


@kernel
def _judge(points: Points, verdicts: PushVerdicts, i: int, base: Baselines, g: int, relation: Relation) -> Status:
    """The status of point `i` of series `g`, whose value stands in `relation` to the baseline's."""
    known = base.present[g]
    if known and points.time[i] < base.time[g]:  # C2
        return Status.LATE
    if known and points.time[i] == base.time[g]:
        return Status.DUPLICATE if relation == Relation.EQUAL else Status.CONFLICT
    if points.temporality[i] == Temporality.DELTA:  # C9
        # Of a total that deltas came after, some of the growth has been counted.
        is_uncounted = known and not base.delta_since[g] and relation != Relation.FELL
        return Status.FLIP_CONVERTED if is_uncounted else Status.FLIP_BASELINE
    if known and not base.delta_since[g] and not base.is_delta[g]:
        return _judge_next(points, i, base, g, relation)
    return _judge_first(points, verdicts, i, base, g)


@kernel
def _judge_first(points: Points, verdicts: PushVerdicts, i: int, base: Baselines, g: int) -> Status:
    start, push = points.start[i], points.push[i]
    has_start = 0 < start < points.time[i]
    has_sent_delta = verdicts.sent[push] & DELTA != 0
    is_new = has_sent_delta and has_start and start > verdicts.delta_time[push]
    if (has_sent_delta or base.present[g]) and not is_new:  # C9: its increments have passed as deltas
        return Status.FLIP_BASELINE
    is_counted = not base.present[g] and start <= verdicts.tombstone_time[push]  # C12
    return Status.FIRST if has_start and not is_counted else Status.BASELINE  # C3


@kernel
def _judge_next(points: Points, i: int, base: Baselines, g: int, relation: Relation) -> Status:
    start, time = points.start[i], points.time[i]
    if start != base.start[g] and start >= time:  # C4
        return Status.BASELINE
    if start != base.start[g] and start >= base.time[g]:
        return Status.RESET
    if relation == Relation.FELL:  # C5
        return Status.INFERRED_RESET
    if start != base.start[g]:
        points.flags[i] |= START_MOVED
    return Status.BOUNDS_CHANGED if relation == Relation.REBUCKETED else Status.CONVERTED


@kernel
def _forget_evicted(verdicts: PushVerdicts, push: int, base: Baselines, g: int) -> None:
    if base.epoch[g] != verdicts.epoch[push]:
        base.epoch[g] = verdicts.epoch[push]
        base.present[g] = base.delta_since[g] = base.is_delta[g] = False


@kernel
def _is_ordinary_delta(points: Points, i: int, base: Baselines, g: int) -> bool:
    """A DELTA point that isn't a lifetime total only leaves its mark on the baseline."""
    if points.temporality[i] != Temporality.DELTA or points.start[i] >= points.time[i]:
        return False
    if base.present[g] and points.time[i] > base.time[g]:
        base.delta_since[g] = True
    return True


@kernel
def _accept(points: Points, i: int, base: Baselines, g: int) -> None:
    base.present[g] = True
    base.start[g], base.time[g] = points.start[i], points.time[i]
    base.delta_since[g] = False
    base.is_delta[g] = points.temporality[i] == Temporality.DELTA


@kernel
def _convert_numbers(
    points: Points,
    verdicts: PushVerdicts,
    chosen: Int64s,
    group: Int64s,
    order: Int64s,
    base: Baselines,
    out: Converted,
) -> None:
    for k in order:
        i, g = chosen[k], group[k]
        _forget_evicted(verdicts, points.push[i], base, g)
        if _is_ordinary_delta(points, i, base, g):
            continue
        # P7: a series is int64 for as long as all its points are.
        is_int = points.number[i] == Number.INT and (base.is_int[g] or not base.present[g])
        old = float(base.value_int[g]) if base.is_int[g] else base.value_double[g]
        if is_int:
            fell, equal = points.value_int[i] < base.value_int[g], points.value_int[i] == base.value_int[g]
        else:
            fell, equal = points.value[i] < old, points.value[i] == old
        relation = Relation.FELL if fell else Relation.EQUAL if equal else Relation.GREW
        status = _judge(points, verdicts, i, base, g, relation)
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
            if out.delta_int[i] < 0:  # it grew by more than int64 holds
                out.delta[i] = points.value[i] - old
                out.is_int[i] = False
        else:
            out.delta[i] = points.value[i] - old
        out.delta_start[i] = _delta_start(points, i, base, g, status)
        _accept(points, i, base, g)
        base.is_int[g] = is_int
        if is_int:
            base.value_int[g] = points.value_int[i]
        else:
            base.value_double[g] = points.value[i]


@kernel
def _delta_start(points: Points, i: int, base: Baselines, g: int, status: Status) -> int:
    start: int = base.time[g]
    if status in (Status.FIRST, Status.RESET):
        start = points.start[i]
    elif status in (Status.BASELINE, Status.FLIP_BASELINE):
        start = 0
    return start


@kernel
def _convert_distributions(
    points: Points,
    verdicts: PushVerdicts,
    chosen: Int64s,
    group: Int64s,
    order: Int64s,
    base: Baselines,
    rows: Distributions,
    held: int,
    out: Converted,
    increments: Increments,
) -> None:
    for k in order:
        i, g = chosen[k], group[k]
        row = held + points.distribution[i]
        _forget_evicted(verdicts, points.push[i], base, g)
        if _is_ordinary_delta(points, i, base, g):
            continue
        relation = difference(rows, base.row[g], row, increments) if base.present[g] else Relation.GREW
        status = _judge(points, verdicts, i, base, g, relation)
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
        _accept(points, i, base, g)
        base.row[g] = row


@kernel
def _count_in_full(rows: Distributions, row: int, increments: Increments) -> None:
    increments.observations[row] = rows.observations[row]
    increments.sum[row] = rows.sum[row]
    increments.zero_count[row] = rows.zero_count[row]
    for k in range(rows.positive_first[row], rows.positive_first[row + 1]):
        increments.positive[k] = rows.positive[k]
    for k in range(rows.negative_first[row], rows.negative_first[row + 1]):
        increments.negative[k] = rows.negative[k]


@kernel
def _count_nothing(rows: Distributions, row: int, increments: Increments) -> None:
    increments.observations[row] = increments.zero_count[row] = 0
    increments.sum[row] = 0.0 if not math.isnan(rows.sum[row]) else math.nan
    for k in range(rows.positive_first[row], rows.positive_first[row + 1]):
        increments.positive[k] = 0
    for k in range(rows.negative_first[row], rows.negative_first[row + 1]):
        increments.negative[k] = 0
