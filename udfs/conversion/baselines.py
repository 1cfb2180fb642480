"""The baseline of each series: its last accepted point, to which the next point is compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.points import CLOCK_AHEAD, Points
from kafka_telemetry_lake.udfs.conversion.redelivery import PushVerdicts
from kafka_telemetry_lake.udfs.conversion.state import column
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s
from kafka_telemetry_lake.udfs.kernels.compiled import linked
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.otlp.decoded import Temporality


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


class Series(NamedTuple):
    """The series of the state, in its order, then the new ones of the batch, by first appearance."""

    client: Int64s
    series: Int64s
    base: Baselines


def series_of(table: pa.Table, points: Points, chosen: Int64s, clients: Int64s) -> tuple[Series, Int64s]:
    """The baselines in `table` with room for the chosen points' series, and the series of each of these points."""
    stored_rows = table.num_rows
    ids = np.concatenate([column(table, "series"), points.series[chosen]])
    group, size = number(ids)
    client, series = np.empty(size, np.int64), np.empty(size, np.int64)
    series[group] = ids
    client[group] = np.concatenate([column(table, "client"), clients[points.push[chosen]]])
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
    return Series(client, series, base), group[stored_rows:]


def series_columns(series: Series, clients: Int64s, verdicts: PushVerdicts) -> dict[str, npt.NDArray[Any]]:
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
