"""View group_lag over polls of logs whose records were written at known times."""

from __future__ import annotations

import bisect
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.support.sql_views import answer

pytestmark = pytest.mark.lake

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Row = dict[str, Any]


def sample(
    seconds: float, committed: int, end: int | None, start: int | None = 0, group: str = "g", **more: Any
) -> Row:
    """A poll of a log in which each offset has a record, and `sync` looked at the first unread one."""
    usual: Row = {
        "cluster_id": "c", "group_id": group, "topic": "t", "partition": 0, "committed_offset": committed,
        "sampled_at": START + timedelta(seconds=seconds), "log_start_offset": start, "end_offset": end,
        "retention_ms": None, "stable_offset": end,
        "next_record_offset": max(committed, start or 0) if end is not None and committed < end else None,
    }  # fmt: skip
    return usual | more


def lags(rows: list[Row]) -> list[Row]:
    found = answer("group_lag", {"group_lag_samples": rows})
    return sorted(found, key=lambda row: (row["sampled_at"], row["group_id"]))


def brief(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("status", "lag_records", *names))


@pytest.mark.parametrize("seed", range(5))
def test_the_time_is_that_of_the_oldest_unread_record_within_a_poll(seed: int) -> None:
    """Records come in bursts and pauses; a fast group and one that falls behind, polled every ten seconds."""
    random = Random(seed)
    written, now = [], 0.0
    while now < 600:
        now += random.expovariate(5) if random.random() < 0.999 else random.uniform(5, 60)
        written.append(now)
    rows, truth = [], {}
    for poll in range(60):
        at = 10 * poll + random.uniform(0, 2)
        end = bisect.bisect(written, at)
        for group, behind in (("fast", random.uniform(0, 15)), ("slow", at * 0.4)):
            committed = bisect.bisect(written, at - behind)
            rows.append(sample(at, committed, end, group=group))
            truth[rows[-1]["sampled_at"], group] = at - written[committed] if committed < end else 0.0
    judged = [(row, truth[row["sampled_at"], row["group_id"]]) for row in lags(rows)]
    known = [(row, true) for row, true in judged if row["time_lag_s"] is not None]
    assert len(known) >= 110
    assert sum(row["status"] == "measured" for row, _ in known) > 60
    for row, true in known:
        assert abs(row["time_lag_s"] - true) <= row["time_lag_error_s"] + 1e-6
        assert row["time_lag_error_s"] <= 12 or row["status"] == "caught_up"
    for row, true in judged:
        assert row["time_lag_at_least_s"] <= true + 1e-6


def test_a_record_between_two_polls_is_placed_by_its_offset() -> None:
    first, second, third = lags([sample(0, 100, 100), sample(10, 100, 200), sample(20, 150, 200)])
    assert brief(first, "time_lag_s", "time_lag_error_s") == ("caught_up", 0, 0, 0)
    assert brief(second, "time_lag_s", "time_lag_error_s", "time_lag_at_least_s") == ("measured", 100, 10, 10, 0)
    assert brief(third, "time_lag_s", "time_lag_error_s", "time_lag_at_least_s") == ("measured", 50, 15, 10, 10)
    assert [row["latest"] for row in (first, second, third)] == [False, False, True]


def test_an_idle_log_does_not_move_the_time_of_its_last_records() -> None:
    polls = [sample(0, 10, 10), sample(10, 10, 10), sample(20, 10, 20), sample(30, 15, 20), sample(500, 15, 20)]
    assert [row["time_lag_s"] for row in lags(polls)] == [0, 0, 10, 15, 485]


def test_what_is_older_than_the_first_poll_has_only_a_least_age() -> None:
    (first, second) = lags([sample(0, 3, 10), sample(10, 4, 12)])
    assert brief(first, "time_lag_s", "time_lag_at_least_s") == ("older_than_history", 7, None, 0)
    assert brief(second, "time_lag_s", "time_lag_at_least_s") == ("older_than_history", 8, None, 10)


def test_retention_that_takes_records_and_logs_that_are_gone() -> None:
    (_, seen, lost) = lags([sample(0, 10, 10), sample(5, 10, 20), sample(10, 10, 50, 30)])
    assert brief(seen, "oldest_unread_offset", "time_lag_s") == ("measured", 10, 10, 5)
    assert brief(lost, "lost_records", "time_lag_s", "time_lag_at_least_s") == ("lost", 20, 20, None, None)
    # Nobody saw what was written and deleted between two polls: it may have been markers alone.
    (_, unseen) = lags([sample(0, 10, 10), sample(10, 10, 50, 30)])
    assert brief(unseen, "lost_records", "time_lag_s", "time_lag_at_least_s") == ("maybe_lost", 20, None, None, None)
    (gone,) = lags([sample(0, 10, None, None)])
    assert brief(gone, "time_lag_s") == ("no_log", None, None)
    before, ahead, again = lags([sample(0, 90, 100), sample(10, 90, 5), sample(20, 7, 9)])
    assert before["status"] == "older_than_history"
    assert brief(ahead, "time_lag_s") == ("ahead_of_log", None, None)
    # The end was at 5 and then at 9: record 7 is of the new log, whatever the old one had there.
    assert brief(again, "time_lag_s", "time_lag_error_s") == ("measured", 2, 5, 10)


def test_a_marker_is_no_unread_record() -> None:
    """Five records and the marker of their transaction; the group commits the offset after the last record."""
    read: Row = {"stable_offset": 6, "next_record_offset": 6, "retention_ms": 1000}
    polls = [sample(seconds, 5, 6, **read) for seconds in (0, 100)]
    polls.append(sample(200, 5, 6, 6, stable_offset=6, retention_ms=1000))
    for row in lags(polls):
        assert brief(row, "time_lag_s", "time_lag_at_least_s", "lag_growth_per_s") in (
            ("caught_up", 0, 0, 0, 0), ("caught_up", 0, 0, 0, None),
        )  # fmt: skip
        assert (row["lost_records"], row["lost_in_s"]) == (None, None)


def test_what_nobody_looked_at_is_not_said() -> None:
    """Without Read on the topic."""
    old: Row = {"next_record_offset": None, "stable_offset": None, "retention_ms": 1000}
    polls = [sample(0, 5, 5, **old), sample(10, 5, 6, **old), sample(500, 5, 6, **old), sample(510, 5, 6, 6, **old)]
    before, *left, gone = lags(polls)
    assert brief(before, "time_lag_s") == ("caught_up", 0, 0)
    for row, age in zip(left, (10, 500), strict=True):
        assert brief(row, "offset_age_s", "time_lag_s", "time_lag_at_least_s", "retention_left_s", "lost_in_s") == (
            "unchecked", 1, age, None, None, None, None,
        )  # fmt: skip
    assert brief(gone, "lost_records", "time_lag_s") == ("maybe_lost", 0, None, None)


def test_the_oldest_unread_record_is_the_first_that_is_still_there() -> None:
    """Compaction or an abort took the record at the committed offset: the next is younger."""
    polls = [sample(0, 3, 3), sample(10, 3, 8, next_record_offset=3), sample(20, 3, 13, next_record_offset=8)]
    *_, row = lags(polls)
    assert brief(row, "oldest_unread_offset", "time_lag_s", "time_lag_at_least_s") == ("measured", 5, 8, 10, 0)


def test_an_open_transaction_holds_up_a_group_that_has_read_all() -> None:
    polls = [sample(0, 5, 5), sample(10, 5, 9, stable_offset=5), sample(60, 5, 9, stable_offset=5)]
    first, *waiting = lags(polls)
    assert first["status"] == "caught_up"
    assert [brief(row, "offset_age_s", "time_lag_s", "time_lag_at_least_s") for row in waiting] == [
        ("open_transaction", 4, 10, None, None), ("open_transaction", 4, 60, None, None),
    ]  # fmt: skip
    # With a marker before it, and of a group that reads uncommitted records too.
    polls = [sample(0, 4, 9, stable_offset=5, next_record_offset=5)]
    polls.append(sample(0, 7, 9, stable_offset=5, next_record_offset=None, group="h"))
    marker, uncommitted = lags(polls)
    assert (brief(marker), brief(uncommitted)) == (("open_transaction", 4), ("open_transaction", 2))


def test_a_topic_made_again_with_more_records_has_another_log() -> None:
    polls = [sample(0, 0, 10, topic_id="a"), sample(100, 5, 20, topic_id="b"), sample(110, 5, 30, topic_id="b")]
    _, *again = lags(polls)
    assert [brief(row, "time_lag_at_least_s") for row in again] == [
        ("older_than_history", 15, 0), ("older_than_history", 25, 10),
    ]  # fmt: skip


def test_what_could_not_be_read_has_a_status_of_its_own() -> None:
    unknown: Row = {"end": None, "start": None}
    rows = [
        sample(0, 1, problem="no leader", group="a", **unknown),
        sample(0, 1, problem="TimeoutException", group="b", **unknown),
        sample(0, 0, group="c", **unknown)
        | {"topic": None, "partition": None, "committed_offset": None, "problem": "GroupAuthorizationException"},
        sample(0, 1, 1, group="d"),
    ]
    assert [(row["group_id"], *brief(row, "problem", "latest")) for row in lags(rows)] == [
        ("a", "no_leader", None, "no leader", True),
        ("b", "no_answer", None, "TimeoutException", True),
        ("c", "no_offsets", None, "GroupAuthorizationException", True),
        ("d", "caught_up", 0, None, True),
    ]


def test_how_it_grows_and_when_it_runs_out_of_retention() -> None:
    # A log of ten records a second from which a group reads half: each second its lag grows by half a second.
    rows = [sample(10 * n, 50 * n, 100 * n, retention_ms=3_600_000) for n in range(100)]
    last = lags(rows)[-1]
    assert last["lag_records"] == 4950
    assert last["lag_growth_per_s"] == pytest.approx(5)
    assert last["time_lag_s"] == pytest.approx(495)
    assert last["time_lag_growth"] == pytest.approx(0.5)
    assert last["retention_left_s"] == pytest.approx(3600 - 495)
    assert last["lost_in_s"] == pytest.approx((3600 - 495) / 0.5)
    for retention in (-1, None):
        row = lags([each | {"retention_ms": retention} for each in rows])[-1]
        assert (row["retention_left_s"], row["lost_in_s"]) == (None, None)
    steady = lags([sample(10 * n, 100 * n, 100 * n + 100, retention_ms=1000) for n in range(100)])[-1]
    assert (steady["time_lag_growth"], steady["lost_in_s"]) == (pytest.approx(0, abs=1e-9), None)


def test_the_trend_begins_at_the_first_sample_that_has_a_lag() -> None:
    """The history begins with a poll that saw no log, then with records older than the first poll: they have no age."""
    rows = [sample(0, 50, None, None), sample(10, 50, 100), sample(20, 90, 200)]
    rows += [sample(30 + 10 * n, 150 + 50 * n, 300 + 100 * n, retention_ms=3_600_000) for n in range(4)]
    found = lags(rows)
    assert [row["status"] for row in found] == ["no_log", *["older_than_history"] * 2, *["measured"] * 4]
    # Lags of 50, 110, 150, 200, 250 and 300 records; a log of ten records a second, so a tenth of that in seconds.
    assert [row["lag_growth_per_s"] for row in found] == [None, None, 6, 5, 5, 5, 5]
    assert [row["time_lag_s"] for row in found] == [None, None, None, 15, 20, 25, 30]
    assert [row["time_lag_growth"] for row in found] == [None, None, None, None, 0.5, 0.5, 0.5]
    assert [row["lost_in_s"] for row in found[-2:]] == [(3600 - 25) / 0.5, (3600 - 30) / 0.5]


def test_groups_of_one_log_clusters_and_partitions_are_apart() -> None:
    rows = [
        sample(0, 0, 0), sample(10, 5, 10), sample(10, 10, 10, group="h"), sample(10, 0, 7, partition=1),
        sample(10, 1, 3, cluster_id="d"), sample(0, 1, 1, cluster_id="d"),
    ]  # fmt: skip
    assert {
        (row["cluster_id"], row["group_id"], row["partition"], row["lag_records"], row["time_lag_s"], row["latest"])
        for row in lags(rows)
    } == {
        ("c", "g", 0, 0, 0, False), ("c", "g", 0, 5, 5, True), ("c", "h", 0, 0, 0, True), ("c", "g", 1, 7, None, True),
        ("d", "g", 0, 0, 0, False), ("d", "g", 0, 2, 10, True),
    }  # fmt: skip
