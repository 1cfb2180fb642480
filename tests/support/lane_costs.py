"""CPU seconds of a lane of tests by file, beside the lane's budget: a pytest plugin.

A test costs what the pytest process or worker that runs it, its children that have ended and those that live on (a JVM,
a broker) take while it is set up, runs and is torn down: the first test that needs a shared session pays for its start.
What is taken between tests (imports, collection, processes that live on) is `shared`. The lane is named by the
environment's TEST_LANE, which the Makefile sets; without it nothing is printed. A lane that takes more than its budget
and a quarter says so in a line that begins with BUDGET, and fails if TEST_BUDGETS is `fail`, as in CI. On a slower
machine, or one that others keep busy, the same instructions take more CPU seconds: a lane may take as many times more
as a piece of fixed work took before it, between its tests and after it, on average.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

FILE = tomllib.loads((Path(__file__).parents[1] / "budget.toml").read_text("utf-8"))
BUDGETS: dict[str, float] = FILE["cpu_s"]
FIXED_WORK_MS: float = FILE["fixed_work_ms"]
MORE = 1.25  # CPU-s of the same tests differ by a tenth from run to run, by more on a machine that others use
LISTED = 10
SAMPLES = 5
SAMPLE_S = 10.0  # between two pieces of fixed work while tests run
_TICKS = os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> set[int]:
    """The living processes that a process, or one of these, has started."""
    found = set[int]()
    try:
        files = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # it ends while its threads are listed
        return found
    for file in files:
        try:
            own = set(map(int, file.read_text().split()))
        except OSError:  # a thread or a process has ended meanwhile
            continue
        found |= own.union(*map(children_of, own))
    return found


def has_children() -> bool:
    """Whether this process has any, ended or not; cheaper than a look at each of its threads."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def cpu_s() -> float:
    """CPU seconds of this process and of all that it has started, ended or not."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(each.ru_utime + each.ru_stime for each in usages)
    for pid in children_of(os.getpid()) if has_children() else ():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / _TICKS  # utime, stime, and the same of its children that have ended
    return total


def fixed_work_ms() -> float:
    """CPU milliseconds that a piece of work takes that is always the same: texts, floats, a sort and JSON."""
    began = time.thread_time()
    numbers = {str(number): number / 2 for number in range(30_000)}
    for each in sorted(numbers, key=numbers.__getitem__, reverse=True):
        numbers[each] += 1
    json.loads(json.dumps(numbers))
    return 1000 * (time.thread_time() - began)


def slowness_of(work_ms: Iterable[float]) -> float:
    """By how many times this machine is slower than that of the budgets, by what fixed work took; at least 1."""
    return max(1.0, statistics.mean(work_ms) / FIXED_WORK_MS)


def over(lane: str, taken: float, budgets: dict[str, float], slowness: float = 1.0) -> str:
    """The line that says that a lane took too much, or nothing.

    Args:
        slowness: by how many times this machine is slower than that of the budgets.
    """
    budget = budgets.get(lane)
    if budget is None or taken <= budget * MORE * slowness:
        return ""
    more = "a quarter" if slowness == 1 else f"a quarter, on a machine {slowness:.1f} times as slow"
    return f"BUDGET {lane} took {taken:.0f} CPU-s; its budget is {budget:.0f}, and {more} (tests/budget.toml)"


class LaneCosts:
    """What the tests of this process, and of workers that have ended, took: CPU seconds by file."""

    def __init__(self) -> None:
        self.files: defaultdict[str, float] = defaultdict(float)
        self.total = 0.0
        self._seen_s = self._lost_s = 0.0
        self._began = time.monotonic()
        self._too_much = ""
        self._work_ms = [fixed_work_ms() for _ in range(SAMPLES)]
        self._sampled = time.monotonic()

    def so_far(self) -> float:
        """CPU seconds of this process and of all that it has started.

        The kernel forgets what a process took whose parent ended without waiting for it, as those of a browser do. What
        was seen of it at the last look still counts.
        """
        now = cpu_s()
        self._lost_s = max(self._lost_s, self._seen_s - now)
        self._seen_s = now + self._lost_s
        return self._seen_s

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self.so_far()
        result = yield
        self.files[item.nodeid.partition("::")[0]] += self.so_far() - before
        return result

    def pytest_runtest_logreport(self) -> None:
        """Also in the process that has workers: each of their reports passes through it."""
        if time.monotonic() - self._sampled >= SAMPLE_S:
            self._work_ms.append(fixed_work_ms())
            self._sampled = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist has ended."""
        output = getattr(node, "workeroutput", {})
        for file, taken in output.get("cpu_s_by_file", {}).items():
            self.files[file] += taken
        self.total += output.get("cpu_s", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output |= {"cpu_s_by_file": dict(self.files), "cpu_s": self.so_far()}
            return
        if self.total:  # the workers are this process's children
            usage = resource.getrusage(resource.RUSAGE_SELF)
            self.total += usage.ru_utime + usage.ru_stime
        else:
            self.total = self.so_far()
        self._work_ms += [fixed_work_ms() for _ in range(SAMPLES)]
        self._too_much = over(os.environ["TEST_LANE"], self.total, BUDGETS, slowness_of(self._work_ms))
        if self._too_much and os.environ.get("TEST_BUDGETS") == "fail" and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lane = os.environ["TEST_LANE"]
        wall = time.monotonic() - self._began
        budget = f"; its budget is {BUDGETS[lane]:.0f}" if lane in BUDGETS else ""
        terminalreporter.write_line(f"{lane}: {self.total:.0f} CPU-s in {wall:.0f} s{budget}")
        for file, taken in sorted(self.files.items(), key=lambda each: -each[1])[:LISTED]:
            terminalreporter.write_line(f"{taken:8.1f} CPU-s {file}")
        terminalreporter.write_line(f"{max(0.0, self.total - sum(self.files.values())):8.1f} CPU-s shared")
        if self._too_much:
            terminalreporter.write_line(self._too_much)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("TEST_LANE"):
        config.pluginmanager.register(LaneCosts(), "lane costs")
