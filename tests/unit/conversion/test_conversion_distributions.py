"""Rules C7 and C8: histograms and exponential histograms."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.udfs.conversion.distributions import bucket_of
from tests.support.otlp_builder import Shard as PlainShard
from tests.support.otlp_builder import at, exponential, gauge, histogram, push, values_of
from tests.unit.conversion.checked_shard import Shard

HISTOGRAM = ("delta_status", "count_delta", "bucket_counts_delta", "delta_start")
EXPONENTIAL = (
    "delta_status",
    "count_delta",
    "positive_counts_delta",
    "negative_counts_delta",
    "zero_count_delta",
)


def second(first: Any, then: Any, *names: str) -> Any:
    """The result of the second of two points."""
    shard = Shard()
    shard.run(push(1, first))
    return values_of([shard.one(push(2, then))], *names)[0]


def test_c7_buckets_count_and_sum_are_differenced() -> None:
    names = (*HISTOGRAM, "sum_delta", "zero_count_delta", "delta")
    assert second(
        histogram((1, 2, 0), 0, 1, total=4.0),
        histogram((1, 5, 1), 0, 2, total=12.5, low=0.5, high=9.0),
        *names,
    ) == ("converted", 4, [0, 3, 1], at(1), 8.5, None, None)


def test_c7_the_source_columns_are_kept() -> None:
    row = Shard().one(push(1, histogram((1, 2, 0), 0, 1, total=4.0, low=0.5, high=1.5)))
    names = (
        "count",
        "sum",
        "min",
        "max",
        "bucket_counts",
        "explicit_bounds",
        "is_monotonic",
        "zero_count",
        "scale",
    )
    assert values_of([row], *names) == [(3, 4.0, 0.5, 1.5, [1, 2, 0], [1.0, 2.0], True, None, None)]


def test_c7_the_first_point_counts_in_full() -> None:
    row = Shard().one(push(1, histogram((1, 2, 0), 0, 1, total=4.0)))
    assert values_of([row], *HISTOGRAM, "sum_delta") == [("first", 3, [1, 2, 0], at(0), 4.0)]


def test_c7_a_baseline_counts_nothing() -> None:
    row = Shard().one(push(1, histogram((1, 2, 0), 1, 1, total=4.0)))
    assert values_of([row], *HISTOGRAM, "sum_delta") == [("baseline", 0, [0, 0, 0], None, 0.0)]


def test_c7_a_true_reset_counts_in_full() -> None:
    result = second(histogram((1, 2, 0), 0, 1), histogram((3, 3, 0), 1.5, 2), *HISTOGRAM)
    assert result == ("reset", 6, [3, 3, 0], at(1.5))


def test_c7_a_falling_count_is_a_reset() -> None:
    assert second(histogram((1, 5, 0), 0, 1), histogram((1, 2, 0), 0, 2), *HISTOGRAM) == (
        "inferred_reset",
        3,
        [1, 2, 0],
        at(1),
    )


def test_c7_collector_41752_a_falling_bucket_under_a_rising_count_is_a_reset() -> None:
    """The Collector subtracted unsigned buckets, and wrote 18446744073709551615."""
    assert second(histogram((4, 1, 0), 0, 1), histogram((3, 9, 0), 0, 2), *HISTOGRAM) == (
        "inferred_reset",
        12,
        [3, 9, 0],
        at(1),
    )


def test_c7_a_falling_sum_is_no_reset() -> None:
    result = second(
        histogram((1, 0, 0), 0, 1, total=4.0), histogram((2, 0, 0), 0, 2, total=1.0), *HISTOGRAM, "sum_delta"
    )
    assert result == ("converted", 1, [1, 0, 0], at(1), -3.0)


@pytest.mark.parametrize(("before", "now"), [(None, 5.0), (5.0, None)])
def test_c7_the_sum_is_differenced_only_where_both_have_one(before: float | None, now: float | None) -> None:
    result = second(histogram((1, 0, 0), 0, 1, total=before), histogram((2, 0, 0), 0, 2, total=now), "sum_delta")
    assert result is None


def test_c7_other_bounds_difference_the_count_only() -> None:
    shard = Shard()
    shard.run(push(1, histogram((1, 2, 0), 0, 1, total=4.0)))
    rows = [
        shard.one(push(2, histogram((4, 1), 0, 2, bounds=(5.0,), total=9.0))),
        shard.one(push(3, histogram((5, 1), 0, 3, bounds=(5.0,), total=10.0))),
    ]
    assert values_of(rows, *HISTOGRAM, "sum_delta") == [
        ("bounds_changed", 2, None, at(1), 5.0),
        ("converted", 1, [1, 0], at(2), 1.0),
    ]


def test_c7_bounds_of_other_values_are_other_bounds() -> None:
    result = second(histogram((1, 0, 0), 0, 1), histogram((2, 0, 0), 0, 2, bounds=(1.0, 3.0)), *HISTOGRAM)
    assert result == ("bounds_changed", 1, None, at(1))


def test_c7_other_bounds_with_a_falling_count_are_a_reset() -> None:
    result = second(histogram((1, 2, 0), 0, 1), histogram((1, 1), 0, 2, bounds=(5.0,)), *HISTOGRAM)
    assert result == ("inferred_reset", 2, [1, 1], at(1))


def test_c7_other_bounds_with_a_new_start_are_a_reset() -> None:
    result = second(histogram((1, 2, 0), 0, 1), histogram((4, 1), 1, 2, bounds=(5.0,)), *HISTOGRAM)
    assert result == ("reset", 5, [4, 1], at(1))


def test_c7_histograms_without_buckets_have_count_and_sum() -> None:
    result = second(
        histogram((), 0, 1, bounds=(), count=3, total=1.0),
        histogram((), 0, 2, bounds=(), count=5, total=4.0),
        *HISTOGRAM,
        "sum_delta",
    )
    assert result == ("converted", 2, [], at(1), 3.0)


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
    assert values_of([shard.one(push(2, then))], *HISTOGRAM, "sum_delta") == [(status, None, None, None, None)]


def test_c7_collector_50828_the_baseline_moves_on_a_reset() -> None:
    """The Collector retained the earlier baseline: later points that were below it looked like resets again."""
    shard = Shard()
    shard.run(push(1, histogram((9, 9, 9), 0, 1)), push(2, histogram((1, 0, 0), 0, 2)))
    assert values_of([shard.one(push(3, histogram((2, 1, 0), 0, 3)))], *HISTOGRAM) == [
        ("converted", 2, [1, 1, 0], at(2))
    ]


def test_c8_equal_layouts_are_subtracted_bucket_by_bucket() -> None:
    assert second(
        exponential((1, 2), 0, 1, zero=1, negative=(3,), total=5.0),
        exponential((4, 2), 0, 2, zero=3, negative=(4,), total=9.0),
        *EXPONENTIAL,
        "sum_delta",
        "delta_start",
    ) == ("converted", 6, [3, 0], [1], 2, 4.0, at(1))


def test_c8_offsets_are_aligned() -> None:
    """Old buckets 3, 4; new buckets 1 to 5."""
    assert second(
        exponential((1, 2), 0, 1, offset=3, negative=(1,), negative_offset=-2),
        exponential((7, 0, 1, 5, 2), 0, 2, offset=1, negative=(4, 2), negative_offset=-3),
        *EXPONENTIAL,
    ) == ("converted", 17, [7, 0, 0, 3, 2], [4, 1], 0)


def test_c8_a_populated_bucket_that_is_gone_is_a_reset() -> None:
    result = second(exponential((1, 2), 0, 1, offset=3), exponential((5,), 0, 2, offset=4), *EXPONENTIAL)
    assert result == ("inferred_reset", 5, [5], [], 0)


def test_c8_an_empty_bucket_may_go() -> None:
    result = second(exponential((0, 2), 0, 1, offset=3), exponential((5,), 0, 2, offset=4), *EXPONENTIAL)
    assert result == ("converted", 3, [3], [], 0)


@pytest.mark.parametrize(("steps", "counts"), [(1, (3, 7, 5)), (2, (10, 5))])
def test_c8_a_lower_scale_merges_buckets_exactly(steps: int, counts: tuple[int, ...]) -> None:
    """Old buckets -2 to 3 at scale 3; halving the resolution merges i into i >> 1, negative indices too."""
    shard = Shard()
    shard.run(push(1, exponential((1, 2, 3, 4, 5, 0), 0, 1, offset=-2, scale=3)))
    merged = {1: (3, 7, 5), 2: (3, 12)}[steps]
    now = tuple(value + 1 for value in merged)
    row = shard.one(push(2, exponential(now, 0, 2, offset=-1, scale=3 - steps)))
    assert values_of([row], *EXPONENTIAL) == [("converted", len(now), [1] * len(now), [], 0)]


def test_c8_a_much_lower_scale_merges_all() -> None:
    result = second(
        exponential((1, 2, 3), 0, 1, offset=-1, scale=20),
        exponential((1, 5), 0, 2, offset=-1, scale=-10),
        *EXPONENTIAL,
    )
    assert result == ("converted", 0, [0, 0], [], 0)


def test_c8_a_rising_scale_is_a_reset() -> None:
    result = second(exponential((1,), 0, 1), exponential((1, 1), 0, 2, scale=1), *EXPONENTIAL)
    assert result == ("inferred_reset", 2, [1, 1], [], 0)


def test_c8_collector_49869_the_baseline_moves_on_a_reset() -> None:
    """The Collector dropped every point after a reset until the count was above its old peak."""
    shard = Shard()
    shard.run(push(1, exponential((9,), 0, 1)), push(2, exponential((1,), 0, 2)))
    assert values_of([shard.one(push(3, exponential((3,), 0, 3)))], *EXPONENTIAL) == [("converted", 2, [2], [], 0)]


def test_c8_a_falling_zero_threshold_is_a_reset() -> None:
    result = second(
        exponential((1,), 0, 1, zero_threshold=0.5),
        exponential((2,), 0, 2, zero_threshold=0.25),
        *EXPONENTIAL,
    )
    assert result == ("inferred_reset", 2, [2], [], 0)


def test_c8_a_falling_zero_count_is_a_reset() -> None:
    result = second(exponential((1,), 0, 1, zero=5), exponential((9,), 0, 2, zero=4), *EXPONENTIAL)
    assert result == ("inferred_reset", 13, [9], [], 4)


def test_c8_a_larger_zero_threshold_swallows_whole_buckets() -> None:
    """Scale 0: buckets (1, 2], (2, 4], (4, 8]; a threshold of 2 swallows the first on both sides."""
    result = second(
        exponential((3, 4, 5), 0, 1, zero=1, negative=(2, 1)),
        exponential((6, 5), 0, 2, offset=1, zero=8, zero_threshold=2.0, negative=(1,), negative_offset=1),
        *EXPONENTIAL,
    )
    assert result == ("converted", 4, [2, 0], [0], 2)


def test_c8_a_threshold_inside_a_populated_bucket_is_raised_to_its_upper_bound() -> None:
    """3 lies in (2, 4], where the old point has 4: both sides' (2, 4] join the zero bucket."""
    result = second(
        exponential((3, 4, 5), 0, 1, zero=1),
        exponential((2, 6), 0, 2, offset=1, zero=7, zero_threshold=3.0),
        *EXPONENTIAL,
    )
    assert result == ("converted", 2, [0, 1], [], 1)


def test_c8_a_threshold_inside_a_populated_negative_bucket_is_raised_too() -> None:
    result = second(
        exponential((3, 0), 0, 1, zero=1, negative=(0, 4)),
        exponential((6,), 0, 2, offset=1, zero=8, zero_threshold=3.0, negative=(2,), negative_offset=2),
        *EXPONENTIAL,
    )
    assert result == ("converted", 8, [0], [2], 6)


def test_c8_a_threshold_at_a_bound_swallows_the_bucket_below_it_on_both_sides() -> None:
    """2 is the upper bound of (1, 2]: what the new point still has there belongs to its zero bucket."""
    result = second(exponential((0, 4), 0, 1), exponential((2, 5), 0, 2, zero_threshold=2.0, zero=1), *EXPONENTIAL)
    assert result == ("converted", 4, [0, 1], [], 3)


def test_c8_a_scale_lower_by_more_than_64_merges_all() -> None:
    result = second(exponential((1, 2), 0, 1, scale=20), exponential((4,), 0, 2, scale=-100), *EXPONENTIAL)
    assert result == ("converted", 1, [1], [], 0)


def test_c8_a_threshold_inside_an_empty_bucket_is_not_raised() -> None:
    result = second(
        exponential((3, 0, 5), 0, 1, zero=1),
        exponential((2, 6), 0, 2, offset=1, zero=4, zero_threshold=3.0),
        *EXPONENTIAL,
    )
    assert result == ("converted", 3, [2, 1], [], 0)


def test_c8_scale_and_threshold_change_together() -> None:
    """Scale 1 has (1, 1.41], (1.41, 2], (2, 2.83], (2.83, 4]; at scale 0 they are 3 in (1, 2] and 7 in (2, 4]."""
    result = second(
        exponential((1, 2, 3, 4), 0, 1, scale=1, zero=1),
        exponential((8,), 0, 2, offset=1, zero=5, zero_threshold=2.0),
        *EXPONENTIAL,
    )
    assert result == ("converted", 2, [1], [], 1)


def test_c8_the_same_time_with_another_scale_is_a_conflict() -> None:
    result = second(exponential((1, 1), 0, 1, scale=1), exponential((2,), 0, 1), *EXPONENTIAL)
    assert result == ("conflict", None, None, None, None)


def test_c8_the_same_time_and_counts_are_a_duplicate() -> None:
    result = second(exponential((1, 1), 0, 1), exponential((1, 1, 0), 0, 1), *EXPONENTIAL)
    assert result == ("duplicate", None, None, None, None)


@pytest.mark.parametrize(
    ("value", "scale", "index", "at_bound"),
    [
        (4.0, 0, 1, True),
        (4.1, 0, 2, False),
        (4.0, -1, 0, True),
        (8.0, -1, 1, False),
        (16.0, -1, 1, True),
        (1.0, 0, -1, True),
        (0.25, 0, -3, True),
        (0.26, 0, -2, False),
        (2**0.75, 2, 2, True),
        (3.0, 1, 3, False),
        (1.5, -40, 0, False),
    ],
)
def test_c8_bucket_of_a_value(value: float, scale: int, index: int, at_bound: bool) -> None:
    """base = 2^(2^-scale); bucket i is (base^i, base^(i + 1)]."""
    assert bucket_of(value, scale) == (index, at_bound)


@pytest.mark.parametrize(
    "extreme",
    [
        {"scale": -(2**31)},
        {"scale": 2**31 - 1},
        {"offset": 2**31 - 1},
        {"offset": -(2**31)},
        {"zero_threshold": float("inf")},
        {"zero_threshold": float("nan")},
        {"zero_threshold": 5e-324},
    ],
)
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
