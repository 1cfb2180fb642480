"""Rules D1 to D6: redelivery, gaps and lateness of pushes."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from kafka_telemetry_lake.udfs.conversion.shard import ShardRows
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.otlp_builder import at, counter, delta, gauge, histogram, push, summary, values_of
from tests.unit.conversion.checked_shard import Shard

HOUR = 3600


def events(*batches: ShardRows) -> list[Any]:
    """Events as (event, start, end), times without the date."""
    found = [row for rows in batches for row in rows.client_events.to_pylist()]
    return [(row["event"], *(dict(row["detail"])[name][11:23] for name in ("start", "end"))) for row in found]


def lost(rows: ShardRows) -> list[Any]:
    return values_of(rows.push_outcomes.to_pylist(), "lost_start", "lost_end")


def statuses(rows: ShardRows) -> list[Any]:
    return values_of(rows.metric_points.to_pylist(), "delta_status", "delta_int")


def outcomes(rows: ShardRows) -> list[Any]:
    return values_of(rows.push_outcomes.to_pylist(), "outcome")


def test_d1_the_same_record_twice_in_a_batch_is_read_once() -> None:
    rows = Shard().run(push(1, delta(5, 0, 1)), push(1, delta(5, 0, 1)), push(2), push(2))
    assert statuses(rows) == [("delta", 5)]
    assert outcomes(rows) == ["points", "heartbeat"]


def test_d1_reading_a_record_again_changes_nothing() -> None:
    shard = Shard()
    shard.run(push(1, delta(5, 0, 1), gauge(None, 1)), push(2, delta(6, 1, 2)))
    before = shard.state.to_bytes()
    rows = shard.run(push(1, delta(5, 0, 1), gauge(None, 1)))
    assert [table.num_rows for table in (rows.metric_points, rows.push_outcomes, rows.quarantine)] == [
        0,
        0,
        0,
    ]
    assert rows.client_events.num_rows == 0
    assert shard.state.to_bytes() == before


def test_d1_another_source_cluster_topic_or_partition_is_another_push() -> None:
    shard = Shard()
    shard.run(push(1, delta(5, 0, 1)))
    for change in ({"source": "files"}, {"topic": "other"}, {"partition": 1}, {"offset": 2}):
        assert outcomes(shard.run(push(1, delta(5, 0, 1)) | change)) == ["duplicate"]
    assert statuses(shard.run(push(1, delta(5, 0, 1), cluster_id="other"))) == [("delta", 5)]


def test_d2_a_redelivered_push_is_a_duplicate_in_all_its_points() -> None:
    metrics = [delta(5, 0, 1), gauge(7, 1), counter(9, 0, 1, name="c.total"), summary(1, 1.0, 1, {})]
    metrics.append(histogram((1, 0, 0), 0, 1, temporality=1))
    shard = Shard()
    shard.run(push(1, *metrics))
    rows = shard.run(push(2, *metrics))
    points = rows.metric_points.to_pylist()
    assert (
        values_of(points, "delta_status", "delta", "count_delta", "delta_start")
        == [("duplicate", None, None, None)] * 5
    )
    assert values_of(points, "value")[:3] == [5.0, 7.0, 9.0]
    assert outcomes(rows) == ["duplicate"]


def test_d2_within_a_batch() -> None:
    """Another client may send the same bytes, and franz-go's heartbeats repeat byte for byte."""
    again = push(4, delta(5, 0, 1), client_instance_id="x" * 22)
    rows = Shard().run(
        push(1, delta(5, 0, 1)), push(2, delta(5, 0, 1)), push(3, delta(6, 1, 2)), again, push(5), push(6)
    )
    assert statuses(rows) == [("delta", 5), ("duplicate", None), ("delta", 6), ("delta", 5)]
    assert outcomes(rows) == ["points", "duplicate", "points", "points", "heartbeat", "heartbeat"]


def test_d2_the_digest_is_of_the_decompressed_bytes() -> None:
    shard = Shard()
    first = push(1, delta(5, 0, 1))
    shard.run(first)
    again = push(2, payload=gzip.compress(first["payload"]), compression_type="gzip")
    assert outcomes(shard.run(again)) == ["duplicate"]


@pytest.mark.slow
def test_d2_the_memory_spans_the_window() -> None:
    shard = Shard()
    for second in range(0, HOUR, 60):
        shard.run(push(second, delta(1, second - 60, second, name=f"m{second}.total")))
    assert outcomes(shard.run(push(HOUR, delta(1, -60, 0, name="m0.total")))) == ["duplicate"]


def test_d2_the_memory_holds_sixteen_pushes_at_least() -> None:
    shard = Shard()
    for index in range(17):
        shard.run(push(index, delta(index, (index - 1) * HOUR, index * HOUR), landed=index * HOUR))
    assert shard.state.recent_pushes.num_rows == 16
    rows = shard.run(push(17, delta(1, 0, HOUR), landed=17 * HOUR), push(18, delta(0, -HOUR, 0), landed=17 * HOUR))
    assert outcomes(rows) == ["duplicate", "too_late"]


def test_d2_a_redelivered_cumulative_push_does_not_move_the_baseline() -> None:
    shard = Shard()
    shard.run(push(1, counter(5, 0, 1)), push(2, counter(8, 0, 2)))
    shard.run(push(3, counter(5, 0, 1)))
    assert statuses(shard.run(push(4, counter(9, 0, 3)))) == [("converted", 1)]


DAY = 30 * HOUR  # and more: the client has been evicted


@pytest.mark.parametrize(
    ("pushes", "start", "end"),
    [
        ([push(1, delta(5, 0, 1)), push(3, delta(7, 2, 3)), push(4, delta(8, 3, 4))], 1, 2),
        ([push(1, delta(5, 0, 1)), push(2), push(3), push(9, delta(5, 8, 9))], 3, 8),
        ([push(1, delta(5, 0, 1)), push(2, payload=b"\xff"), push(3, delta(5, 2, 3))], 1, 2),
        ([push(1, delta(5, 0, 1)), push(2, delta(5, DAY, DAY + 1), landed=DAY + 1)], 1, DAY),
    ],
    ids=["a lost push", "after a heartbeat", "a rejected push", "after an eviction"],
)
def test_d3_a_lost_push_is_a_lost_interval(pushes: list[Any], start: float, end: float) -> None:
    for batches in ([pushes], [[each] for each in pushes]):
        shard = Shard()
        rows = [shard.run(*batch) for batch in batches]
        assert [each for part in rows for each in lost(part) if each != (None, None)] == [(at(start), at(end))]
        clock = [at(second).isoformat(timespec="milliseconds")[11:23] for second in (start, end)]
        assert events(*rows) == [("lost_interval", *clock)]
        assert {status for part in rows for status, _ in statuses(part)} == {"delta"}


@pytest.mark.parametrize(
    "pushes",
    [
        [push(i, delta(5, i - 1, i)) for i in range(1, 9)],
        # A topic that appears in the meantime starts later than the chain: the earliest start counts.
        [push(1, delta(1, 0, 1)), push(2, delta(1, 1.7, 2, name="new.topic"), delta(1, 1, 2))],
        # First starts may be unknown.
        [push(1, delta(5, None, 1)), push(2, delta(5, 1, 2)), push(3, delta(5, None, 9))],
        # A late push that fills nothing.
        [push(1, delta(5, 1, 2)), push(2, delta(4, 0, 1))],
    ],
    ids=["an unbroken chain", "a new topic", "unknown starts", "a late push"],
)
def test_d3_nothing_is_lost(pushes: list[Any]) -> None:
    rows = Shard().run(*pushes)
    assert rows.client_events.num_rows == 0
    assert set(lost(rows)) == {(None, None)}
    assert {status for status, _ in statuses(rows)} == {"delta"}


def test_d3_a_flip_of_java_loses_nothing() -> None:
    """After a flip its first delta is a lifetime total over a zero interval."""
    rows = Shard().run(push(1, counter(10, 0, 1)), push(2, delta(14, 3, 3)), push(3, delta(1, 3, 4)))
    assert "lost_interval" not in values_of(rows.client_events.to_pylist(), "event")


def test_d3_the_times_inside_a_push_spread() -> None:
    """A Java payload's points differ by up to 206 ms: a start within the last push's times is no gap."""
    shard = Shard()
    shard.run(push(1, delta(1, 0, 1, name="a"), delta(1, 0, 1.206, name="b")))
    rows = shard.run(push(2, delta(1, 1.206, 2.2, name="b")))
    assert lost(rows) == [(None, None)]
    assert lost(shard.run(push(3, delta(1, 2.201, 3, name="b")))) == [(at(2.2), at(2.201))]


def test_d3_intervals_are_filled_piece_by_piece() -> None:
    shard = Shard()
    shard.run(push(1, delta(5, 0, 1)), push(2, delta(7, 4, 5)))
    rows = shard.run(push(3, delta(6, 2, 3)))
    assert statuses(rows) == [("late_delta", 6)]
    assert values_of(shard.state.lost_intervals.to_pylist(), "end") == [ns_of(2), ns_of(4)]
    rows = shard.run(push(4, delta(1, 1, 2)), push(5, delta(2, 3, 4)))
    assert events(rows) == [
        ("lost_interval_closed", "08:00:01.000", "08:00:02.000"),
        ("lost_interval_closed", "08:00:03.000", "08:00:04.000"),
    ]
    assert shard.state.lost_intervals.num_rows == 0


def test_d3_one_push_may_fill_several_intervals() -> None:
    shard = Shard()
    shard.run(push(1, delta(5, 0, 1)), push(2, delta(1, 2, 3)), push(3, delta(1, 4, 5)), push(4, delta(1, 6, 7)))
    rows = shard.run(push(5, delta(9, 1.5, 5)))
    assert events(rows) == [("lost_interval_closed", "08:00:01.500", "08:00:04.000")]
    assert values_of(shard.state.lost_intervals.to_pylist(), "start", "end") == [
        (ns_of(1), ns_of(1.5)),
        (ns_of(5), ns_of(6)),
    ]


SKEW = 300


@pytest.mark.parametrize(
    "pushes",
    [
        # An idle franz-go client: its next delta starts at its last heartbeat, by a clock of its own.
        [
            push(1, delta(5, SKEW, SKEW + 1), landed=1),
            *(push(i, landed=i) for i in range(2, 30)),
            push(30, delta(3, SKEW + 29, SKEW + 30), landed=30),
        ],
        # Of a client that moves between partitions: its heartbeat of 5 s is read before its push of 2 s.
        [
            push(1, delta(5, 0, 1), landed=1),
            push(2, landed=5),
            push(3, delta(5, 1, 2), landed=2),
            push(4, landed=1.5),
            push(5, delta(5, 5, 6), landed=6),
        ],
        # One from before the last push covers nothing less.
        [push(1, delta(5, 0, 10), landed=10), push(2, landed=4), push(3, delta(5, 10, 11), landed=11)],
    ],
    ids=["idle", "out of time order", "before the last push"],
)
def test_d5_heartbeats_cover_their_time(pushes: list[Any]) -> None:
    assert Shard().run(*pushes).client_events.num_rows == 0


def test_d5_absent_points_are_no_gap_and_no_reset() -> None:
    """franz-go leaves out what is zero, and sends pushes without any point."""
    rows = Shard().run(
        push(1, delta(5, 0, 1, name="a.total"), delta(1, 0, 1, name="b.total"), scope="kgo"),
        push(2, delta(2, 1, 2, name="b.total"), scope="kgo"),
        push(3, scope="kgo"),
        push(4, delta(3, 3, 4, name="a.total"), scope="kgo"),
    )
    assert statuses(rows) == [("delta", 5), ("delta", 1), ("delta", 2), ("delta", 3)]
    assert rows.client_events.num_rows == 0


def test_d6_a_delta_push_older_than_the_window_is_too_late() -> None:
    shard = Shard()
    shard.run(push(1, delta(5, 2 * HOUR - 1, 2 * HOUR), landed=2 * HOUR))
    rows = shard.run(push(2, delta(4, HOUR - 2, HOUR - 1), gauge(3, HOUR - 1), landed=2 * HOUR))
    assert values_of(rows.metric_points.to_pylist(), "delta_status", "delta", "value") == [
        ("too_late", None, 4.0),
        ("too_late", None, 3.0),
    ]
    assert outcomes(rows) == ["too_late"]
    assert values_of(rows.client_events.to_pylist(), "event") == ["too_late"]


def test_d6_exactly_the_window_is_not_too_late_and_what_is_leaves_the_chain_alone() -> None:
    shard = Shard(Limits(redelivery_window_s=10))
    shard.run(push(1, delta(5, 19, 20), landed=20))
    rows = shard.run(push(2, delta(4, 9, 10), landed=21), push(3, delta(4, 8, 9.999), landed=21))
    assert statuses(rows) == [("delta", 4), ("too_late", None)]
    assert lost(shard.run(push(4, delta(1, 20, 21), landed=21))) == [(None, None)]


def test_d6_cumulative_pushes_are_never_too_late() -> None:
    shard = Shard(Limits(redelivery_window_s=10))
    shard.run(push(1, counter(5, 0, 20), landed=20))
    assert statuses(shard.run(push(2, counter(4, 0, 1), landed=21))) == [("late", None)]


@pytest.mark.parametrize("slow", [0, 20, 3000])
def test_d6_a_clock_that_jumped_ahead_makes_no_true_push_too_late(slow: int) -> None:
    """A whole hour ahead, and the true clock is behind the landings."""
    shard = Shard()
    shard.run(push(1, delta(1, 4000, 4001 - slow), landed=4001))
    shard.run(push(2, delta(1, 4001, 4002 + 3600), landed=4002))
    rows = [shard.run(push(i, delta(1, 4000 + i - 1 - slow, 4000 + i - slow), landed=4000 + i)) for i in range(3, 30)]
    assert {status for each in rows for status in statuses(each)} == {("delta", 1)}


def test_d6_after_an_eviction_what_is_not_later_than_the_tombstone_is_too_late() -> None:
    """The digests are gone, so it looks like a redelivery."""
    shard = Shard()
    shard.run(push(1, delta(5, 0, 1)))
    rows = shard.run(push(2, delta(5, 0, 1), landed=30 * HOUR))
    assert statuses(rows) == [("too_late", None)]


def ns_of(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000) * 1_000_000
