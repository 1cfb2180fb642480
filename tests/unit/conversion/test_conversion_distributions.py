"""Rules C7 and C8: histograms and exponential histograms."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.udfs.conversion.distributions import bucket_of
from tests.support.otlp_builder import Shard as PlainShard
from tests.support.otlp_builder import at, exponential, gauge, histogram, push, values_of
from tests.unit.conversion.checked_shard import Shard

HISTOGRAM = ("delta_status", "count_delta", "bucket_counts_delta", "delta_start")
WITH_SUM = (*HISTOGRAM, "sum_delta")
EXPONENTIAL = ("delta_status", "count_delta", "positive_counts_delta", "negative_counts_delta", "zero_count_delta")
Case = tuple[Any, Any, tuple[Any, ...]]


def second(first: Any, then: Any, *names: str) -> Any:
    """The result of the second of two points."""
    shard = Shard()
    shard.run(push(1, first))
    return values_of([shard.one(push(2, then))], *names)[0]


# What happens: a point, the one after it, and what comes of that: HISTOGRAM and the sum's delta.
HISTOGRAMS: dict[str, Case] = {
    "buckets, count and sum are differenced": (
        histogram((1, 2, 0), 0, 1, total=4.0), histogram((1, 5, 1), 0, 2, total=12.5, low=0.5, high=9.0),
        ("converted", 4, [0, 3, 1], at(1), 8.5),
    ),
    "a new start is a reset": (
        histogram((1, 2, 0), 0, 1), histogram((3, 3, 0), 1.5, 2), ("reset", 6, [3, 3, 0], at(1.5), None),
    ),
    "a falling count is a reset": (
        histogram((1, 5, 0), 0, 1), histogram((1, 2, 0), 0, 2), ("inferred_reset", 3, [1, 2, 0], at(1), None),
    ),
    # Collector #41752 subtracted unsigned buckets, and wrote 18446744073709551615.
    "a falling bucket under a rising count is a reset": (
        histogram((4, 1, 0), 0, 1), histogram((3, 9, 0), 0, 2), ("inferred_reset", 12, [3, 9, 0], at(1), None),
    ),
    "a falling sum is no reset": (
        histogram((1, 0, 0), 0, 1, total=4.0), histogram((2, 0, 0), 0, 2, total=1.0),
        ("converted", 1, [1, 0, 0], at(1), -3.0),
    ),
    "a sum comes": (
        histogram((1, 0, 0), 0, 1), histogram((2, 0, 0), 0, 2, total=5.0), ("converted", 1, [1, 0, 0], at(1), None),
    ),
    "a sum goes": (
        histogram((1, 0, 0), 0, 1, total=5.0), histogram((2, 0, 0), 0, 2), ("converted", 1, [1, 0, 0], at(1), None),
    ),
    "bounds of other values are other bounds": (
        histogram((1, 0, 0), 0, 1), histogram((2, 0, 0), 0, 2, bounds=(1.0, 3.0)),
        ("bounds_changed", 1, None, at(1), None),
    ),
    "other bounds with a falling count are a reset": (
        histogram((1, 2, 0), 0, 1), histogram((1, 1), 0, 2, bounds=(5.0,)),
        ("inferred_reset", 2, [1, 1], at(1), None),
    ),
    "other bounds with a new start are a reset": (
        histogram((1, 2, 0), 0, 1), histogram((4, 1), 1, 2, bounds=(5.0,)), ("reset", 5, [4, 1], at(1), None),
    ),
    "without buckets there are count and sum": (
        histogram((), 0, 1, bounds=(), count=3, total=1.0), histogram((), 0, 2, bounds=(), count=5, total=4.0),
        ("converted", 2, [], at(1), 3.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HISTOGRAMS)
def test_c7_the_second_of_two_histograms(case: str) -> None:
    first, then, expected = HISTOGRAMS[case]
    assert second(first, then, *WITH_SUM, "zero_count_delta", "delta") == (*expected, None, None)


def test_c7_the_source_columns_are_kept() -> None:
    row = Shard().one(push(1, histogram((1, 2, 0), 0, 1, total=4.0, low=0.5, high=1.5)))
    names = ("count", "sum", "min", "max", "bucket_counts", "explicit_bounds", "is_monotonic", "zero_count", "scale")
    assert values_of([row], *names) == [(3, 4.0, 0.5, 1.5, [1, 2, 0], [1.0, 2.0], True, None, None)]


@pytest.mark.parametrize(
    ("start", "result"), [(0, ("first", 3, [1, 2, 0], at(0), 4.0)), (1, ("baseline", 0, [0, 0, 0], None, 0.0))]
)
def test_c7_the_first_point_counts_in_full_and_a_baseline_nothing(start: float, result: Any) -> None:
    row = Shard().one(push(1, histogram((1, 2, 0), start, 1, total=4.0)))
    assert values_of([row], *WITH_SUM) == [result]


def test_c7_other_bounds_difference_the_count_only() -> None:
    shard = Shard()
    shard.run(push(1, histogram((1, 2, 0), 0, 1, total=4.0)))
    rows = [
        shard.one(push(2, histogram((4, 1), 0, 2, bounds=(5.0,), total=9.0))),
        shard.one(push(3, histogram((5, 1), 0, 3, bounds=(5.0,), total=10.0))),
    ]
    assert values_of(rows, *WITH_SUM) == [("bounds_changed", 2, None, at(1), 5.0), ("converted", 1, [1, 0], at(2), 1.0)]


@pytest.mark.parametrize(
    ("then", "status"),
    [
        (histogram((1, 2, 0), 0, 1, total=4.0), "duplicate"),
        (histogram((2, 1, 0), 0, 1, total=4.0), "conflict"),
        (histogram((1, 2, 0), 0, 1, total=5.0), "conflict"),
        (histogram((1, 3, 0), 0, 1, total=4.0), "conflict"),
        (histogram((1, 2, 0), 0, 0.5, total=4.0), "late"),
    ],
)
def test_c7_late_and_equal_times(then: Any, status: str) -> None:
    shard = Shard()
    shard.run(push(1, histogram((1, 2, 0), 0, 1, total=4.0), gauge(1, 1)))  # other bytes: no redelivery (D2)
    assert values_of([shard.one(push(2, then))], *WITH_SUM) == [(status, None, None, None, None)]


def test_c7_c8_the_baseline_moves_on_a_reset() -> None:
    """The Collector retained the earlier one (#50828), and dropped all points up to the old peak (#49869)."""
    shard = Shard()
    shard.run(push(1, histogram((9, 9, 9), 0, 1)), push(2, histogram((1, 0, 0), 0, 2)))
    row = shard.one(push(3, histogram((2, 1, 0), 0, 3)))
    assert values_of([row], *HISTOGRAM) == [("converted", 2, [1, 1, 0], at(2))]
    shard = Shard()
    shard.run(push(1, exponential((9,), 0, 1)), push(2, exponential((1,), 0, 2)))
    assert values_of([shard.one(push(3, exponential((3,), 0, 3)))], *EXPONENTIAL) == [("converted", 2, [2], [], 0)]


def test_c8_sum_and_start_are_those_of_a_histogram() -> None:
    first, then = exponential((1, 2), 0, 1, total=5.0), exponential((4, 2), 0, 2, total=9.0)
    assert second(first, then, "delta_status", "sum_delta", "delta_start") == ("converted", 4.0, at(1))


# The same of EXPONENTIAL.
EXPONENTIALS: dict[str, Case] = {
    "equal layouts are subtracted bucket by bucket": (
        exponential((1, 2), 0, 1, zero=1, negative=(3,)), exponential((4, 2), 0, 2, zero=3, negative=(4,)),
        ("converted", 6, [3, 0], [1], 2),
    ),
    "offsets are aligned: old buckets 3, 4; new buckets 1 to 5": (
        exponential((1, 2), 0, 1, offset=3, negative=(1,), negative_offset=-2),
        exponential((7, 0, 1, 5, 2), 0, 2, offset=1, negative=(4, 2), negative_offset=-3),
        ("converted", 17, [7, 0, 0, 3, 2], [4, 1], 0),
    ),
    "a populated bucket that is gone is a reset": (
        exponential((1, 2), 0, 1, offset=3), exponential((5,), 0, 2, offset=4), ("inferred_reset", 5, [5], [], 0),
    ),
    "an empty bucket may go": (
        exponential((0, 2), 0, 1, offset=3), exponential((5,), 0, 2, offset=4), ("converted", 3, [3], [], 0),
    ),
    # Old buckets -2 to 3 at scale 3; halving the resolution merges i into i >> 1, negative indices too.
    "a scale lower by one merges two buckets: 3, 7, 5": (
        exponential((1, 2, 3, 4, 5, 0), 0, 1, offset=-2, scale=3), exponential((4, 8, 6), 0, 2, offset=-1, scale=2),
        ("converted", 3, [1, 1, 1], [], 0),
    ),
    "a scale lower by two merges four: 3, 12": (
        exponential((1, 2, 3, 4, 5, 0), 0, 1, offset=-2, scale=3), exponential((4, 13), 0, 2, offset=-1, scale=1),
        ("converted", 2, [1, 1], [], 0),
    ),
    "a much lower scale merges all": (
        exponential((1, 2, 3), 0, 1, offset=-1, scale=20), exponential((1, 5), 0, 2, offset=-1, scale=-10),
        ("converted", 0, [0, 0], [], 0),
    ),
    "a scale lower by more than 64 merges all": (
        exponential((1, 2), 0, 1, scale=20), exponential((4,), 0, 2, scale=-100), ("converted", 1, [1], [], 0),
    ),
    "a rising scale is a reset": (
        exponential((1,), 0, 1), exponential((1, 1), 0, 2, scale=1), ("inferred_reset", 2, [1, 1], [], 0),
    ),
    "a falling zero threshold is a reset": (
        exponential((1,), 0, 1, zero_threshold=0.5), exponential((2,), 0, 2, zero_threshold=0.25),
        ("inferred_reset", 2, [2], [], 0),
    ),
    "a falling zero count is a reset": (
        exponential((1,), 0, 1, zero=5), exponential((9,), 0, 2, zero=4), ("inferred_reset", 13, [9], [], 4),
    ),
    # Scale 0: buckets (1, 2], (2, 4], (4, 8]; a threshold of 2 swallows the first on both sides.
    "a larger zero threshold swallows whole buckets": (
        exponential((3, 4, 5), 0, 1, zero=1, negative=(2, 1)),
        exponential((6, 5), 0, 2, offset=1, zero=8, zero_threshold=2.0, negative=(1,), negative_offset=1),
        ("converted", 4, [2, 0], [0], 2),
    ),
    # 3 lies in (2, 4], where the old point has 4: both sides' (2, 4] join the zero bucket.
    "a threshold inside a populated bucket is raised to its upper bound": (
        exponential((3, 4, 5), 0, 1, zero=1), exponential((2, 6), 0, 2, offset=1, zero=7, zero_threshold=3.0),
        ("converted", 2, [0, 1], [], 1),
    ),
    "so is one inside a populated negative bucket": (
        exponential((3, 0), 0, 1, zero=1, negative=(0, 4)),
        exponential((6,), 0, 2, offset=1, zero=8, zero_threshold=3.0, negative=(2,), negative_offset=2),
        ("converted", 8, [0], [2], 6),
    ),
    # 2 is the upper bound of (1, 2]: what the new point still has there belongs to its zero bucket.
    "a threshold at a bound swallows the bucket below it on both sides": (
        exponential((0, 4), 0, 1), exponential((2, 5), 0, 2, zero_threshold=2.0, zero=1),
        ("converted", 4, [0, 1], [], 3),
    ),
    "a threshold inside an empty bucket is not raised": (
        exponential((3, 0, 5), 0, 1, zero=1), exponential((2, 6), 0, 2, offset=1, zero=4, zero_threshold=3.0),
        ("converted", 3, [2, 1], [], 0),
    ),
    # Scale 1 has (1, 1.41], (1.41, 2], (2, 2.83], (2.83, 4]; at scale 0 they are 3 in (1, 2] and 7 in (2, 4].
    "scale and threshold change together": (
        exponential((1, 2, 3, 4), 0, 1, scale=1, zero=1),
        exponential((8,), 0, 2, offset=1, zero=5, zero_threshold=2.0),
        ("converted", 2, [1], [], 1),
    ),
    "the same time with another scale is a conflict": (
        exponential((1, 1), 0, 1, scale=1), exponential((2,), 0, 1), ("conflict", None, None, None, None),
    ),
    "the same time and counts are a duplicate": (
        exponential((1, 1), 0, 1), exponential((1, 1, 0), 0, 1), ("duplicate", None, None, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPONENTIALS)
def test_c8_the_second_of_two_exponential_histograms(case: str) -> None:
    first, then, expected = EXPONENTIALS[case]
    assert second(first, then, *EXPONENTIAL) == expected


@pytest.mark.parametrize(
    ("value", "scale", "index", "at_bound"),
    [
        (4.0, 0, 1, True), (4.1, 0, 2, False), (4.0, -1, 0, True), (8.0, -1, 1, False), (16.0, -1, 1, True),
        (1.0, 0, -1, True), (0.25, 0, -3, True), (0.26, 0, -2, False), (2**0.75, 2, 2, True), (3.0, 1, 3, False),
        (1.5, -40, 0, False),
    ],
)  # fmt: skip
def test_c8_bucket_of_a_value(value: float, scale: int, index: int, at_bound: bool) -> None:
    """base = 2^(2^-scale); bucket i is (base^i, base^(i + 1)]."""
    assert bucket_of(value, scale) == (index, at_bound)


@pytest.mark.parametrize(
    "extreme",
    [{"scale": -(2**31)}, {"scale": 2**31 - 1}, {"offset": 2**31 - 1}, {"offset": -(2**31)},
     {"zero_threshold": float("inf")}, {"zero_threshold": float("nan")}, {"zero_threshold": 5e-324}],
)  # fmt: skip
def test_c8_extremes_do_not_crash_and_never_go_negative(extreme: dict[str, Any]) -> None:
    shard = PlainShard()
    shard.run(push(1, exponential((1, 2), 0, 1)))
    row = shard.one(push(2, exponential((1, 2, 9), 0, 2, **extreme)))
    assert row["count_delta"] >= 0
    assert min(row["positive_counts_delta"]) >= 0
    assert row["zero_count_delta"] >= 0


def test_c7_c8_state_keeps_the_last_distributions() -> None:
    shard = Shard()
    shard.run(push(1, histogram((1, 2, 0), 0, 1), exponential((1,), 0, 1), histogram((1, 0, 0), 0, 1, name="other")))
    shard.run(push(2, histogram((2, 2, 0), 0, 2)))
    rows = shard.points(
        push(3, exponential((5,), 0, 3), histogram((1, 0, 4), 0, 3, name="other"), histogram((2, 2, 7), 0, 3))
    )
    assert values_of(rows, "delta_status", "count_delta", "delta_start") == [
        ("converted", 4, at(1)),
        ("converted", 4, at(1)),
        ("converted", 7, at(2)),
    ]
