"""The oracle against the rules' own examples, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.oracle.compare import differences, expected
from tests.oracle.model import DELTA, SECOND_NS, Distribution, Judged, Point, Push, Settings
from tests.oracle.oracle import Oracle
from tests.oracle.points import bad_buckets, node, normalise_attributes, p3_broken
from tests.oracle.scenarios import Features, scenario
from tests.oracle.totals import c8_common, fell, minus
from tests.oracle.wire import payload

T0 = 1_760_000_000 * SECOND_NS
START = T0 - 100 * SECOND_NS


def at(seconds: float) -> int:
    return T0 + int(seconds * SECOND_NS)


def total(number: float | None, seconds: float, start_ns: int = START, **rest: Any) -> Point:
    return replace(Point("m", number=number, start_ns=start_ns, time_ns=at(seconds)), **rest)


def delta(number: float, start: float, end: float, **rest: Any) -> Point:
    return total(number, end, at(start), temporality=DELTA, **rest)


def push(offset: int, *points: Point, landed: float | None = None, terminating: bool = False) -> Push:
    seconds = landed if landed is not None else max((p.time_ns - T0) / SECOND_NS for p in points)
    return Push("c", offset, at(seconds) // 1000, points, payload(points), terminating=terminating)


def judge(*pushes: Push) -> list[tuple[str | None, float | None]]:
    return [brief(judged) for judged in Oracle().batch(list(pushes)).points]


def brief(judged: Judged) -> tuple[str | None, float | None]:
    increment = judged.increment
    return judged.reason or judged.status, increment.number if increment.count is None else increment.count


def totals(*points: Point) -> list[tuple[str | None, float | None]]:
    return judge(*[push(offset, point) for offset, point in enumerate(points)])


@pytest.mark.parametrize(
    ("text", "node_id", "role"),
    [
        ("node-5", "5", "broker"),
        ("5", "5", "broker"),
        ("node--1", "-1", "bootstrap"),
        ("2147483646", "1", "coordinator"),
        ("node-2147473647", "10000", "coordinator"),
        ("node-2147473646", "2147473646", "broker"),
    ],
)
def test_i4_node(text: str, node_id: str, role: str) -> None:
    assert node(text) == {"node_id": node_id, "node_role": role}


def test_i4_names_and_repeated_keys() -> None:
    assert normalise_attributes((("member_id", "a"), ("x", 1))) == ({"group_member_id": "a", "x": "1"}, False)
    assert normalise_attributes((("x", "1"), ("x", "2"))) == ({"x": "2"}, True)


def test_i4_kgo() -> None:
    point = total(None, 1, metric="a.total", scope="kgo", is_monotonic=False)
    [judged] = Oracle().batch([push(0, point)]).points
    assert (judged.status, judged.point.number) == ("first", 0)
    assert judged.flags == ["value_assumed", "monotonic_assumed"]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (total(1, 1, time_ns=0), "NO_TIME"),
        (total(None, 1), "NO_VALUE"),
        (total(1, 1, temporality=0), "UNKNOWN_TEMPORALITY"),
        (total(1, 1, start_ns=at(2)), None),
        (total(1, 1, start_ns=at(2) + 1), "START_AFTER_TIME"),
        (total(1, 1, start_ns=at(9), kind="gauge"), None),
    ],
)
def test_p3(point: Point, reason: str | None) -> None:
    assert p3_broken(point) == reason


@pytest.mark.parametrize(
    ("d", "bad"),
    [
        (Distribution(count=3, bounds=(1.0,), buckets=(1, 2)), False),
        (Distribution(count=3), False),
        (Distribution(count=4, bounds=(1.0,), buckets=(1, 2)), True),
        (Distribution(count=3, bounds=(1.0, 2.0), buckets=(1, 2)), True),
        (Distribution(count=3, bounds=(2.0, 2.0), buckets=(1, 1, 1)), True),
        (Distribution(count=2**64 - 1, bounds=(2.0,), buckets=(2**64 - 1, 2**64 - 1)), True),
    ],
)
def test_p3_buckets(d: Distribution, bad: bool) -> None:
    assert bad_buckets(Point("m", "histogram", distribution=d)) is bad


def test_p3_exponential_buckets() -> None:
    d = Distribution(count=6, zero_count=1, positive=(2,), negative=(3,))
    assert not bad_buckets(Point("m", "exponential_histogram", distribution=d))
    assert bad_buckets(Point("m", "exponential_histogram", distribution=replace(d, zero_count=2)))


def test_p5_p6_p8_touch_nothing() -> None:
    points = [
        total(10, 1),
        total(99, 2, flags=3),
        total(float("nan"), 3),
        total(99, 24 * 3600 + 5),
        total(12, 4),
    ]
    pushes = [push(offset, point, landed=4) for offset, point in enumerate(points)]
    assert judge(*pushes) == [
        ("first", 10),
        ("no_recorded_value", None),
        ("non_finite", None),
        ("FUTURE_TIME", None),
        ("converted", 2),
    ]


def test_p7_exact_then_double() -> None:
    big = 2**53
    points = [total(big, 1), total(big + 1, 2), total(float(big + 2), 3), total(big + 4, 4), total(big + 5, 5)]
    deltas = [judged.increment.number for judged in Oracle().batch([push(0, *points)]).points]
    assert deltas == [big, 1, 2.0, 2.0, 0.0]  # 2^53 + 5 as a double is 2^53 + 4
    assert [type(number) for number in deltas] == [int, int, float, float, float]


def test_c1_order_of_time_not_of_offsets() -> None:
    assert judge(push(0, total(30, 3)), push(1, total(10, 1)), push(2, total(20, 2))) == [
        ("converted", 10),
        ("first", 10),
        ("converted", 10),
    ]


def test_c2_across_batches() -> None:
    oracle = Oracle()
    oracle.batch([push(0, total(30, 3))])
    points = [total(10, 1), total(30.0, 3), total(31, 3), total(40, 4)]
    rest = oracle.batch([push(i + 1, point, landed=9) for i, point in enumerate(points)])
    assert [brief(j) for j in rest.points] == [
        ("late", None), ("duplicate", None), ("conflict", None), ("converted", 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("points", "last"),
    [
        ([total(10, 1)], ("first", 10)),
        ([total(10, 1, start_ns=0)], ("baseline", 0)),
        ([total(10, 1, start_ns=at(1))], ("baseline", 0)),
        ([total(10, 1, start_ns=at(1)), total(13, 2, start_ns=at(1))], ("converted", 3)),
        ([total(10, 1), total(3, 3, start_ns=at(1))], ("reset", 3)),
        ([total(10, 1), total(12, 3, start_ns=at(2))], ("reset", 12)),
        ([total(10, 1), total(12, 3, start_ns=at(3))], ("baseline", 0)),
        ([total(10, 1, start_ns=at(2)), total(12, 2, start_ns=at(2))], ("converted", 2)),
        ([total(10, 1), total(4, 2)], ("inferred_reset", 4)),
        ([total(10, 1), total(4, 2, start_ns=START + 1)], ("inferred_reset", 4)),
        ([total(10, 1), total(4, 2), total(6, 3)], ("converted", 2)),
        ([total(10, 1), total(11, 2, start_ns=START + 1)], ("converted", 1)),
    ],
)
def test_c3_to_c6(points: list[Point], last: tuple[str, float]) -> None:
    assert totals(*points)[-1] == last


def test_c6_flags_a_moved_start() -> None:
    judged = Oracle().batch([push(0, total(10, 1), total(11, 2, start_ns=START + 1))]).points[-1]
    assert judged.flags == ["start_moved"]
    assert judged.increment.start_ns == at(1)


def histogram(seconds: float, *buckets: int, bounds: tuple[float, ...] = (1.0,), total: float = 0.0) -> Point:
    d = Distribution(count=sum(buckets), sum=total, bounds=bounds, buckets=buckets)
    return Point("h", "histogram", start_ns=START, time_ns=at(seconds), distribution=d)


def test_c7() -> None:
    points = [
        histogram(1, 1, 2, total=5.0),
        histogram(2, 2, 2, total=4.0),  # sum falls: no reset
        histogram(3, 1, 4, total=6.0),  # a bucket falls: a reset
        histogram(4, 6, 0, bounds=(2.0,), total=7.0),
        histogram(5, 2, 0, bounds=(1.0,)),
    ]
    result = Oracle().batch([push(i, point) for i, point in enumerate(points)]).points
    assert [(j.status, j.increment.count, j.increment.sum, j.increment.buckets) for j in result] == [
        ("first", 3, 5.0, (1, 2)),
        ("converted", 1, -1.0, (1, 0)),
        ("inferred_reset", 5, 6.0, (1, 4)),
        ("bounds_changed", 1, 1.0, None),
        ("inferred_reset", 2, 0.0, (2, 0)),
    ]


def exponential(d: Distribution) -> Point:
    count = sum(d.positive) + sum(d.negative) + d.zero_count
    return Point("e", "exponential_histogram", distribution=replace(d, count=count))


def test_c8_lower_scale() -> None:
    # At scale 1 the buckets 0..3; at scale 0 they are 0 (of 0 and 1) and 1 (of 2 and 3).
    old = exponential(Distribution(scale=1, positive=(1, 1, 1, 1)))
    new = exponential(Distribution(scale=0, positive_offset=-1, positive=(0, 2, 5)))
    assert not fell(new, old)
    assert minus(new, old, 0).positive == (0, 0, 3)
    assert fell(old, new)


def test_c8_a_rising_scale_or_a_falling_threshold_is_a_reset() -> None:
    old = exponential(Distribution(positive=(3,), positive_offset=9, zero_threshold=1.0))
    assert fell(exponential(Distribution(scale=1, positive=(0, 5), positive_offset=18, zero_threshold=1.0)), old)
    assert fell(exponential(Distribution(positive=(5,), positive_offset=9, zero_threshold=0.5)), old)
    assert not fell(exponential(Distribution(positive=(5,), positive_offset=9, zero_threshold=1.0)), old)


def test_c8_zero_threshold() -> None:
    # Scale 0: bucket 0 is (1, 2], bucket 1 (2, 4]. A threshold of 1.5 is inside bucket 0: raised to 2.
    old = exponential(Distribution(positive=(3, 1), zero_count=1))
    new = exponential(Distribution(positive_offset=1, positive=(2,), zero_count=5, zero_threshold=1.5))
    assert new.distribution is not None
    assert old.distribution is not None
    assert c8_common(new.distribution, old.distribution)[0::2] == (5, 4)
    increment = minus(new, old, 0)
    assert (increment.zero_count, increment.positive) == (1, (1,))
    assert fell(old, new)


def test_c9_java_to_delta_and_back() -> None:
    points = [
        total(100, 1),
        total(130, 2, start_ns=at(2) + 1_000_000, temporality=DELTA),
        delta(5, 2, 3),
        total(140, 4, start_ns=at(4)),
        total(150, 5, start_ns=at(4)),
    ]
    assert totals(*points) == [
        ("first", 100), ("flip_converted", 30), ("delta", 5), ("flip_baseline", 0), ("converted", 10),
    ]  # fmt: skip


def test_c9_librdkafka_to_delta_and_back() -> None:
    points = [total(100, 1), delta(7, 1, 2), total(110, 3)]
    assert totals(*points) == [("first", 100), ("delta", 7), ("flip_baseline", 0)]


def test_c9_unknown_total_and_new_series() -> None:
    flip = total(130, 2, start_ns=at(2), temporality=DELTA, metric="other")
    young = total(3, 4, start_ns=at(3), metric="young")
    assert totals(total(100, 1), flip, delta(1, 2, 2.5), young)[1:] == [
        ("flip_baseline", 0), ("delta", 1), ("first", 3),
    ]  # fmt: skip


def test_c9_a_total_that_deltas_followed_is_not_known() -> None:
    points = [total(100, 1), delta(5, 1, 2), total(130, 3, start_ns=at(3), temporality=DELTA)]
    assert totals(*points)[-1] == ("flip_baseline", 0)


def test_c9_needs_a_client_that_sent_the_other_temporality() -> None:
    assert totals(total(130, 2, start_ns=at(2), temporality=DELTA)) == [("delta", 130)]
    assert totals(delta(5, 0, 1, metric="other"), total(9, 3))[-1] == ("flip_baseline", 0)
    assert totals(total(9, 3)) == [("first", 9)]


def test_c9_back_at_once() -> None:
    points = [total(100, 1), total(130, 2, start_ns=at(2), temporality=DELTA), total(140, 3, start_ns=at(3))]
    assert totals(*points)[-1] == ("flip_baseline", 0)


def test_c9_keeps_no_totals_of_sums_that_may_fall() -> None:
    ups = [replace(total(10 + i, i, start_ns=at(i)), is_monotonic=False) for i in (1, 2, 3)]
    flipped = [replace(up, temporality=DELTA) for up in ups[1:]]
    assert totals(ups[0], *flipped) == [("value", None), ("flip_baseline", 0), ("flip_baseline", 0)]


def test_c10() -> None:
    assert totals(delta(-3, 1, 2)) == [("negative", -3)]
    assert totals(delta(-3, 1, 2, is_monotonic=False)) == [("delta", -3)]


def test_c12_eviction_and_tombstone() -> None:
    day = 24 * 3600
    returned = [
        push(1, total(30, 2 * day), landed=2 * day),
        push(1, total(30, 2 * day, start_ns=at(1)), landed=2 * day),
        push(1, total(30, 2 * day, start_ns=at(2)), landed=2 * day),
        push(1, total(30, 40 * day), landed=40 * day),
        push(1, total(30, day), landed=day + 1),
    ]
    results = [judge(push(0, total(10, 1)), later)[1] for later in returned]
    assert results == [("baseline", 0), ("baseline", 0), ("first", 30), ("first", 30), ("converted", 20)]
    ended = push(0, total(10, 1), terminating=True)
    assert judge(ended, push(1, total(30, 3602), landed=3602))[1] == ("baseline", 0)
    assert judge(ended, push(1, total(30, 3601), landed=3601))[1] == ("converted", 20)
    assert judge(ended, push(1, total(11, 9)), push(2, total(30, 9999)))[2] == ("converted", 19)


def test_c12_redelivery_after_eviction_counts_nothing() -> None:
    for point, status in ((total(10, 1), "late"), (delta(10, 0, 1), "too_late")):
        assert judge(push(0, point), push(1, point, landed=2 * 24 * 3600))[1] == (status, None)


def test_d2_redelivery_marks_gauges_too() -> None:
    points = (delta(4, 0, 1), total(7, 1, kind="gauge"))
    assert judge(push(0, *points), push(1, *points)) == [
        ("delta", 4), ("value", None), ("duplicate", None), ("duplicate", None),
    ]  # fmt: skip


def test_d2_remembers_an_hour_and_sixteen_pushes() -> None:
    first = push(0, delta(4, 0, 1), delta(1, 0, 1, metric="g"))
    steady = [push(i, delta(1, 600 * (i - 1), 600 * i)) for i in range(1, 18)]
    again = replace(first, offset=99)
    assert judge(first, *steady[:15], again)[-1] == ("duplicate", None)
    assert judge(first, *steady[:16], again)[-1] == ("too_late", None)
    quick = [push(i, delta(1, i, i + 1)) for i in range(1, 40)]
    assert judge(first, *quick, again)[-1] == ("duplicate", None)


def test_d3_gap_and_its_filler() -> None:
    pushes = [push(0, delta(1, 0, 1)), push(1, delta(3, 2, 3)), push(2, delta(2, 1, 2), landed=4)]
    batch = Oracle().batch(pushes)
    assert [brief(judged) for judged in batch.points] == [("delta", 1), ("delta", 3), ("late_delta", 2)]
    assert [verdict.lost for verdict in batch.pushes] == [None, (at(1), at(2)), None]
    names = [[name for name, _ in verdict.events] for verdict in batch.pushes]
    assert names == [[], ["lost_interval"], ["lost_interval_closed"]]


@pytest.mark.parametrize(("start", "lost"), [(3.0, None), (4.5, None), (5.0, (at(3.5), at(5)))])
def test_d3_a_heartbeat_covers_the_time_up_to_it(start: float, lost: tuple[int, int] | None) -> None:
    # The first push lands 0.5 s after its time, so the heartbeat is taken to be of 3.5 s.
    first = push(0, delta(1, 0, 1), landed=1.5)
    batch = Oracle().batch([first, push(1, landed=4), push(2, delta(3, start, 6))])
    assert batch.pushes[2].lost == lost


def test_d6() -> None:
    pushes = [push(0, delta(1, 3600, 3601)), push(1, delta(1, 0, 1)), push(2, delta(1, 0, 0.5))]
    assert judge(*pushes) == [("delta", 1), ("delta", 1), ("too_late", None)]


def test_p3_too_many_points() -> None:
    batch = Oracle(Settings(max_points_per_push=2)).batch([push(0, *[total(i, 1, metric=f"m{i}") for i in range(5)])])
    assert [judged.reason or judged.status for judged in batch.points] == [
        "first",
        "first",
        "TOO_MANY_POINTS",
    ]


def test_cuts_change_nothing_for_the_oracle_itself() -> None:
    for seed in range(60):
        random = Random(seed)
        pushes = scenario(random, Features(ordered=True))
        oracle, cut = Oracle(), random.randrange(len(pushes) + 1)
        parts = [oracle.batch(pushes[:cut]), oracle.batch(pushes[cut:])]
        assert differences(expected([Oracle().batch(pushes)]), expected(parts)) == ""


def test_the_scenarios_reach_every_status() -> None:
    seen: set[str | None] = set()
    for seed in range(300):
        random = Random(seed)
        pushes, oracle = scenario(random), Oracle()
        cut = random.randrange(len(pushes) + 1)
        for batch in (oracle.batch(pushes[:cut]), oracle.batch(pushes[cut:])):
            seen.update(judged.reason or judged.status for judged in batch.points)
            seen.update(name for verdict in batch.pushes for name, _ in verdict.events)
    statuses = "delta late_delta negative first reset inferred_reset converted bounds_changed flip_converted baseline"
    refused = "flip_baseline late duplicate conflict too_late no_recorded_value non_finite value"
    reasons = "NO_TIME NO_VALUE UNKNOWN_TEMPORALITY START_AFTER_TIME BAD_BUCKETS FUTURE_TIME"
    events = "temporality_flip lost_interval lost_interval_closed"
    assert seen == set(f"{statuses} {refused} {reasons} {events}".split())
