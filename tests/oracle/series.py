"""Rules for the points of one series in time order: P2, P4, P6 and C1 to C10."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.oracle.model import CUMULATIVE, DELTA, HOUR_NS, Increment, Judged, Point
from tests.oracle.points import is_ahead, p6_non_finite
from tests.oracle.pushes import PushVerdict
from tests.oracle.totals import bounds_changed, fell, full, minus, nothing, same_total


@dataclass
class Series:
    """The state of a series: its last total, and whether deltas have come since."""

    last: Point
    flipped: bool = False  # the last total was sent as DELTA (C9)
    deltas_since: bool = False
    ahead: bool = False  # the last total's clock ran ahead of its landing


def convert(series: Series | None, judged: Judged, verdict: PushVerdict) -> Series | None:
    """Give the point its status and increment; returns the series' new state."""
    point = judged.point
    if p6_non_finite(point):
        judged.status = "non_finite"
        return series
    if point.kind in ("gauge", "summary") or (not point.is_monotonic and point.temporality == CUMULATIVE):
        judged.status = "value"  # P4
        return series
    if point.temporality == DELTA and not c9_is_flip(point, verdict):
        return p2_delta(series, judged, verdict)
    return convert_total(series, judged, verdict)


def c9_is_flip(point: Point, verdict: PushVerdict) -> bool:
    """A lifetime total under the name DELTA: start >= time, from a client that has sent CUMULATIVE."""
    return point.start_ns >= point.time_ns and CUMULATIVE in verdict.sent_before


def p2_delta(series: Series | None, judged: Judged, verdict: PushVerdict) -> Series | None:
    point = judged.point
    judged.increment = full(point, point.start_ns or None)
    falls = point.kind == "sum" and point.is_monotonic and point.number < 0  # type: ignore[operator]  # C10
    judged.status = "late_delta" if verdict.fills_gap else "negative" if falls else "delta"
    if series is not None and point.time_ns > series.last.time_ns:
        series.deltas_since = True
    return series


def convert_total(series: Series | None, judged: Judged, verdict: PushVerdict) -> Series | None:
    point = judged.point
    if point.kind == "sum" and not point.is_monotonic:
        judged.status, judged.increment = "flip_baseline", nothing(point)  # P4: its totals are not stored
        return series
    if series is not None:
        refused = c2_refused(series.last, point)
        if c13_uncertain(series, judged):
            refused = c13_refused(series.last, point, refused)
        if refused:
            judged.status = refused
            return series
        point = p7_as_double(point, series.last)
    elif verdict.tombstone_time is not None and point.time_ns <= verdict.tombstone_time:
        judged.status = "late"  # its increments were counted before the eviction
        return None
    judged.status, judged.increment = (
        c9_to_delta(series, point) if point.temporality == DELTA else cumulative(series, judged, point, verdict)
    )
    if judged.increment.start_ns is not None and judged.increment.start_ns > point.time_ns:
        judged.increment = replace(judged.increment, start_ns=None)
    return Series(point, flipped=point.temporality == DELTA, ahead=is_ahead(judged.push, point))


def p7_as_double(point: Point, last: Point) -> Point:
    """A series that has been double stays double."""
    if isinstance(last.number, float) and point.number is not None:
        return replace(point, number=float(point.number))
    return point


def c2_refused(last: Point, point: Point) -> str | None:
    if point.time_ns < last.time_ns:
        return "late"
    if point.time_ns == last.time_ns:
        return "duplicate" if same_total(point, last) else "conflict"
    return None


def c13_uncertain(series: Series, judged: Judged) -> bool:
    """A clock ran ahead, so times don't tell the order of these two totals of one life."""
    one_life = judged.point.start_ns == series.last.start_ns and not series.flipped and not series.deltas_since
    return one_life and judged.point.temporality == CUMULATIVE and (
        series.ahead or is_ahead(judged.push, judged.point)
    )  # fmt: skip


def c13_refused(last: Point, point: Point, refused: str | None) -> str | None:
    """Values tell it: what is more came later; what is less came before, unless it is two hours later."""
    if point.time_ns == last.time_ns:
        return refused
    if fell(point, last):
        return "late" if point.time_ns <= last.time_ns + 2 * HOUR_NS else None
    grew = not same_total(point, last) and not bounds_changed(point, last)
    return None if grew else refused


def c9_to_delta(series: Series | None, point: Point) -> tuple[str, Increment]:
    known = series is not None and not series.deltas_since
    if series is not None and known and not fell(point, series.last):
        return "flip_converted", minus(point, series.last, series.last.time_ns)
    return "flip_baseline", nothing(point)


def cumulative(series: Series | None, judged: Judged, point: Point, verdict: PushVerdict) -> tuple[str, Increment]:
    if series is None or series.flipped or series.deltas_since:
        return c3_first(series, point, verdict)
    return c4_c5_c6(series.last, judged, point)


def c3_first(series: Series | None, point: Point, verdict: PushVerdict) -> tuple[str, Increment]:
    """C3; in the way of it stand C9's delta -> cumulative and C12's tombstone."""
    known = 0 < point.start_ns < point.time_ns
    if series is not None or DELTA in verdict.sent_before:
        after = verdict.last_delta_time is not None and point.start_ns > verdict.last_delta_time
        if not (known and after):
            return "flip_baseline", nothing(point)
    if known and (verdict.tombstone_time is None or point.start_ns > verdict.tombstone_time):
        return "first", full(point, point.start_ns)
    return "baseline", nothing(point)


def c4_c5_c6(last: Point, judged: Judged, point: Point) -> tuple[str, Increment]:
    moved = point.start_ns != last.start_ns
    if moved and last.time_ns <= point.start_ns < point.time_ns:
        return "reset", full(point, point.start_ns)
    if moved and point.start_ns >= point.time_ns:
        return "baseline", nothing(point)
    if fell(point, last):
        return "inferred_reset", full(point, last.time_ns)
    if moved:
        judged.flags.append("start_moved")
    status = "bounds_changed" if bounds_changed(point, last) else "converted"
    return status, minus(point, last, last.time_ns)
