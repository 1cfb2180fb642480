"""Rules C1 to C6, C9 to C12: cumulative points of one series to deltas."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.otlp_builder import DELTA, at, counter, delta, gauge, histogram, push, values_of
from tests.support.otlp_builder import Shard as PlainShard
from tests.unit.conversion.checked_shard import Shard

DAY = 86_400
RESULT = ("delta_status", "delta_int", "delta_start")


def converted(*points: tuple[int, float | None, float]) -> list[Any]:
    """Results of a series of (value, start, time), one batch each."""
    shard = Shard()
    return [values_of([shard.one(push(i, counter(*point)))], *RESULT)[0] for i, point in enumerate(points)]


def batch_converted(*points: tuple[int, float | None, float]) -> list[Any]:
    """The same in one batch."""
    return values_of(Shard().points(*(push(i, counter(*point)) for i, point in enumerate(points))), *RESULT)


def test_examples_are_compared_with_the_model() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    assert shard.compares


def test_c1_points_are_sorted_by_time_across_the_pushes_of_a_batch() -> None:
    """Out of order within a batch: differencing in offset order would count 30 -> 20 as a reset (double count)."""
    results = batch_converted((10, 0, 1), (30, 0, 3), (20, 0, 2), (40, 0, 4))
    assert results == [
        ("first", 10, at(0)),
        ("converted", 10, at(2)),
        ("converted", 10, at(1)),
        ("converted", 10, at(3)),
    ]


def test_c1_ties_keep_arrival_order() -> None:
    results = batch_converted((20, 0, 2), (10, 0, 1), (11, 0, 1))
    assert results == [("converted", 10, at(1)), ("first", 10, at(0)), ("conflict", None, None)]


@pytest.mark.parametrize(
    ("points", "results"),
    [
        # Moving the baseline back would count 2 -> 3 twice.
        ([(30, 0, 3), (20, 0, 2), (35, 0, 4)], [("late", None, None), ("converted", 5, at(3))]),
        ([(10, 0, 5), (3, 2, 4), (12, 0, 6)], [("late", None, None), ("converted", 2, at(5))]),  # no reset
        ([(10, 0, 1), (11, 0, 1), (12, 0, 2)], [("conflict", None, None), ("converted", 2, at(1))]),
    ],
)
def test_c2_late_points_and_conflicts_do_not_move_the_baseline(points: list[Any], results: list[Any]) -> None:
    assert converted(*points)[1:] == results


def test_c2_the_same_time_and_value_is_a_duplicate() -> None:
    """In a push of other bytes: it is no redelivery (D2)."""
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    again = shard.points(push(2, counter(10, 0, 1), gauge(1, 1)))
    assert values_of(again, *RESULT) == [("duplicate", None, None), ("value", None, None)]
    assert values_of([shard.one(push(3, counter(12, 0, 2)))], *RESULT) == [("converted", 2, at(1))]


@pytest.mark.parametrize("start", [None, 1, 1.5, 2])
def test_c3_c4_without_a_start_before_it_the_first_point_is_a_baseline(start: float | None) -> None:
    """Differences go on, for an unchanged start is never a reset: here it is, or may be, the last time."""
    assert converted((10, start, 1), (13, start, 2)) == [("baseline", 0, None), ("converted", 3, at(1))]


@pytest.mark.parametrize("start", [2, 2.5])
def test_c4_a_start_between_the_last_and_this_time_is_a_true_reset(start: float) -> None:
    """A restart: the counter begins anew and is already above its last value."""
    assert converted((10, 0, 2), (25, start, 3), (26, start, 4))[1:] == [
        ("reset", 25, at(start)),
        ("converted", 1, at(3)),
    ]


@pytest.mark.parametrize("start", [3, 3.5])
def test_c4_a_new_start_at_or_after_the_time_is_a_baseline(start: float) -> None:
    assert converted((10, 0, 2), (25, start, 3), (27, start, 4)) == [
        ("first", 10, at(0)),
        ("baseline", 0, None),
        ("converted", 2, at(3)),
    ]


@pytest.mark.parametrize(
    ("first", "then", "since"),
    [
        ((10, 0, 1), (4, 0, 2), 1),  # the same start
        ((10, 0, 2), (4, 1, 3), 2),  # a start before the last time
        ((10, None, 1), (4, None, 2), 1),  # an unknown start
    ],
)
def test_c5_a_fall_is_an_inferred_reset(first: Any, then: Any, since: float) -> None:
    assert converted(first, then)[1] == ("inferred_reset", 4, at(since))


def test_c5_the_baseline_moves_on_a_reset() -> None:
    """With the old baseline every later point would look like a reset again."""
    assert converted((100, 0, 1), (5, 0, 2), (9, 0, 3), (12, 0, 4))[1:] == [
        ("inferred_reset", 5, at(1)),
        ("converted", 4, at(2)),
        ("converted", 3, at(3)),
    ]


def test_c4_the_baseline_moves_when_only_the_start_changes() -> None:
    """With the old start every later point would look like a reset again."""
    assert converted((100, 0, 1), (130, 1.5, 2), (131, 1.5, 3), (133, 1.5, 4))[1:] == [
        ("reset", 130, at(1.5)),
        ("converted", 1, at(2)),
        ("converted", 2, at(3)),
    ]


@pytest.mark.parametrize("start", [1, None])
def test_c6_a_start_that_moves_before_the_last_time_or_vanishes_is_flagged(start: float | None) -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 2)))
    rows = [shard.one(push(2, counter(15, start, 3))), shard.one(push(3, counter(15, start, 4)))]
    assert values_of(rows, *RESULT, "flags") == [
        ("converted", 5, at(2), ["start_moved"]),
        ("converted", 0, at(3), None),
    ]


def flip(first: Any, *rest: Any) -> list[Any]:
    """Results of one metric per push and batch."""
    shard = Shard()
    return [values_of([shard.one(push(i, metric))], *RESULT)[0] for i, metric in enumerate((first, *rest))]


@pytest.mark.parametrize("start", [2, 2.001])
def test_c9_cumulative_to_delta_the_lifetime_total_is_differenced(start: float) -> None:
    """Java's first delta after a flip is the lifetime total: counting it would double everything."""
    assert flip(counter(10, 0, 1), delta(14, start, 2), delta(3, 2, 3)) == [
        ("first", 10, at(0)),
        ("flip_converted", 4, at(1)),
        ("delta", 3, at(2)),
    ]


@pytest.mark.parametrize(
    ("metrics", "last"),
    [
        ([counter(10, 0, 1), delta(14, 2, 2, name="unknown.total")], ("flip_baseline", 0, None)),
        ([counter(10, 0, 1), delta(4, 2, 2)], ("flip_baseline", 0, None)),  # a smaller total
        ([counter(10, 0, 1), delta(4, 1, 2)], ("delta", 4, at(1))),  # librdkafka flips cleanly
        ([delta(4, 1, 1)], ("delta", 4, at(1))),  # the client never sent totals
        ([delta(5, 0, 1), counter(13, None, 3)], ("flip_baseline", 0, None)),
        ([delta(5, 0, 1), counter(7, 1.5, 3, name="new.total")], ("first", 7, at(1.5))),
        ([delta(5, 0, 1), counter(7, 1, 3, name="new.total")], ("flip_baseline", 0, None)),  # no later than the delta
    ],
)
def test_c9_what_is_known_of_a_total_at_a_flip(metrics: list[Any], last: Any) -> None:
    assert flip(*metrics)[-1] == last


FLIPS = [
    (
        [counter(10, 0, 1), delta(14, 2, 2), delta(3, 2, 3), counter(19, 0, 4), counter(20, 0, 5), delta(23, 6, 6)],
        [
            ("first", 10, at(0)),
            ("flip_converted", 4, at(1)),
            ("delta", 3, at(2)),
            ("flip_baseline", 0, None),
            ("converted", 1, at(4)),
            ("flip_converted", 3, at(5)),
        ],
    ),
    # The increments of the first total have passed as deltas already.
    (
        [delta(5, 0, 1), delta(6, 1, 2), counter(13, 0, 3), counter(14, 0, 4)],
        [("delta", 5, at(0)), ("delta", 6, at(1)), ("flip_baseline", 0, None), ("converted", 1, at(3))],
    ),
    # Java starts its series anew: start_time is the flip's time, the value the lifetime total.
    (
        [delta(5, 0, 1), counter(13, 3, 3), counter(15, 3, 4)],
        [("delta", 5, at(0)), ("flip_baseline", 0, None), ("converted", 2, at(3))],
    ),
    # The growth of a total that deltas came after is unknown; what has grown since then is not.
    (
        [counter(10, 0, 1), delta(2, 1, 2), delta(13, 3, 3), delta(15, 4, 4), counter(16, 0, 5)],
        [
            ("first", 10, at(0)),
            ("delta", 2, at(1)),
            ("flip_baseline", 0, None),
            ("flip_converted", 2, at(3)),
            ("flip_baseline", 0, None),
        ],
    ),
    # librdkafka: the total includes what has passed as deltas since the last one.
    (
        [counter(10, 0, 1), delta(4, 1, 2), counter(16, 0, 3), counter(17, 0, 4)],
        [("first", 10, at(0)), ("delta", 4, at(1)), ("flip_baseline", 0, None), ("converted", 1, at(3))],
    ),
    # franz-go leaves out zeros: nothing of this series has passed as delta.
    (
        [counter(10, 0, 1), delta(1, 1, 2, name="other.total"), counter(12, 0, 3)],
        [("first", 10, at(0)), ("delta", 1, at(1)), ("converted", 2, at(1))],
    ),
]


@pytest.mark.parametrize(("metrics", "results"), FLIPS)
def test_c9_there_and_back_again_in_batches_of_one_and_of_all(metrics: list[Any], results: list[Any]) -> None:
    assert flip(*metrics) == results
    assert values_of(Shard().points(*(push(i, metric) for i, metric in enumerate(metrics))), *RESULT) == results


def test_c9_both_temporalities_in_one_push_count_no_total() -> None:
    shard = Shard()
    shard.run(push(1, counter(1, 0, 1, name="another.total")))
    rows = shard.points(push(2, delta(14, 2, 2), counter(20, 0, 3)))
    assert values_of(rows, *RESULT) == [("flip_baseline", 0, None)] * 2


def test_c9_a_late_push_is_no_flip() -> None:
    shard = Shard()
    shard.run(push(1, delta(1, 0, 1)), push(2, counter(5, 0, 3)))
    for late in (push(3, delta(1, 1, 2)), push(4, counter(6, 0, 4))):
        assert "temporality_flip" not in values_of(shard.run(late).client_events.to_pylist(), "event")


def test_c9_histograms_flip_like_sums() -> None:
    shard = Shard()
    rows = [
        shard.one(push(1, histogram((1, 0, 0), 0, 1))),
        shard.one(push(2, histogram((1, 2, 0), 2, 2, temporality=DELTA))),
        shard.one(push(3, histogram((1, 1, 0), 2, 3, temporality=DELTA))),
        shard.one(push(4, histogram((2, 3, 0), 0, 4))),
    ]
    assert values_of(rows, "delta_status", "count_delta", "bucket_counts_delta", "delta_start") == [
        ("first", 1, [1, 0, 0], at(0)),
        ("flip_converted", 2, [0, 2, 0], at(1)),
        ("delta", 2, [1, 1, 0], at(2)),
        ("flip_baseline", 0, [0, 0, 0], None),
    ]


def test_c9_the_flip_is_an_event_of_the_client() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    events = shard.run(push(2, delta(14, 2, 2))).client_events.to_pylist()
    assert values_of(events, "event", "at", "client_instance_id") == [
        ("temporality_flip", at(2), "jHecHqLPQj2rnaP7QRzrmg")
    ]
    assert dict(events[0]["detail"]) == {"from": "cumulative", "to": "delta"}
    assert shard.run(push(3, delta(1, 2, 3))).client_events.num_rows == 0
    events = shard.run(push(4, gauge(1, 4), counter(16, 0, 4))).client_events.to_pylist()
    assert dict(events[0]["detail"]) == {"from": "delta", "to": "cumulative"}


def test_c10_a_negative_delta_of_a_monotonic_series_is_kept() -> None:
    shard = Shard()
    rows = shard.points(push(1, delta(-3, 0, 1), delta(-3, 0, 1, name="level", monotonic=False)))
    assert values_of(rows, *RESULT) == [("negative", -3, at(0)), ("delta", -3, at(0))]


def test_c11_a_restarted_job_goes_on_where_it_was() -> None:
    """Losing the state would count 10 again as a first point."""
    shard, restarted = PlainShard(), PlainShard()
    shard.run(push(1, counter(10, 0, 1)))
    restarted.state = type(shard.state).from_bytes(shard.state.to_bytes())
    assert values_of([restarted.one(push(2, counter(12, 0, 2)))], *RESULT) == [("converted", 2, at(1))]


@pytest.mark.parametrize(
    ("metric", "landed", "result"),
    [
        (counter(12, 0, DAY + 2), DAY + 1.000001, ("baseline", 0, None)),
        (counter(12, 0, DAY + 1), DAY + 1, ("converted", 2, at(1))),  # exactly a day is not too long
        (counter(12, 0, 32 * DAY), 32 * DAY, ("first", 12, at(0))),  # the tombstone is gone
        (delta(15, 2 * DAY, 2 * DAY), 2 * DAY, ("flip_baseline", 0, None)),  # it is known to have sent totals
    ],
)
def test_c12_a_client_is_evicted_a_day_after_its_last_push(metric: Any, landed: float, result: Any) -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), landed=1))
    assert values_of([shard.one(push(2, metric, landed=landed))], *RESULT) == [result]


def test_c12_a_terminated_client_is_evicted_after_an_hour() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), landed=1, terminating=True))
    assert values_of([shard.one(push(2, counter(12, 0, 3602), landed=3601.5))], *RESULT) == [("baseline", 0, None)]


def test_c12_a_push_after_the_terminating_one_revives_the_client() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), terminating=True), push(2, counter(11, 0, 2)))
    row = shard.one(push(3, counter(12, 0, 5000), landed=5000))
    assert values_of([row], *RESULT) == [("converted", 1, at(2))]


def test_c12_a_heartbeat_keeps_a_client() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), landed=1), push(2, landed=DAY - 5))
    row = shard.one(push(3, counter(12, 0, DAY + 100), landed=DAY + 100))
    assert values_of([row], *RESULT) == [("converted", 2, at(1))]


def test_c12_a_series_that_began_after_the_tombstone_counts_in_full() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), landed=1))
    rows = shard.points(
        push(2, counter(4, 2 * DAY - 5, 2 * DAY), counter(5, 1, 2 * DAY, name="at.total"), landed=2 * DAY)
    )
    assert values_of(rows, *RESULT) == [("first", 4, at(2 * DAY - 5)), ("baseline", 0, None)]


def test_c12_the_tombstone_holds_for_series_that_return_later_still() -> None:
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), counter(20, 0, 1, name="b.total"), landed=1))
    shard.run(push(2, counter(12, 0, 2 * DAY), landed=2 * DAY))
    rows = shard.points(
        push(3, counter(23, 0, 2 * DAY + 1, name="b.total"), counter(15, 0, 2 * DAY + 1), landed=2 * DAY + 1)
    )
    assert values_of(rows, *RESULT) == [("baseline", 0, None), ("converted", 3, at(2 * DAY))]


def test_c12_without_a_tombstone_a_client_is_a_new_one() -> None:
    """No flip, no lost interval, nothing too late."""
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1), landed=1))
    rows = shard.run(push(2, delta(15, 32 * DAY, 32 * DAY), delta(2, 5, 6, name="d.total"), landed=32 * DAY))
    assert values_of(rows.metric_points.to_pylist(), *RESULT) == [("delta", 15, at(32 * DAY)), ("delta", 2, at(5))]
    assert rows.client_events.num_rows == 0


def test_c12_what_was_removed_is_evicted_whenever_it_returns() -> None:
    """It may return in another partition, which is read later: its series are gone all the same."""
    shard = PlainShard()
    shard.run(push(1, counter(10, 0, 1), landed=1), push(2, gauge(1, 2 * DAY), landed=2 * DAY, client_instance_id="x"))
    row = shard.one(push(1, counter(12, 0, 5), landed=5, partition=1))
    assert values_of([row], *RESULT) == [("baseline", 0, None)]


def test_c12_state_is_removed_when_the_clients_own_partition_has_moved_well_past() -> None:
    """Another partition is read far ahead: nothing that is live there may go."""
    shard = Shard()
    other: dict[str, Any] = {"client_instance_id": "x" * 22}
    shard.run(push(1, counter(10, 0, 1), histogram((1, 0, 0), 0, 1), delta(1, 0, 1, name="d.total"), landed=1))
    shard.run(push(1, gauge(1, 9 * DAY), landed=9 * DAY, partition=1, client_instance_id="y" * 22))
    shard.run(push(2, gauge(1, DAY + 2), landed=DAY + 2, **other))
    assert (shard.state.numbers.num_rows, shard.state.distributions.num_rows) == (1, 1)
    shard.run(push(3, gauge(1, 2 * DAY), landed=2 * DAY, **other))
    assert (shard.state.numbers.num_rows, shard.state.distributions.num_rows) == (0, 0)
    assert shard.state.recent_pushes.num_rows == 3
    returned = push(4, counter(12, 0, 2 * DAY), delta(2, 1, 2 * DAY, name="d.total"), landed=2 * DAY)
    assert values_of(shard.points(returned), *RESULT) == [("flip_baseline", 0, None), ("delta", 2, at(1))]


def test_c12_tombstones_go_too() -> None:
    shard = Shard(Limits(tombstone_s=DAY))
    shard.run(push(1, counter(10, 0, 1), landed=1))
    shard.run(push(2, gauge(1, 3 * DAY), landed=3 * DAY, client_instance_id="x" * 22))
    assert shard.state.clients.num_rows == 1


@pytest.mark.parametrize("batches", [1, 2, 46])
def test_c13_a_clock_that_jumped_ahead_makes_no_later_point_late(batches: int) -> None:
    """A push whose clock is 50 minutes ahead, then 44 true ones, a minute apart.

    Before, a push 23 h ahead made the 44 true pushes after it `late`: their sum was 0.
    """
    true = [push(minute, counter(minute, 0, 60 * minute), landed=60 * minute) for minute in range(2, 46)]
    pushes = [push(0, counter(0, 0, 1), landed=1), push(1, counter(1, 0, 60 + 3000), landed=60), *true]
    shard, size = Shard(), -(-len(pushes) // batches)
    rows = [row for first in range(0, len(pushes), size) for row in shard.points(*pushes[first : first + size])]
    assert sum(row["delta_int"] or 0 for row in rows) == 45
    assert [row["value_int"] for row in rows if row["delta_status"] == "late"] in ([], [1])
    assert values_of([row for row in rows if row["flags"]], "value_int", "flags") == [(1, ["clock_ahead"])]


def test_c13_23_hours_ahead_is_quarantined_and_no_later_point_is_late() -> None:
    shard = Shard()
    shard.run(push(0, counter(0, 0, 1), landed=1))
    ahead = shard.run(push(1, counter(1, 0, 60 + 23 * 3600), landed=60))
    assert values_of(ahead.quarantine.to_pylist(), "reason") == ["FUTURE_TIME"]
    rows = shard.points(*(push(i, counter(i, 0, 60 * i), landed=60 * i) for i in range(2, 46)))
    assert {row["delta_status"] for row in rows} == {"converted"}
    assert sum(row["delta_int"] for row in rows) == 45


def test_c13_the_first_true_point_has_no_delta_start_as_it_lies_after_its_time() -> None:
    shard = Shard()
    shard.run(push(1, counter(5, 0, 1)), push(2, counter(6, 0, 3000)))
    row = shard.one(push(3, counter(9, 0, 3)))
    assert (row["delta_status"], row["delta_int"], row["delta_start"]) == ("converted", 3, None)
    row = shard.one(push(4, counter(10, 0, 4)))
    assert (row["delta_status"], row["delta_int"], row["delta_start"]) == ("converted", 1, at(3))


def test_c13_an_older_push_of_a_clock_that_is_always_ahead_stays_late() -> None:
    shard = Shard()
    shard.run(push(1, counter(5, 0, 601), landed=1), push(2, counter(8, 0, 603), landed=3))
    assert shard.one(push(3, counter(6, 0, 602), landed=4))["delta_status"] == "late"
    assert shard.one(push(4, counter(9, 0, 605), landed=5))["delta_int"] == 1


def test_c13_a_fall_behind_a_clock_that_was_ahead_is_a_reset_only_two_hours_later() -> None:
    shard = Shard()
    shard.run(push(1, counter(5, 0, 601), landed=1))
    assert shard.one(push(2, counter(2, 0, 700), landed=700))["delta_status"] == "late"
    assert shard.one(push(3, counter(3, 0, 7801), landed=7801))["delta_status"] == "late"
    assert shard.one(push(4, counter(3, 0, 7802), landed=7802))["delta_status"] == "inferred_reset"


def test_c13_an_older_push_an_hour_ahead_that_lands_late_is_no_reset() -> None:
    """10 at 1 s has a time an hour after its landing at 4 s, and lands behind 12 at 2 s."""
    shard = Shard()
    rows = shard.points(push(1, counter(12, 0, 2), landed=3)) + shard.points(push(2, counter(10, 0, 3604), landed=4))
    rows += shard.points(push(3, counter(13, 0, 5), landed=5))
    assert values_of(rows, "delta_status", "delta_int") == [("first", 12), ("late", None), ("converted", 1)]


@pytest.mark.parametrize(("ahead", "status"), [(1.0, "inferred_reset"), (1.000001, "late"), (40, "late")])
def test_c13_a_clock_more_than_a_second_ahead_is_seen(ahead: float, status: str) -> None:
    """A clock is set back between two pushes of a batch: by times, 10 comes after 12."""
    landed = 2 - ahead / 2
    rows = Shard().points(
        push(1, counter(10, -100, landed + ahead), landed=landed), push(2, counter(12, -100, 2), landed=2)
    )
    assert [(row["delta_status"], row["delta_int"]) for row in rows] == [
        (status, 10 if status == "inferred_reset" else None), ("first", 12),
    ]  # fmt: skip


def test_c13_does_not_hold_for_another_life_of_the_series() -> None:
    shard = Shard()
    shard.run(push(1, counter(5, 0, 601), landed=1))
    assert shard.one(push(2, counter(8, 1.5, 2)))["delta_status"] == "late"
