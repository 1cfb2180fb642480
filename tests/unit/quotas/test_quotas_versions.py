"""Limits through time: each window has those in force at its end, and before the first poll none are known."""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.udfs.quotas.limits import Span, limits_over_time
from tests.support.quota_samples import NOON, quota

START = int(NOON.timestamp())


def version(limit: float, begun: float, ended: float | None = None, **fields: Any) -> dict[str, Any]:
    return quota("ann", "", limit, begun, ended, not_seen_at=None) | fields


def spans(versions: list[dict[str, Any]], seconds: int = 10) -> list[Span]:
    found = list(limits_over_time(versions, "produce", START, START + 60, seconds))
    return [Span(each.start - START, each.end - START, each.limits) for each in found]


def test_q10_a_window_has_the_limit_in_force_at_its_end() -> None:
    raised = [version(1.0, -100, 25), version(2.0, 25)]
    assert spans(raised) == [(0, 20, {("ann", ""): 1.0}), (20, 60, {("ann", ""): 2.0})]
    assert spans(raised, 60) == [(0, 60, {("ann", ""): 2.0})]
    at_the_edge = [version(1.0, -100, 20), version(2.0, 20)]
    assert spans(at_the_edge) == [(0, 20, {("ann", ""): 1.0}), (20, 60, {("ann", ""): 2.0})]


def test_q10_removed_and_set_again() -> None:
    assert spans([version(1.0, -100, 12), version(3.0, 38)]) == [
        (0, 10, {("ann", ""): 1.0}),
        (10, 30, {}),
        (30, 60, {("ann", ""): 3.0}),
    ]


def test_q13_a_removed_limit_lingers_where_it_is_asked_to_unless_another_took_its_place() -> None:
    history = [version(1.0, -100, 12), version(5.0, -100, 12, user="bob"), version(2.0, 12)]
    found = limits_over_time(history, "produce", START, START + 60, 10, 20)
    ann, bob = ("ann", ""), ("bob", "")
    assert [(each.start - START, each.end - START, each.limits) for each in found] == [
        (0, 10, {ann: 1.0, bob: 5.0}),
        (10, 30, {ann: 2.0, bob: 5.0}),
        (30, 60, {ann: 2.0}),
    ]


def test_q10_two_changes_in_one_window() -> None:
    twice = [version(1.0, -100, 22), version(2.0, 22, 27), version(3.0, 27)]
    assert spans(twice) == [(0, 20, {("ann", ""): 1.0}), (20, 60, {("ann", ""): 3.0})]


def test_q10_before_the_first_poll_nothing_is_known() -> None:
    assert spans([version(1.0, 25)]) == [(0, 20, None), (20, 60, {("ann", ""): 1.0})]
    assert spans([version(1.0, 45, not_seen_at=NOON)]) == [(0, 40, {}), (40, 60, {("ann", ""): 1.0})]
    assert spans([version(1.0, 20)]) == [(0, 20, None), (20, 60, {("ann", ""): 1.0})]
    assert spans([]) == [(0, 60, None)]


def test_other_types_and_addresses_do_not_count_but_tell_that_a_poll_was_made() -> None:
    others = [version(1.0, -100, quota_type="fetch"), version(2.0, -100, ip="127.0.0.1")]
    assert spans(others) == [(0, 60, {})]
