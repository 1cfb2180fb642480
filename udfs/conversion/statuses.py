"""The status of a converted point, which follows from the last accepted point of its series, the baseline."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.distributions import Relation
from kafka_telemetry_lake.udfs.conversion.points import CLOCK_AHEAD, START_MOVED, Points
from kafka_telemetry_lake.udfs.conversion.redelivery import DELTA, PushVerdicts
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int8s, Int64s, column
from kafka_telemetry_lake.udfs.kernels.compiled import linked
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.otlp.decoded import Temporality


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
    """The status and delta of each point, one row per point."""

    status: Int8s
    delta: Doubles  # NaN: none
    delta_int: Int64s
    is_int: Bools  # whether delta_int is the exact delta
    delta_start: Int64s  # ns, 0: none


class Baselines(NamedTuple):
    """The last accepted point of each series; value_int and value_double are two views of the same 8 bytes."""

    present: Bools
    epoch: Int64s
    start: Int64s
    time: Int64s
    delta_since: Bools  # ordinary DELTA points have come since
    is_delta: Bools  # it was itself a lifetime total sent as DELTA
    ahead: Bools  # its time was ahead of its landing (C13)
    is_int: Bools
    value_int: Int64s
    value_double: Doubles
    row: Int64s  # of the last distribution, in the state's and then the batch's


class SeriesBaselines(NamedTuple):
    """The series of the state, in its order, then the new ones of the batch, by first appearance."""

    client: Int64s
    series: Int64s
    base: Baselines


def series_of(table: pa.Table, points: Points, chosen: Int64s, clients: Int64s) -> tuple[SeriesBaselines, Int64s]:
    """The baselines in `table` with room for the chosen points' series, and the series of each of these points."""
    stored_rows = table.num_rows
    ids = np.concatenate([column(table, "series"), points.series[chosen]])
    owner = np.concatenate([column(table, "client"), clients[points.push[chosen]]])
    group, size = number(ids)
    client, series = np.empty(size, np.int64), np.empty(size, np.int64)
    client[group] = owner
    if not np.array_equal(client[group], owner):  # a name was forged to have the hash of another client's series
        group, size = _number_pairs(owner, ids)
        client, series = np.empty(size, np.int64), np.empty(size, np.int64)
        client[group] = owner
    series[group] = ids
    value = np.zeros(size, np.int64)
    base = Baselines(
        present=np.arange(size) < stored_rows,
        epoch=np.zeros(size, np.int64),
        start=np.zeros(size, np.int64),
        time=np.zeros(size, np.int64),
        delta_since=np.zeros(size, np.bool_),
        is_delta=np.zeros(size, np.bool_),
        ahead=np.zeros(size, np.bool_),
        is_int=np.zeros(size, np.bool_),
        value_int=value,
        value_double=value.view(np.float64),
        row=np.zeros(size, np.int64),
    )
    for name in ("start", "time", "delta_since", "is_delta", "ahead"):
        getattr(base, name)[:stored_rows] = column(table, name)
    return SeriesBaselines(client, series, base), group[stored_rows:]


def _number_pairs(left: Int64s, right: Int64s) -> tuple[Int64s, int]:
    """`hashing.number` of pairs."""
    _, first, pair = np.unique(np.stack([left, right]), axis=1, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[pair.ravel()], len(first)


def series_columns(series: SeriesBaselines, clients: Int64s, verdicts: PushVerdicts) -> dict[str, npt.NDArray[Any]]:
    """The baselines for the new state, sorted by client, without those from before their client's eviction."""
    base = series.base
    keep = base.present
    if verdicts.epoch.any():
        index, size = number(np.concatenate([clients, series.client]))
        last = np.zeros(size, np.int64)
        np.maximum.at(last, index[: len(clients)], verdicts.epoch)
        keep = keep & (base.epoch == last[index[len(clients) :]])
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.argsort(series.client[chosen], kind="stable")]
    columns = {"client": series.client, "series": series.series, "value": base.value_int, **base._asdict()}
    return {name: values[chosen] for name, values in columns.items()}


@linked
def forget_evicted(verdicts: PushVerdicts, push: int, base: Baselines, g: int) -> None:
    if base.epoch[g] != verdicts.epoch[push]:
        base.epoch[g] = verdicts.epoch[push]
        base.present[g] = base.delta_since[g] = base.is_delta[g] = False


@linked
def is_ordinary_delta(points: Points, i: int, base: Baselines, g: int) -> bool:
    """Whether this is a DELTA point, but no lifetime total; the baseline then only records that it came."""
    if points.temporality[i] != Temporality.DELTA or points.start[i] >= points.time[i]:
        return False
    if base.present[g] and points.time[i] > base.time[g]:
        base.delta_since[g] = True
    return True


@linked
def accept(points: Points, i: int, base: Baselines, g: int) -> None:
    base.present[g] = True
    base.start[g], base.time[g] = points.start[i], points.time[i]
    base.delta_since[g] = False
    base.is_delta[g] = points.temporality[i] == Temporality.DELTA
    base.ahead[g] = points.flags[i] & CLOCK_AHEAD != 0


@linked
def status_of(
    points: Points, verdicts: PushVerdicts, i: int, base: Baselines, g: int, relation: Relation, jump: int
) -> Status:
    """The status of point `i` of series `g`; `relation` compares its value with the baseline's."""
    has_base = base.present[g]
    if has_base and points.time[i] == base.time[g]:  # C2
        return Status.DUPLICATE if relation == Relation.EQUAL else Status.CONFLICT
    is_cumulative = points.temporality[i] != Temporality.DELTA
    has_total = has_base and not base.delta_since[g] and not base.is_delta[g]
    one_life = has_total and is_cumulative and points.start[i] == base.start[g]
    is_late = has_base and points.time[i] < base.time[g]  # C2
    if one_life and (base.ahead[g] or points.flags[i] & CLOCK_AHEAD != 0):  # C13
        if is_late and relation == Relation.GREW:
            return Status.CONVERTED
        is_late = is_late or (relation == Relation.FELL and points.time[i] - base.time[g] <= 2 * jump)
    if is_late:
        return Status.LATE
    if not is_cumulative:  # C9
        # If deltas came after the total, part of its growth has been counted.
        is_uncounted = has_base and not base.delta_since[g] and relation != Relation.FELL
        return Status.FLIP_CONVERTED if is_uncounted else Status.FLIP_BASELINE
    if has_total:
        return _status_of_next(points, i, base, g, relation)
    return _status_of_first(points, verdicts, i, base, g)


@linked
def _status_of_first(points: Points, verdicts: PushVerdicts, i: int, base: Baselines, g: int) -> Status:
    start, push = points.start[i], points.push[i]
    has_start = 0 < start < points.time[i]
    has_sent_delta = verdicts.sent[push] & DELTA != 0
    is_new = has_sent_delta and has_start and start > verdicts.delta_time[push]
    if (has_sent_delta or base.present[g]) and not is_new:  # C9: its increments came as deltas
        return Status.FLIP_BASELINE
    is_counted = not base.present[g] and start <= verdicts.tombstone_time[push]  # C12
    return Status.FIRST if has_start and not is_counted else Status.BASELINE  # C3


@linked
def _status_of_next(points: Points, i: int, base: Baselines, g: int, relation: Relation) -> Status:
    start, time = points.start[i], points.time[i]
    if start != base.start[g] and start >= time:  # C4
        return Status.BASELINE
    if start != base.start[g] and start >= base.time[g]:
        return Status.RESET
    if relation == Relation.FELL:  # C5
        return Status.INFERRED_RESET
    if start != base.start[g]:
        points.flags[i] |= START_MOVED
    return Status.BOUNDS_CHANGED if relation == Relation.REBUCKETED else Status.CONVERTED  # C7, C6
