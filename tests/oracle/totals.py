"""Arithmetic of cumulative totals by kind: has it fallen, and what is the increment (P7, C7, C8)."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, getcontext
from fractions import Fraction

from tests.oracle.model import Distribution, Increment, Point

getcontext().prec = 80


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def same_total(new: Point, old: Point) -> bool:
    """C2: equal value. min and max are no part of a total."""
    if new.distribution is None or old.distribution is None:
        return comparable(new, old)[0] == comparable(new, old)[1]
    return content(new) == content(old)


def content(point: Point) -> tuple[object, ...]:
    d = distribution(point)
    return (d.count, finite(d.sum), d.bounds, d.buckets, d.scale, d.zero_count, d.zero_threshold, *populated(d))


def distribution(point: Point) -> Distribution:
    assert point.distribution is not None
    return point.distribution


def populated(d: Distribution) -> tuple[dict[int, int], dict[int, int]]:
    """Bucket index to count, positive and negative, empty buckets left out."""
    sides = ((d.positive_offset, d.positive), (d.negative_offset, d.negative))
    positive, negative = ({offset + i: n for i, n in enumerate(side) if n} for offset, side in sides)
    return positive, negative


def comparable(new: Point, old: Point) -> tuple[int | float, int | float]:
    """P7: as they are when both are int64, else both as doubles."""
    assert new.number is not None
    assert old.number is not None
    if isinstance(new.number, int) and isinstance(old.number, int):
        return new.number, old.number
    return float(new.number), float(old.number)


def fell(new: Point, old: Point) -> bool:
    """C5, C7, C8: the total is lower than before, so there was a reset."""
    if new.kind == "sum":
        now, before = comparable(new, old)
        return now < before
    a, b = distribution(new), distribution(old)
    if a.count < b.count:
        return True
    if new.kind == "histogram":
        return not bounds_changed(new, old) and any(x < y for x, y in zip(a.buckets, b.buckets, strict=True))
    if a.scale > b.scale or a.zero_threshold < b.zero_threshold:
        return True
    now_zero, now_sides, old_zero, old_sides = c8_common(a, b)
    sides = zip(now_sides, old_sides, strict=True)
    return now_zero < old_zero or any(now[i] < n for now, before in sides for i, n in before.items())


def bounds_changed(new: Point, old: Point) -> bool:
    if new.kind != "histogram":
        return False
    a, b = distribution(new), distribution(old)
    return a.bounds != b.bounds or len(a.buckets) != len(b.buckets)


def full(new: Point, start_ns: int | None) -> Increment:
    """The whole value over (start, time]."""
    if new.distribution is None:
        return Increment(start_ns, number=new.number)
    d = new.distribution
    if new.kind == "histogram":
        return Increment(start_ns, count=d.count, sum=finite(d.sum), buckets=d.buckets)
    return Increment(start_ns, None, d.count, finite(d.sum), None, d.positive, d.negative, d.zero_count)


def nothing(new: Point) -> Increment:
    """A baseline: delta 0, over no interval."""
    if new.distribution is None:
        assert new.number is not None
        return Increment(number=type(new.number)(0))
    d = new.distribution
    total = None if finite(d.sum) is None else 0.0
    if new.kind == "histogram":
        return Increment(count=0, sum=total, buckets=(0,) * len(d.buckets))
    return Increment(None, None, 0, total, None, (0,) * len(d.positive), (0,) * len(d.negative), 0)


def minus(new: Point, old: Point, start_ns: int) -> Increment:
    """The increment since `old`; only when the total has not fallen."""
    if new.kind == "sum":
        now, before = comparable(new, old)
        exact = now - before
        return Increment(start_ns, number=exact if abs(exact) < 2**63 else float(now) - float(before))
    a, b = distribution(new), distribution(old)
    count = a.count - b.count
    now_sum, old_sum = finite(a.sum), finite(b.sum)
    total = None if now_sum is None or old_sum is None else now_sum - old_sum
    if new.kind == "histogram":
        buckets = None
        if not bounds_changed(new, old):
            buckets = tuple(x - y for x, y in zip(a.buckets, b.buckets, strict=True))
        return Increment(start_ns, count=count, sum=total, buckets=buckets)
    now_zero, now_sides, old_zero, old_sides = c8_common(a, b)
    shapes = ((a.positive_offset, a.positive), (a.negative_offset, a.negative))
    positive, negative = (
        tuple(now[offset + i] - before[offset + i] for i in range(len(row)))
        for (offset, row), now, before in zip(shapes, now_sides, old_sides, strict=True)
    )
    return Increment(start_ns, None, count, total, None, positive, negative, now_zero - old_zero)


Sides = tuple[Counter[int], Counter[int]]


def c8_common(a: Distribution, b: Distribution) -> tuple[int, Sides, int, Sides]:
    """Zero count and buckets of both, brought to the lower scale and to `a`'s (the larger) zero_threshold."""
    scale = min(a.scale, b.scale)
    sides_a, sides_b = to_scale(a, scale), to_scale(b, scale)
    below = -math.inf
    if a.zero_threshold != b.zero_threshold:
        below = buckets_below(a.zero_threshold, scale, sides_b)
    return swallow(a, sides_a, below), sides_a, swallow(b, sides_b, below), sides_b


def swallow(d: Distribution, sides: Sides, below: float) -> int:
    """Move the buckets below to the zero bucket; returns its count."""
    zero_count = d.zero_count
    for side in sides:
        for index in [index for index in side if index < below]:
            zero_count += side.pop(index)
    return zero_count


def to_scale(d: Distribution, scale: int) -> Sides:
    merged: Sides = (Counter(), Counter())
    for side, source in zip(merged, populated(d), strict=True):
        for index, n in source.items():
            side[index >> (d.scale - scale)] += n
    return merged


def buckets_below(threshold: float, scale: int, sides: Sides) -> float:
    """Buckets of a lower index lie within the zero bucket.

    Bucket i is (2^(i / 2^scale), 2^((i + 1) / 2^scale)]. A threshold inside a populated bucket is raised to
    that bucket's upper bound.
    """
    if threshold <= 0:
        return -math.inf
    mantissa, exponent = math.frexp(threshold)
    if mantissa == 0.5:
        position = Fraction(exponent - 1) * Fraction(2) ** scale
    else:
        position = Fraction(Decimal(threshold).ln() / Decimal(2).ln()) * Fraction(2) ** scale
    index = math.floor(position)
    inside = position != index
    return index + 1 if inside and any(side[index] for side in sides) else index
