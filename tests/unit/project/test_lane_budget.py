"""What a lane of tests took, by file and beside its budget, children that live on included."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import lane_costs
from tests.support.lane_costs import BUDGETS, LaneCosts, fixed_work_ms, over

pytestmark = pytest.mark.lake  # it starts pytest

ROOT = Path(__file__).parents[3]
BURN = "import time; end = time.process_time() + {s}; [None for _ in iter(lambda: time.process_time() < end, False)]"
TESTS = {
    "test_own.py": f"def test_own():\n    {BURN.format(s=0.3)}\n",
    "test_ended.py": (
        f"import subprocess, sys\ndef test_it(): subprocess.run([sys.executable, '-Sc', {BURN.format(s=0.4)!r}])\n"
    ),
    # The child lives on until the session ends.
    "test_living.py": (
        "import subprocess, sys\ndef test_it():\n"
        f"    code = {BURN.format(s=0.5)!r} + '; print(flush=True); input()'\n"
        "    child = subprocess.Popen([sys.executable, '-Sc', code], stdin=-1, stdout=-1)\n"
        "    child.stdout.readline()\n"
    ),
}
RUN = (
    "import sys, pytest, tests.support.lane_costs as costs; costs.BUDGETS = {'small': 0.6, 'large': 60}; "
    "costs.FIXED_WORK_MS = 1e6; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)


def lane(folder: Path, name: str, tests: dict[str, str], *argv: str, budgets: str = "fail") -> tuple[int, str]:
    """The exit code and the output of a lane of these tests."""
    for file, text in tests.items():
        (folder / file).write_text(text)
    plugins = ["-p", "tests.support.lane_costs", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    env = os.environ | {"TEST_LANE": name, "TEST_BUDGETS": budgets, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", RUN, *plugins, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return run.returncode, run.stdout


def figures(output: str) -> dict[str, float]:
    return {what: float(taken) for taken, what in re.findall(r"^ *([\d.]+) CPU-s (\S+)$", output, re.MULTILINE)}


def test_a_process_that_ends_while_it_is_looked_at_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "glob", gone)
    assert lane_costs.children_of(os.getpid()) == set()


@pytest.mark.parametrize(
    ("name", "budget", "workers"), [("large", 60, []), ("small", 1, ["-n", "2"])], ids=["within", "beyond"]
)
def test_seconds_are_those_of_the_file_whose_test_or_child_took_them(
    tmp_path: Path, name: str, budget: int, workers: list[str]
) -> None:
    code, output = lane(tmp_path, name, TESTS, *workers)
    by_file = figures(output)
    assert by_file.keys() == {*TESTS, "shared"}
    for file, at_least in {"test_own.py": 0.3, "test_ended.py": 0.4, "test_living.py": 0.5}.items():
        assert at_least - 0.03 < by_file[file] < at_least + 0.4
    total = re.search(rf"^{name}: (\d+) CPU-s in \d+ s; its budget is {budget}$", output, re.MULTILINE)
    assert total
    assert abs(int(total[1]) - sum(by_file.values())) < 0.8
    assert code == (pytest.ExitCode.OK if name == "large" else pytest.ExitCode.TESTS_FAILED)
    over_it = r"^BUDGET small took \d CPU-s; its budget is 1, and a quarter \(tests/budget.toml\)$"
    assert bool(re.search(over_it, output, re.MULTILINE)) == (name == "small")
    assert ("BUDGET" in output) == (name == "small")


def test_what_processes_took_that_nobody_waited_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser's processes end without their parent: the kernel's sum falls from 7 to 3 s, and on to 2.5 s."""
    looks = iter([1.0, 3.0, 7.0, 3.0, 4.0, 2.5])
    monkeypatch.setattr(lane_costs, "cpu_s", lambda: next(looks))
    costs = LaneCosts()
    assert [costs.so_far() for _ in range(6)] == [1, 3, 7, 7, 8, 8]


@pytest.mark.slow
def test_a_lane_beyond_its_budget_fails_in_ci_only(tmp_path: Path) -> None:
    tests = {"test_own.py": f"def test_own():\n    {BURN.format(s=0.8)}\n"}
    code, output = lane(tmp_path, "small", tests, budgets="")
    assert code == pytest.ExitCode.OK
    assert "BUDGET small took" in output


def test_a_quarter_more_is_allowed_and_as_much_longer_on_a_slower_machine() -> None:
    assert over("a", 125, {"a": 100}) == ""
    assert over("a", 126, {"a": 100}) == (
        "BUDGET a took 126 CPU-s; its budget is 100, and a quarter (tests/budget.toml)"
    )
    assert over("b", 126, {"a": 100}) == ""
    assert over("a", 250, {"a": 100}, 2.0) == ""
    assert over("a", 251, {"a": 100}, 2.0) == (
        "BUDGET a took 251 CPU-s; its budget is 100, and a quarter, on a machine 2.0 times as slow (tests/budget.toml)"
    )
    taken = sorted(fixed_work_ms() for _ in range(5))
    assert 1 < taken[0] <= taken[2] < 20 * taken[0]  # the median: the system may interrupt one


def test_how_slow_the_machine_is_is_measured_between_the_tests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may keep it busy in the middle of a lane alone."""
    now, work = [0.0], [24.0]
    monkeypatch.setattr("tests.support.lane_costs.time.monotonic", lambda: now[0])
    monkeypatch.setattr(lane_costs, "fixed_work_ms", lambda: work[0])
    costs = lane_costs.LaneCosts()
    work[0] = 72.0
    for now[0] in range(0, 101, 4):
        costs.pytest_runtest_logreport()
    assert costs._work_ms == [24.0] * lane_costs.SAMPLES + [72.0] * 8


def test_each_pytest_lane_of_make_test_has_a_budget() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    lanes = re.findall(r"^(test-\w+):.*\n\t.*\$\(PYTEST\)", makefile, re.MULTILINE)
    assert lanes
    assert sorted(BUDGETS) == sorted(lanes)
