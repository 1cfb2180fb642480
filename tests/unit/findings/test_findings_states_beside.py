"""Findings evaluated beside ingest's streams: every so often, at the end of a single run, and never in their way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_telemetry_lake.jobs import findings_beside
from kafka_telemetry_lake.jobs.findings_beside import evaluating
from kafka_telemetry_lake.jobs.locks import FINDINGS, only
from kafka_telemetry_lake.pipelines.findings.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.findings.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.query.finding_overrides import Override
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.findings.test_findings_states_lake import SmallLake

pytestmark = pytest.mark.lake

SOON = 0.001  # minutes


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_beside, "END_PATIENCE_S", PATIENCE_S)


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path / "lake").land(0, ["bills"], ["orders"])


def test_every_so_often(lake: SmallLake) -> None:
    with evaluating(lake.name, SOON, once=False):
        wait_until(lake.open)


def test_off_unless_asked(lake: SmallLake) -> None:
    for once in (False, True):
        with evaluating(lake.name, None, once=once):
            pass
    assert not (lake.path / "finding_changes").exists()


def test_at_the_end_of_a_single_run(lake: SmallLake) -> None:
    with evaluating(lake.name, SOON, once=True):
        time.sleep(0.2)
        assert not (lake.path / "finding_changes").exists()
    assert lake.open() == {"orders": "open"}


def test_with_other_bounds(lake: SmallLake) -> None:
    with evaluating(lake.name, SOON, once=True, overrides=(Override("o*", "unreadable_telemetry", off=True),)):
        pass
    assert lake.open() == {}


def test_a_failure_is_logged_and_tried_again(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = iter([OSError("disk full"), RuntimeError("a bug")])

    def evaluator(name: str, source: LakeHours) -> Evaluator:
        for error in fails:
            raise error
        return Evaluator(name, source)

    monkeypatch.setattr(findings_beside, "Evaluator", evaluator)
    with caplog.at_level(logging.INFO), evaluating(lake.name, SOON, once=False):
        wait_until(lake.open)
    said = [(each.message, str(each.exc_info and each.exc_info[1])) for each in caplog.records if each.exc_info]
    again = "findings: not evaluated; next time again"
    assert said == [(again, "disk full"), (again, "a bug")]


def test_another_process_evaluates(lake: SmallLake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), only(FINDINGS, lake.name, ""), evaluating(lake.name, SOON, once=True):
        pass
    assert caplog.messages == ["findings: another process evaluates them; next time again"]


def test_an_evaluation_gets_a_tenth_of_the_time(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    now, take_s, pauses = [1000.0], [3.0, 20.0, 6.0], list[float]()

    class Slow:
        def __init__(self, *_: object) -> None:
            pass

        def evaluate(self, _now: int) -> None:
            now[0] += take_s.pop(0)

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            return not take_s

    @contextmanager
    def at_once(_name: str, repeat: Callable[[threading.Event], None], _patience_s: float) -> Iterator[None]:
        repeat(Ended())
        yield

    monkeypatch.setattr(findings_beside, "Evaluator", Slow)
    monkeypatch.setattr(findings_beside, "beside", at_once)
    monkeypatch.setattr(findings_beside, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    with evaluating(lake.name, 1, once=False):
        pass
    assert pauses == [60, 60, 180, 60]
