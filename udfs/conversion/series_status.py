"""The status of a cumulative point, by its time, start and value and its series' baseline (C2 to C7, C9, C12, C13)."""

from __future__ import annotations

from kafka_telemetry_lake.udfs.conversion.baselines import Baselines
from kafka_telemetry_lake.udfs.conversion.distributions import Relation
from kafka_telemetry_lake.udfs.conversion.points import CLOCK_AHEAD, START_MOVED, Points
from kafka_telemetry_lake.udfs.conversion.redelivery import DELTA, PushVerdicts
from kafka_telemetry_lake.udfs.conversion.statuses import Status
from kafka_telemetry_lake.udfs.kernels.compiled import linked
from kafka_telemetry_lake.udfs.otlp.decoded import Temporality


@linked
def judge(
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
        return _judge_next(points, i, base, g, relation)
    return _judge_first(points, verdicts, i, base, g)


@linked
def _judge_first(points: Points, verdicts: PushVerdicts, i: int, base: Baselines, g: int) -> Status:
    start, push = points.start[i], points.push[i]
    has_start = 0 < start < points.time[i]
    has_sent_delta = verdicts.sent[push] & DELTA != 0
    is_new = has_sent_delta and has_start and start > verdicts.delta_time[push]
    if (has_sent_delta or base.present[g]) and not is_new:  # C9: its increments came as deltas
        return Status.FLIP_BASELINE
    is_counted = not base.present[g] and start <= verdicts.tombstone_time[push]  # C12
    return Status.FIRST if has_start and not is_counted else Status.BASELINE  # C3


@linked
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
    return Status.BOUNDS_CHANGED if relation == Relation.REBUCKETED else Status.CONVERTED  # C7, C6
