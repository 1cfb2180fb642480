"""Waits of tests, and the clock of times that they promise."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.support import patience
from tests.support.patience import IdleClock, idle_clock, wait_until


class Ended:
    """A process that has ended at its second look."""

    def __init__(self) -> None:
        self.looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        return 0 if self.looks > 1 else None


def test_a_wait_ends_with_what_is_awaited() -> None:
    turns = count()
    wait_until(lambda: next(turns) == 3)
    assert next(turns) == 4


def test_the_end_of_the_process_that_should_do_it_is_a_failure_unless_it_has_done_it() -> None:
    process = Ended()
    wait_until(lambda: process.looks == 2, process=process)
    with pytest.raises(AssertionError, match=r"^its last words"):
        wait_until(lambda: False, process=Ended(), said=lambda: "its last words")


def test_a_hang_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.05)
    with pytest.raises(AssertionError, match=r"^nothing happens"):
        wait_until(lambda: False, said=lambda: "nothing happens")


def test_other_work_is_taken_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which a second of CPU takes four."""
    now, spun = [100.0], [7.0]
    monkeypatch.setattr(patience, "time", _Machine(now, spun))
    clock = IdleClock()
    while clock.slowness == 1:
        time.sleep(0.001)
    clock.stop()
    assert clock.slowness == pytest.approx(4)
    assert clock.seconds == pytest.approx((now[0] - 100) / 4)
    before = clock.seconds
    now[0] += 1000
    assert clock.seconds == before, "it has stopped"


class _Machine:
    def __init__(self, now: list[float], spun: list[float]) -> None:
        self._now, self._spun = now, spun

    def monotonic(self) -> float:
        return self._now[0]

    def thread_time(self) -> float:
        self._spun[0] += 0.015625
        self._now[0] += 0.0625
        return self._spun[0]


@pytest.fixture
def busy() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        yield
        process.kill()


def test_it_is_never_faster_than_the_wall(busy: None) -> None:
    began = time.monotonic()
    with idle_clock() as clock:
        time.sleep(0.05)
    assert 0 < clock.seconds <= time.monotonic() - began
    assert clock.slowness >= 1
