"""The status and the delta of a converted point."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int8s, Int64s


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
