"""Runs of a command beside processes that compute."""

from __future__ import annotations

import re
import sys

import psutil
import pytest

from tests.support.patience import PATIENCE_S, wait_until
from tools import under_load

PYTEST = """
FAILED tests/unit/a/test_b.py::test_c[x-1] - AssertionError: no
ERROR tests/unit/a/test_d.py::test_e - OSError
FAILED tests/unit/a/test_b.py::test_c[x-1] - AssertionError: no
E       FAILED is a word
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 1.2 s <<< FAILURE!
[ERROR]   LanderTest.pushesLandInOrder:83 expected: <1> but was: <2>
"""


def test_failed_tests_are_named_once() -> None:
    assert under_load.failed_tests(PYTEST) == [
        "tests/unit/a/test_b.py::test_c[x-1]", "tests/unit/a/test_d.py::test_e", "LanderTest.pushesLandInOrder",
    ]  # fmt: skip


def test_they_compute_while_the_block_runs() -> None:
    with under_load.load(2):
        wait_until(lambda: len(_computing()) == 2)  # the kernel shows a new process for a moment without its arguments
        found = _computing()
    assert [each.is_running() for each in found] == [False, False]


def _computing() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if under_load.COMPUTES in each.cmdline()]


def test_they_end_with_a_program_that_is_killed() -> None:
    program = (
        "import os, signal\nfrom tools import under_load\nwith under_load.load(1): os.kill(os.getpid(), signal.SIGKILL)"
    )
    with psutil.Popen([sys.executable, "-c", program]) as killed:
        killed.wait(PATIENCE_S)
    left = [each for each in psutil.process_iter(["cmdline"]) if under_load.COMPUTES in (each.info["cmdline"] or ())]
    assert psutil.wait_procs(left, PATIENCE_S)[1] == []


def test_it_says_which_runs_failed(capfd: pytest.CaptureFixture[str]) -> None:
    fails = "print('FAILED tests/test_a.py::test_b - no'); raise SystemExit(3)"
    assert under_load.main(["--load", "1", "--times", "2", "--", sys.executable, "-c", fails]) == 1
    said = re.sub(r"\d+ s,", "N s,", capfd.readouterr().out)
    run = "exit code 3, N s, failed: tests/test_a.py::test_b\nFAILED tests/test_a.py::test_b - no\n"
    assert said == (f"run 1: {run}run 2: {run}2 of 2 runs failed beside 1 processes\n2 times tests/test_a.py::test_b\n")
    assert under_load.main(["--load", "0", "--", "true"]) == 0
    assert re.sub(r"\d+ s,", "N s,", capfd.readouterr().out) == (
        "run 1: exit code 0, N s, failed: none\n0 of 1 runs failed beside 0 processes\n"
    )
