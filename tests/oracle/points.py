"""Rules that need nothing but the point: I4 (normalisation) and P3, P5, P6, P8."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from tests.oracle.model import CUMULATIVE, DELTA, HOUR_NS, NO_RECORDED_VALUE, SECOND_NS, Attributes, Judged, Point, Push

TEMPORAL = ("sum", "histogram", "exponential_histogram")
NUMBERS = ("gauge", "sum")


def judge_point(push: Push, index: int, point: Point) -> Judged:
    """P0: I4, P5, P3, P8; the D and C rules come later."""
    judged = i4_normalise(push, index, point)
    if judged.point.flags & NO_RECORDED_VALUE:
        judged.status = "no_recorded_value"  # P5
    else:
        judged.reason = p3_broken(judged.point) or p8_future(push, judged.point)
        if is_ahead(push, judged.point):
            judged.flags.append("clock_ahead")
    return judged


def i4_normalise(push: Push, index: int, point: Point) -> Judged:
    attributes, repeated = normalise_attributes(point.attributes)
    flags = ["duplicate_attribute"] if repeated else []
    if point.scope == "kgo":
        if point.kind in NUMBERS and point.number is None:
            point = replace(point, number=0)
            if not point.flags & NO_RECORDED_VALUE:
                flags.append("value_assumed")
        if point.kind == "sum" and not point.is_monotonic and point.metric.endswith(".total"):
            point = replace(point, is_monotonic=True)
            flags.append("monotonic_assumed")
    return Judged(push, index, point, attributes, flags)


def normalise_attributes(pairs: Attributes) -> tuple[dict[str, str], bool]:
    """The attributes under their names of I4, and whether a name stood there twice."""
    result: dict[str, str] = {}
    names: list[str] = []
    for key, value in pairs:
        name = {"node.id": "node_id", "member_id": "group_member_id"}.get(key, key)
        names.append(name)
        result[name] = str(value)
    if "node_id" in result:
        result.update(node(result["node_id"]))
    return result, len(set(names)) < len(names)


def node(text: str) -> dict[str, str]:
    match = re.fullmatch(r"(?:node-)?(-?[0-9]+)", text)
    if match is None:
        return {"node_id": text}
    number = int(match.group(1))
    if number < 0:
        return {"node_id": str(number), "node_role": "bootstrap"}
    if number >= 2147473647:
        return {"node_id": str(2147483647 - number), "node_role": "coordinator"}
    return {"node_id": str(number), "node_role": "broker"}


def p3_broken(point: Point) -> str | None:
    if point.time_ns == 0:
        return "NO_TIME"
    if point.kind in NUMBERS and point.number is None:
        return "NO_VALUE"
    if point.kind in TEMPORAL:
        if point.temporality not in (DELTA, CUMULATIVE):
            return "UNKNOWN_TEMPORALITY"
        if point.start_ns > point.time_ns + SECOND_NS:
            return "START_AFTER_TIME"
    return "BAD_BUCKETS" if bad_buckets(point) else None


def bad_buckets(point: Point) -> bool:
    if point.distribution is None:
        return False
    d = point.distribution
    if d.count >= 2**63:
        return True  # no column holds it
    if point.kind == "histogram" and (d.buckets or d.bounds):
        increasing = all(low < high for low, high in zip(d.bounds, d.bounds[1:], strict=False))
        increasing = increasing and not any(math.isnan(bound) for bound in d.bounds)
        return sum(d.buckets) != d.count or len(d.buckets) != len(d.bounds) + 1 or not increasing
    if point.kind == "exponential_histogram" and (d.positive or d.negative or d.zero_count):
        return sum(d.positive) + sum(d.negative) + d.zero_count != d.count
    return False


def p8_future(push: Push, point: Point) -> str | None:
    return "FUTURE_TIME" if point.time_ns > push.landed_at_us * 1000 + HOUR_NS else None


def is_ahead(push: Push, point: Point) -> bool:
    """C13: a time that is more than a second after the landing comes from a clock that runs ahead."""
    return point.time_ns // 1000 > push.landed_at_us + 1_000_000


def p6_non_finite(point: Point) -> bool:
    return point.kind in NUMBERS and point.number is not None and not math.isfinite(point.number)
