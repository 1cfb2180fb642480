"""Early and missed pushes, by hand-made timelines of clients with an interval of 10 s."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from udfs.push_discipline import DISCIPLINE, discipline

INTERVAL = 10_000


def judged(*pushes: tuple[Any, ...], tolerance_ms: int = 100) -> list[dict[str, Any]]:
    """Pushes of (seconds, and any of client=, interval=, terminating=, connection=)."""
    rows = [
        {"client": 1, "interval": INTERVAL, "terminating": False, "connection": 1} | dict(push[1:]) for push in pushes
    ]
    table = discipline(
        np.array([row["client"] for row in rows], np.int64),
        np.array([int(push[0] * 1000) for push in pushes], np.int64),
        np.array([row["interval"] for row in rows], np.int64),
        np.array([row["terminating"] for row in rows], np.bool_),
        np.array([row["connection"] for row in rows], np.int64),
        tolerance_ms,
    )
    assert table.schema == DISCIPLINE
    return table.to_pylist()  # type: ignore[no-any-return]


def early(*pushes: tuple[Any, ...]) -> list[tuple[bool | None, str | None]]:
    return [(row["early"], row["early_reason"]) for row in judged(*pushes)]


def missed(*pushes: tuple[Any, ...]) -> list[int | None]:
    return [row["missed"] for row in judged(*pushes)]


NEW = ("connection", 2)
LAST = ("terminating", True)


def test_gaps_and_what_they_are_held_against() -> None:
    rows = judged((0,), (10,), (25.5,), (3, ("client", 2)), (13, ("client", 2)))
    assert [row["gap_ms"] for row in rows] == [None, 10_000, 15_500, None, 10_000]
    assert [row["expected_ms"] for row in rows] == [None, INTERVAL, INTERVAL, None, INTERVAL]


def test_first_push_is_judged_by_nothing() -> None:
    assert judged((0,))[0] == {"gap_ms": None, "expected_ms": None, "early": None, "early_reason": None, "missed": None}


@pytest.mark.parametrize(("gap", "told"), [(9.9, False), (9.899, True), (5, True), (10, False), (0, True)])
def test_early_is_before_the_interval_less_the_tolerance(gap: float, told: bool) -> None:
    assert early((0,), (gap,))[1] == (told, None)


def test_one_early_push_per_connection_is_accepted() -> None:
    assert early((0,), (1, NEW), (2, NEW), (3,)) == [(None, None), (True, "new_connection"), (True, None), (True, None)]


def test_terminating_push_is_exempt_once() -> None:
    assert early((0,), (1, LAST), (2, LAST), (12, LAST)) == [
        (None, None),
        (True, "terminating"),
        (True, None),
        (False, None),
    ]


def test_changed_interval_starts_anew() -> None:
    assert early((0,), (1, ("interval", 2000)), (2, ("interval", 2000)))[1:] == [
        (True, "interval_changed"),
        (True, None),
    ]
    assert early((0,), (2, ("interval", 2000)))[1] == (False, None)  # held against the shorter of the two


def test_unknown_interval_is_not_judged() -> None:
    rows = judged((0,), (1, ("interval", 0)), (2,))
    assert [(row["gap_ms"], row["early"], row["missed"]) for row in rows] == [
        (None, None, None),
        (1000, None, None),
        (1000, None, None),
    ]


@pytest.mark.parametrize(("gap", "told"), [(10, 0), (15, 0), (19.8, 0), (19.9, 1), (20, 1), (30, 2), (305, 29)])
def test_missed_pushes(gap: float, told: int) -> None:
    assert missed((0,), (gap,)) == [None, told]


@pytest.mark.parametrize(("gap", "told"), [(20, 0), (24.8, 0), (25, 1), (35, 2)])
def test_missed_pushes_leave_room_for_the_jitter_of_a_new_start(gap: float, told: int) -> None:
    assert missed((0,), (gap, NEW)) == [None, told]
    assert missed((0,), (gap, ("interval", 9999))) == [None, told]


def test_missed_pushes_are_held_against_the_longer_of_two_intervals() -> None:
    assert missed((0,), (12, ("interval", 2000))) == [None, 0]
    assert missed((0,), (40, ("interval", 30_000))) == [None, 0]


def test_nothing_is_missed_after_a_terminating_push() -> None:
    assert missed((0, LAST), (100,), (120,)) == [None, 0, 1]


def test_clients_are_apart() -> None:
    rows = judged((0,), (10,), (1, ("client", 2)), (2, ("client", 2)))
    assert [row["early"] for row in rows] == [None, False, None, True]


def test_no_pushes() -> None:
    assert judged() == []
