"""Answers: asked once for all who wait, kept, and ended with the last who waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.answers import Answers, Asked, EndedError, LakeError
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.screens import before_after
from kafka_telemetry_lake.pipelines.applications.before_after import Comparison
from kafka_telemetry_lake.pipelines.query.lake_query import Check
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

ROWS = pa.table({"a": [1, 2, 3]})
SLOW = "SELECT count(*) AS n FROM range(10_000_000_000) AS a(x) WHERE hash(x) = 7"


class Slow:
    """A question that takes until it is let go, or interrupted."""

    def __init__(self) -> None:
        self.times, self.go, self.interrupted = 0, threading.Event(), threading.Event()

    def interrupt(self) -> None:
        self.interrupted.set()
        self.go.set()

    def ask(self, asked: Asked) -> pa.Table:
        self.times += 1
        asked.runs_on(self)
        assert self.go.wait(PATIENCE_S)
        if self.interrupted.is_set():
            raise InterruptedError
        return ROWS


def test_two_who_ask_the_same_share_one_question() -> None:
    answers, slow = Answers(), Slow()
    with answers.asked("k", slow.ask) as one, answers.asked("k", slow.ask) as other:
        slow.go.set()
        assert one is other
        assert one.done.wait(PATIENCE_S)
        assert one.answer is ROWS
    assert slow.times == 1
    assert answers.kept("k") is ROWS


def test_a_question_ends_with_the_last_who_waits_for_it() -> None:
    answers, slow = Answers(), Slow()
    with answers.asked("k", slow.ask) as asked:
        with answers.asked("k", slow.ask):
            pass  # this one leaves
        assert not slow.interrupted.wait(0.3)
        assert not asked.is_ended
    assert asked.done.wait(PATIENCE_S)
    assert slow.interrupted.is_set()
    assert answers.kept("k") is None
    again = Slow()
    again.go.set()
    with answers.asked("k", again.ask) as asked:
        assert asked.done.wait(PATIENCE_S)
    assert answers.kept("k") is ROWS


def test_an_error_is_for_who_asked_and_is_not_kept() -> None:
    answers = Answers()

    def fail(asked: Asked) -> pa.Table:
        raise LakeError("gone")

    with answers.asked("k", fail) as asked:
        assert asked.done.wait(PATIENCE_S)
    assert str(asked.error) == "gone"
    assert answers.kept("k") is None


def test_the_answers_asked_for_last_are_kept() -> None:
    answers = Answers(most_bytes=2 * ROWS.nbytes)
    for key in "abc":
        with answers.asked(key, lambda _: ROWS) as asked:
            assert asked.done.wait(PATIENCE_S)
        assert answers.kept("a" if key == "b" else key) is ROWS
    assert [answers.kept(key) is not None for key in "abc"] == [True, False, True]


def test_what_changed_at_a_moment_is_a_question_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel's comparison of two windows: the query that it runs is interrupted when nobody waits."""
    begins = threading.Event()

    def compare(uri: str, application: str, at: datetime, window_s: int, check: Check) -> Comparison:
        connection = duckdb.connect()
        check(connection, SLOW)
        begins.set()
        connection.sql(SLOW).to_arrow_table()
        raise AssertionError

    def wait_no_more(key: object, asks: object, ask: Callable[[Asked], pa.Table]) -> pa.Table:
        with Answers().asked(key, ask) as asked:
            assert begins.wait(PATIENCE_S)
            assert not asked.done.wait(0.5)
        assert asked.done.wait(PATIENCE_S)
        assert asked.error is not None
        raise asked.error

    monkeypatch.setattr(before_after, "before_and_after", compare)
    monkeypatch.setattr(before_after, "answer", wait_no_more)
    scene: Any = SimpleNamespace(lake=SimpleNamespace(uri="lake"), versions=())
    with pytest.raises(duckdb.InterruptException):
        before_after._compared(scene, "shop", datetime(2026, 11, 21, 12, tzinfo=UTC), 900)


def test_a_lake_ends_a_question_that_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in TABLES:
        table.create(str(tmp_path))
    lake = LakeReader(str(tmp_path))
    lake.versions()
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.lake.view_sql", lambda *_: (SLOW, {}))
    answers = Answers()
    with answers.asked("k", lambda asked: lake.rows("pushes", asked=asked)) as asked:
        assert not asked.done.wait(2)
    assert asked.done.wait(PATIENCE_S)
    assert isinstance(asked.error, LakeError | EndedError)
