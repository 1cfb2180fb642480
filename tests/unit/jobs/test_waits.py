"""While a command waits, it says for what, for how long, and how long that may take."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest

from kafka_telemetry_lake.jobs.support import waits
from kafka_telemetry_lake.jobs.support.waits import WaitLines
from tests.support.patience import wait_until

log = logging.getLogger("telemetry-lake")


def _has_lines(lines: io.StringIO, number: int) -> bool:
    return lines.getvalue().count("\n") >= number


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the log prints, whatever libraries have made of it meanwhile."""
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    monkeypatch.setattr(log, "disabled", False)
    monkeypatch.setattr(log, "propagate", True)
    root = logging.getLogger()
    levels = root.level, log.level
    root.setLevel(logging.INFO)
    log.setLevel(logging.INFO)
    root.addHandler(handler)
    yield printed
    root.removeHandler(handler)
    root.setLevel(levels[0])
    log.setLevel(levels[1])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "EVERY_S", 0.05)
    monkeypatch.setattr(waits, "LIVE_S", 0.01)


def test_a_line_says_what_is_awaited_after_a_while_without_one(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(waits, "EVERY_S", 8.0)
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: now))
    said = [f"demo: waiting for the broker, {seconds} of about 15 s" for seconds in (8, 17)]
    with WaitLines("demo") as waiting:
        waiting.wait_for("the broker", 15)
        for number, second in enumerate((108.0, 117.0), 1):
            now = second - 1.5
            time.sleep(0.05)  # several looks at the clock
            assert lines.getvalue().splitlines() == said[: number - 1]
            now = second
            wait_until(partial(_has_lines, lines, number))
            assert lines.getvalue().splitlines() == said[:number]


def test_nothing_is_said_while_lines_come_or_nothing_is_awaited(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "EVERY_S", 3600.0)
    with WaitLines("demo") as waiting:
        waiting.wait_for("the broker", 15)
        log.info("demo: a line")
    assert lines.getvalue() == "demo: a line\n"


def test_on_a_terminal_a_bar_moves_in_place_and_makes_room_for_lines(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with WaitLines("demo") as waiting:
        waiting.wait_for("the job", 0.001)
        wait_until(lambda: "█" * waits.WIDTH in terminal.getvalue())
        log.info("demo: a line")
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert lines.getvalue() == "demo: a line\n"
