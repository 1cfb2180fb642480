"""Rules P0 to P8: which points are converted, which pass, which go to quarantine."""

from __future__ import annotations

import math

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from tests.support.otlp_builder import (
    DELTA,
    T0_NS,
    UNSPECIFIED,
    at,
    counter,
    delta,
    exponential,
    gauge,
    histogram,
    push,
    summary,
    values_of,
)
from tests.support.otlp_builder import Shard as PlainShard
from tests.unit.conversion.checked_shard import Shard

MAX_INT64 = (1 << 63) - 1
RESULT = ("delta_status", "delta_int", "delta_start")


def quarantined(*metrics: pb.Metric, landed: float = 1) -> list[str]:
    """The reasons of the quarantined points; a good point in the same push must be stored."""
    rows = Shard().run(push(1, *metrics, gauge(1, 1, name="good"), landed=landed))
    assert values_of(rows.metric_points.to_pylist(), "metric") == ["good"]
    assert set(values_of(rows.quarantine.to_pylist(), "scope")) <= {"point"}
    return values_of(rows.quarantine.to_pylist(), "reason")


def test_p0_not_recorded_comes_before_every_reason_for_quarantine() -> None:
    rows = Shard().run(push(1, counter(None, None, None, flags=1, temporality=UNSPECIFIED), landed=0))
    assert rows.quarantine.num_rows == 0
    assert values_of(rows.metric_points.to_pylist(), "delta_status", "time", "value") == [
        ("no_recorded_value", None, None)
    ]


def test_p0_a_broken_point_in_the_future_is_reported_by_p3() -> None:
    assert quarantined(counter(None, 0, 200_000)) == ["NO_VALUE"]


def test_p1_cumulative_monotonic_sums_and_histograms_are_converted() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), histogram((1, 0, 0), 0, 1), exponential((1,), 0, 1)))
    rows = shard.points(push(2, counter(14, 0, 2), histogram((1, 2, 0), 0, 2), exponential((4,), 0, 2)))
    assert values_of(rows, "delta_status", "delta_int", "count_delta", "delta_start") == [
        ("converted", 4, None, at(1)),
        ("converted", None, 2, at(1)),
        ("converted", None, 3, at(1)),
    ]


@pytest.mark.parametrize("monotonic", [True, False])
def test_p2_delta_passes_unchanged(monotonic: bool) -> None:
    shard = Shard()
    rows = shard.points(
        push(1, delta(10, 0, 1, monotonic=monotonic)),
        push(2, delta(3, 1, 2, monotonic=monotonic)),
        push(3, delta(4.5, 2, 3, monotonic=monotonic)),
    )
    assert values_of(rows, "delta_status", "delta", "delta_int", "delta_start") == [
        ("delta", 10.0, 10, at(0)),
        ("delta", 3.0, 3, at(1)),
        ("delta", 4.5, None, at(2)),
    ]
    assert shard.state.numbers.num_rows == 0


def test_p2_delta_histograms_pass_unchanged() -> None:
    rows = Shard().points(
        push(
            1,
            histogram((1, 2, 3), 0, 1, temporality=DELTA, total=7.5),
            exponential((1, 2), 0, 1, temporality=DELTA, zero=4, negative=(5,)),
        )
    )
    assert values_of(rows, "delta_status", "count_delta", "sum_delta", "delta", "delta_start") == [
        ("delta", 6, 7.5, None, at(0)),
        ("delta", 12, None, None, at(0)),
    ]
    assert values_of(
        rows, "bucket_counts_delta", "positive_counts_delta", "negative_counts_delta", "zero_count_delta"
    ) == [
        ([1, 2, 3], None, None, None),
        (None, [1, 2], [5], 4),
    ]


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (gauge(1, None), "NO_TIME"),
        (counter(1, 0, None), "NO_TIME"),
        (summary(1, 1.0, None, {}), "NO_TIME"),
        (gauge(None, 1), "NO_VALUE"),
        (counter(None, 0, 1), "NO_VALUE"),
        (counter(1, 0, 1, temporality=UNSPECIFIED), "UNKNOWN_TEMPORALITY"),
        (counter(1, 0, 1, temporality=7), "UNKNOWN_TEMPORALITY"),
        (histogram((1, 0, 0), 0, 1, temporality=UNSPECIFIED), "UNKNOWN_TEMPORALITY"),
        (exponential((1,), 0, 1, temporality=UNSPECIFIED), "UNKNOWN_TEMPORALITY"),
        (counter(1, 2.000000001, 1), "START_AFTER_TIME"),
        (delta(1, 2.000000001, 1), "START_AFTER_TIME"),
        (histogram((1, 0, 0), 3, 1), "START_AFTER_TIME"),
        (histogram((1, 0, 0), 0, 1, count=2), "BAD_BUCKETS"),
        (histogram((1, 0), 0, 1), "BAD_BUCKETS"),
        (histogram((), 0, 1, count=1), "BAD_BUCKETS"),
        (histogram((1, 0, 0), 0, 1, bounds=(2.0, 1.0)), "BAD_BUCKETS"),
        (histogram((1, 0, 0), 0, 1, bounds=(1.0, 1.0)), "BAD_BUCKETS"),
        (histogram((1, 0), 0, 1, bounds=(math.nan,)), "BAD_BUCKETS"),
        (histogram((1 << 63, 0, 0), 0, 1), "BAD_BUCKETS"),
        (histogram((MAX_INT64, MAX_INT64, 2), 0, 1, count=0), "BAD_BUCKETS"),
        (exponential((1, 2), 0, 1, zero=1, count=3), "BAD_BUCKETS"),
        (exponential((1, 2), 0, 1, negative=(1,), count=3), "BAD_BUCKETS"),
        (exponential((), 0, 1, zero=1 << 63), "BAD_BUCKETS"),
        (summary(1 << 63, 1.0, 1, {}), "BAD_BUCKETS"),
    ],
)
def test_p3_reasons(metric: pb.Metric, reason: str) -> None:
    assert quarantined(metric) == [reason]


def test_p3_details_say_what_is_wrong() -> None:
    rows = Shard().run(push(1, counter(1, 9, 1), histogram((1 << 63, 0, 0), 0, 1), histogram((1, 0, 0), 0, 1, count=2)))
    assert values_of(rows.quarantine.to_pylist(), "metric", "detail") == [
        (
            "requests.total",
            f"start_time_unix_nano {T0_NS + 9 * 10**9} is more than 1 s after time_unix_nano {T0_NS + 10**9}",
        ),
        ("latency", "a count is above int64"),
        ("latency", "the buckets' sum isn't count"),
    ]


@pytest.mark.parametrize(
    "metric",
    [
        counter(1, 2, 1),
        gauge(1, 1, start=5),
        histogram((), 0, 1, bounds=(), count=3),
        exponential((), 0, 1, count=3),
        histogram((3,), 0, 1, bounds=()),
        exponential((), 0, 1, zero=3),
    ],
)
def test_p3_what_is_valid(metric: pb.Metric) -> None:
    rows = Shard().run(push(1, metric))
    assert rows.quarantine.num_rows == 0
    assert rows.metric_points.num_rows == 1


def test_p3_quarantined_points_do_not_move_the_baseline() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    shard.run(push(2, counter(12, 0, 2, temporality=UNSPECIFIED)))
    assert shard.one(push(3, counter(15, 0, 3)))["delta_int"] == 5


def test_p3_too_many_points_keeps_those_up_to_the_limit() -> None:
    rows = Shard(Limits(max_points_per_push=2)).run(push(1, *(gauge(i, 1, name=f"g{i}") for i in range(5))))
    assert values_of(rows.metric_points.to_pylist(), "metric") == ["g0", "g1"]
    assert values_of(rows.quarantine.to_pylist(), "scope", "reason", "payload") == [("point", "TOO_MANY_POINTS", None)]
    assert values_of(rows.push_outcomes.to_pylist(), "points", "quarantined_points") == [(2, 3)]
    assert values_of(rows.quarantine.to_pylist(), "detail") == ["3 points beyond the limit of a push"]


def test_p4_gauges_and_non_monotonic_sums_are_never_differenced() -> None:
    shard = Shard()
    shard.run(push(1, gauge(5, 1, start=0), counter(5, 0, 1, monotonic=False)))
    rows = shard.points(push(2, gauge(7, 2, start=0), counter(7, 0, 2, monotonic=False)))
    assert (
        values_of(rows, "delta_status", "value", "value_int", "delta", "delta_start")
        == [("value", 7.0, 7, None, None)] * 2
    )
    assert shard.state.numbers.num_rows == 0


def test_p4_gauges_have_no_temporality_and_keep_a_representable_start() -> None:
    beyond_int64 = gauge(1, 1)
    beyond_int64.gauge.data_points[0].start_time_unix_nano = (1 << 64) - 1
    rows = PlainShard().points(push(1, gauge(-1.0, 1), gauge(1.0, 1, start=0.5), beyond_int64))
    assert values_of(rows, "temporality", "is_monotonic", "start_time", "value") == [
        (None, None, None, -1.0),
        (None, None, at(0.5), 1.0),
        (None, None, None, 1.0),
    ]


def test_p4_summaries_are_values() -> None:
    row = Shard().one(push(1, summary(3, 4.5, 1, {0.5: 1.0, 0.99: math.nan})))
    assert (row["delta_status"], row["count"], row["sum"], row["count_delta"]) == ("value", 3, 4.5, None)
    assert row["quantiles"] == [(0.5, 1.0), (0.99, None)]
    assert (row["temporality"], row["is_monotonic"]) == (None, None)


@pytest.mark.parametrize("flags", [1, 3])
def test_p5_no_recorded_value_is_a_bit_and_does_not_touch_the_baseline(flags: int) -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    row = shard.one(push(2, counter(0, 0, 2, flags=flags)))
    assert (row["delta_status"], row["value"], row["value_int"], row["delta"]) == (
        "no_recorded_value",
        None,
        None,
        None,
    )
    assert shard.one(push(3, counter(15, 0, 3)))["delta_int"] == 5


def test_p5_the_time_of_a_point_without_value_means_nothing() -> None:
    """P8 doesn't look at it, so it may be anything: later pushes must not become too late."""
    shard = Shard()
    shard.run(push(1, delta(1, 0, 1)))
    assert shard.one(push(2, delta(0, 1, 200_000, flags=1)))["delta_status"] == "no_recorded_value"
    rows = shard.run(push(3, delta(2, 1, 2)), push(4, delta(0, 2, 3, flags=1)), push(5, delta(0, None, None, flags=1)))
    assert values_of(rows.metric_points.to_pylist(), "delta_status") == [
        "delta",
        "no_recorded_value",
        "no_recorded_value",
    ]
    assert rows.client_events.num_rows == 0


def test_p5_other_flag_bits_mean_nothing_and_a_first_push_without_values_is_not_too_late() -> None:
    assert Shard().one(push(1, counter(10, 0, 1, flags=2)))["delta_status"] == "first"
    rows = Shard().points(push(1, delta(0, 0, 1, flags=1), histogram((), 0, 1, bounds=(), count=0, flags=1)))
    assert values_of(rows, "delta_status", "count", "bucket_counts") == [("no_recorded_value", None, None)] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_p6_non_finite_values_are_null_and_never_a_baseline(value: float) -> None:
    shard = Shard()
    shard.run(push(0, counter(value, 0, 0.5)))
    assert values_of([shard.one(push(1, counter(10.0, 0, 1)))], "delta_status", "delta") == [("first", 10.0)]
    rows = shard.points(push(2, counter(value, 0, 2), delta(value, 1, 2, name="d"), gauge(value, 2)))
    assert values_of(rows, "delta_status", "value", "delta", "delta_start") == [("non_finite", None, None, None)] * 3
    assert shard.one(push(3, counter(12.5, 0, 3)))["delta"] == 2.5


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf])
def test_p6_a_histogram_without_a_finite_sum_still_counts(total: float) -> None:
    shard = Shard()
    shard.run(push(1, histogram((1, 0, 0), 0, 1, total=1.0, low=math.nan, high=2.0)))
    row = shard.one(push(2, histogram((2, 0, 0), 0, 2, total=total, low=0.5, high=math.inf)))
    assert (row["delta_status"], row["count_delta"], row["sum"], row["sum_delta"]) == (
        "converted",
        1,
        None,
        None,
    )
    assert (row["min"], row["max"]) == (0.5, None)


def test_p7_int64_stays_exact_above_2_to_the_53() -> None:
    shard = Shard()
    shard.run(push(1, counter(2**60, 0, 1)))
    row = shard.one(push(2, counter(2**60 + 1, 0, 2)))
    assert (row["value_int"], row["delta_int"], row["delta"]) == (2**60 + 1, 1, 1.0)


def test_p7_a_mixed_series_is_double_from_then_on() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    rows = [shard.one(push(i, counter(value, 0, i))) for i, value in ((2, 12.5), (3, 14), (4, 17))]
    assert values_of(rows, "delta", "delta_int", "value_int") == [
        (2.5, None, None),
        (1.5, None, 14),
        (3.0, None, 17),
    ]


def test_p7_a_difference_beyond_int64_falls_back_to_double() -> None:
    shard = Shard()
    shard.run(push(1, counter(-(1 << 63), 0, 1)))
    row = shard.one(push(2, counter(MAX_INT64, 0, 2)))
    assert (row["delta_status"], row["delta"], row["delta_int"]) == ("converted", 2.0**64, None)
    assert shard.one(push(3, counter(MAX_INT64, 0, 3)))["delta_int"] == 0


def test_p8_the_tolerance_is_a_setting_and_never_more_than_the_window() -> None:
    late = push(1, counter(1, 0, 302.000000001), landed=2)
    for limits in (Limits(future_tolerance_s=300), Limits(redelivery_window_s=300)):
        assert PlainShard(limits).run(late).quarantine["reason"].to_pylist() == ["FUTURE_TIME"]
    assert PlainShard(Limits(future_tolerance_s=301)).points(late) != []


@pytest.mark.parametrize("time_ns", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_p8_times_beyond_the_calendar_do_not_crash(time_ns: int) -> None:
    metric = counter(1, 0, 1)
    metric.sum.data_points[0].time_unix_nano = time_ns
    assert quarantined(metric) == ["FUTURE_TIME"]


def test_p8_a_time_within_the_tolerance_is_a_baseline_and_one_beyond_it_is_not() -> None:
    ahead = DEFAULT_LIMITS.future_tolerance_s
    shard = Shard()
    assert shard.one(push(1, counter(10, 0, ahead), landed=0))["delta_status"] == "first"
    beyond = shard.run(push(2, counter(90, 0, 3601.000000001), gauge(1, 3601.000000001), landed=1))
    why = f"time_unix_nano {T0_NS + 3601_000_000_001} is 3600 s after the record landed"
    assert values_of(beyond.quarantine.to_pylist(), "reason", "detail") == [("FUTURE_TIME", why)] * 2
    assert values_of([shard.one(push(3, counter(12, 0, ahead + 3), landed=3))], *RESULT) == [
        ("converted", 2, at(ahead))
    ]


def test_p8_a_time_beyond_the_tolerance_makes_no_later_push_too_late() -> None:
    shard = Shard()
    ahead = 2 * DEFAULT_LIMITS.future_tolerance_s
    shard.run(push(1, delta(5, 0, 1), delta(7, 0, ahead, name="ahead.total")))
    rows = shard.run(push(2, delta(6, 1, 2)))
    assert values_of(rows.metric_points.to_pylist(), "delta_status", "delta") == [("delta", 6.0)]
