"""While a command waits, it says for what, for how long, and how long that may take."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from kafka_telemetry_lake.jobs import waits
from kafka_telemetry_lake.jobs.waits import Waits

log = logging.getLogger("telemetry-lake")


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


def test_a_line_says_what_is_awaited_after_a_while_without_one(lines: io.StringIO) -> None:
    with Waits("demo") as waiting:
        waiting.wait_for("the broker", 15)
        while lines.getvalue().count("\n") < 2:
            pass
    assert re.fullmatch(r"(demo: waiting for the broker, 0 of about 15 s\n){2,}", lines.getvalue())


def test_nothing_is_said_while_lines_come_or_nothing_is_awaited(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "EVERY_S", 3600.0)
    with Waits("demo") as waiting:
        waiting.wait_for("the broker", 15)
        log.info("demo: a line")
    assert lines.getvalue() == "demo: a line\n"


def test_on_a_terminal_a_bar_moves_in_place_and_makes_room_for_lines(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with Waits("demo") as waiting:
        waiting.wait_for("the job", 0.001)
        while "█" * waits.WIDTH not in terminal.getvalue():
            pass
        log.info("demo: a line")
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert lines.getvalue() == "demo: a line\n"
