"""History of configs by polling: versions begin and end at polls, one commit a change, none without."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.lake import config_history
from kafka_telemetry_lake.pipelines.lake.config_history import ConfigChanges, changes, check, record
from kafka_telemetry_lake.pipelines.tables.table import history_table
from tests.support.lake_tables import table

pytestmark = pytest.mark.lake

LIMITS = history_table(
    "limits",
    "One limit.",
    (pa.field("user", pa.string()), pa.field("kind", pa.string())),
    (pa.field("limit", pa.float64()),),
)
T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(10)]


def entry(user: str | None, limit: float, kind: str = "produce") -> dict[str, Any]:
    return {"user": user, "kind": kind, "limit": limit}


def history(lake: Path) -> list[tuple[Any, ...]]:
    names = ("cluster_id", "user", "limit", "not_seen_at", "valid_from", "last_seen_at", "valid_to")
    rows = [row | {"user": row["user"] or ""} for row in table(lake, "limits").to_pylist()]
    return sorted(tuple(row[name] for name in names) for row in rows)


def version(lake: Path) -> int:
    return DeltaTable(str(lake / "limits")).version()


def test_m6_versions_begin_and_end_at_polls(tmp_path: Path) -> None:
    lake = str(tmp_path)
    record(LIMITS, lake, "c1", [entry("ann", 5), entry(None, 7)], T[0])
    record(LIMITS, lake, "c1", [entry("ann", 5), entry(None, 7)], T[1])
    record(LIMITS, lake, "c1", [entry("ann", 6), entry(None, 7)], T[2])
    record(LIMITS, lake, "c1", [entry(None, 7)], T[3])
    record(LIMITS, lake, "c1", [entry(None, 7)], T[4])
    record(LIMITS, lake, "c1", [entry("ann", 6), entry(None, 7)], T[5])
    assert history(tmp_path) == [
        ("c1", "", 7, None, T[0], None, None),
        ("c1", "ann", 5, None, T[0], T[1], T[2]),
        ("c1", "ann", 6, T[1], T[2], T[2], T[3]),
        ("c1", "ann", 6, T[4], T[5], None, None),
    ]
    assert version(tmp_path) == 4  # created, and one commit for each of the four polls that found a change


def test_same_poll_again_changes_nothing(tmp_path: Path) -> None:
    assert record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    before = history(tmp_path), version(tmp_path)
    assert not record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    assert (history(tmp_path), version(tmp_path)) == before


def test_clusters_have_their_own_histories(tmp_path: Path) -> None:
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    record(LIMITS, str(tmp_path), None, [entry("ann", 9)], T[1])
    record(LIMITS, str(tmp_path), "c2", [], T[2])
    record(LIMITS, str(tmp_path), None, [], T[3])
    rows = {
        row["cluster_id"]: (row["limit"], row["not_seen_at"], row["valid_to"])
        for row in table(tmp_path, "limits").to_pylist()
    }
    assert rows == {"c1": (5, None, None), None: (9, None, T[3])}


def test_clock_behind_the_last_poll_makes_no_version_that_ends_before_it_began(tmp_path: Path) -> None:
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[5])
    record(LIMITS, str(tmp_path), "c1", [], T[3])
    assert history(tmp_path) == [("c1", "ann", 5, None, T[5], T[5], T[5])]


def test_check_tells_what_would_change_and_writes_nothing(tmp_path: Path) -> None:
    found = check(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    assert [row["user"] for row in found.begun] == ["ann"]
    assert list(tmp_path.iterdir()) == []
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    assert check(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[1]) == ConfigChanges((), ())
    assert [row["valid_to"] for row in check(LIMITS, str(tmp_path), "c1", [], T[1]).ended] == [T[1]]
    assert version(tmp_path) == 1


@given(st.lists(st.dictionaries(st.sampled_from(["ann", "bob", None]), st.sampled_from([1.0, 2.0])), max_size=8))
def test_the_history_tells_what_every_poll_found(polls: list[dict[str | None, float]]) -> None:
    rows: list[dict[str, Any]] = []
    polled_at = None
    times = [T[0] + timedelta(minutes=number) for number in range(len(polls))]
    for at, poll in zip(times, polls, strict=True):
        in_force = [row for row in rows if row["valid_to"] is None]
        found = changes(LIMITS, in_force, [entry(*each) for each in poll.items()], "c", at, polled_at)
        ended = {LIMITS.key(row) for row in found.ended}
        rows = [row for row in rows if row["valid_to"] is not None or LIMITS.key(row) not in ended]
        rows += [dict(row) for row in (*found.ended, *found.begun)]
        polled_at = at
    for at, poll in zip(times, polls, strict=True):
        stored_limits = [
            (row["user"], row["limit"])
            for row in rows
            if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
        ]
        assert sorted(stored_limits, key=str) == sorted(poll.items(), key=str)
    for row in rows:
        assert row["not_seen_at"] is None or row["not_seen_at"] < row["valid_from"]
        assert row["valid_to"] is None or row["valid_from"] <= row["last_seen_at"] < row["valid_to"]


def test_a_version_begins_when_a_poll_has_its_answers_and_is_unsure_since_the_one_before_asked(tmp_path: Path) -> None:
    record(LIMITS, str(tmp_path), "c1", [], T[2], began=T[1])
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[4], began=T[3])
    record(LIMITS, str(tmp_path), "c1", [], T[6], began=T[5])
    record(LIMITS, str(tmp_path), "c1", [], T[8], began=T[7])
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 6)], T[9])
    # Seen once, by the poll that ended at 4: it was there then, if no longer than that.
    assert history(tmp_path) == [("c1", "ann", 5, T[1], T[4], T[4], T[6]), ("c1", "ann", 6, T[7], T[9], None, None)]


def test_text_can_be_filtered_by(tmp_path: Path) -> None:
    """The history is rewritten by each change: its files must hold text as Arrow's readers compare it."""
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5), entry("bob", 5)], T[0])
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 6), entry("bob", 5)], T[1])
    rows = DeltaTable(str(tmp_path / "limits")).to_pyarrow_dataset()
    assert rows.to_table(filter=pc.field("user") == "bob").num_rows == 1


def test_of_two_at_once_one_conflicts(tmp_path: Path) -> None:
    """Also of two clusters: none may lose what the other wrote."""
    record(LIMITS, str(tmp_path), "c1", [entry("ann", 5)], T[0])
    late = DeltaTable(str(tmp_path / "limits"))
    record(LIMITS, str(tmp_path), "c2", [entry("bob", 5)], T[1])
    found = changes(LIMITS, [], [entry("cat", 5)], "c1", T[2], None)
    with pytest.raises(CommitFailedError):
        config_history._write(LIMITS, late, found, T[2])
    assert [row[0] for row in history(tmp_path)] == ["c1", "c2"]


def test_m6_an_entry_of_which_a_poll_says_nothing_goes_on(tmp_path: Path) -> None:
    """Its end, and the beginning of others, are bounded by the last poll that knew all."""
    lake = str(tmp_path)

    def ann_is_unknown(row: Any) -> bool:
        return bool(row["user"] == "ann")

    record(LIMITS, lake, "c1", [entry("ann", 5), entry("bob", 6)], T[0])
    assert not record(LIMITS, lake, "c1", [entry("bob", 6)], T[1], is_unknown=ann_is_unknown)
    assert not check(LIMITS, lake, "c1", [entry("bob", 6)], T[1], is_unknown=ann_is_unknown)
    record(LIMITS, lake, "c1", [entry("eve", 7)], T[2], is_unknown=ann_is_unknown)
    record(LIMITS, lake, "c1", [entry("eve", 7)], T[3])
    assert history(tmp_path) == [
        ("c1", "ann", 5, None, T[0], T[0], T[3]),
        ("c1", "bob", 6, None, T[0], T[0], T[2]),
        ("c1", "eve", 7, T[0], T[2], None, None),
    ]
    # What has ended in the meantime is no reason for wider bounds.
    record(LIMITS, lake, "c1", [entry("eve", 8)], T[4], is_unknown=ann_is_unknown)
    record(LIMITS, lake, "c1", [entry("eve", 9)], T[5], is_unknown=ann_is_unknown)
    assert history(tmp_path)[-1] == ("c1", "eve", 9, T[4], T[5], None, None)
