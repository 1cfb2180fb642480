"""Runs companions: work in a job's background, each in a thread of its own.

**When one dies, it is started again**, after about 1 s, then 2 s and so on up to five minutes, whatever it died of: an
error, a lock that another process holds, the end of its thread in mid-work. It never ends or delays the streams. What
it missed it does then, as each companion goes on from a position that is stored. A failure is a line of the log, counts
in a metric, and stands in ``/health`` and the health file until the companion works again; the status there is the
streams' alone.

**When the job ends**, companions are asked to end in the order of their list. Those with a last step are asked once the
ones before have ended, so that it covers what these wrote. One that doesn't end in its time is left behind, and a line
says so; its next start repeats the step that was cut off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from kafka_telemetry_lake.jobs.support.locks import LakeBusyError, only
from kafka_telemetry_lake.pipelines.runtime.retries import describe, pause_after

SAY_AFTER_S = 2.0  # what the end of the job waits for is named
NEVER = threading.TIMEOUT_MAX

log = logging.getLogger("telemetry-lake")

Step = Callable[[threading.Event], object]
"""What a companion does at a time. The event is set when it is to end; a step that sees it returns early."""

Report = Callable[[str, str | None], object]
"""Takes a companion's name and why it failed; None: it works again."""


@dataclass(frozen=True)
class Companion:
    """Work in a job's background.

    Attributes:
        opened: makes its step, anew at each start, and frees what that needs.
        interval_s: seconds between two steps.
        patience_s: that the end of the job has with it.
        role: of the lock that it holds while it is open (`locks.only`); None: it needs none.
        waits_first: the first step comes after an interval, not at once.
        reopens: it is opened for each step, so that its lock is free in between.
        rest: a step is followed by a pause of at least so many times the time that it took.
        last_step: a step follows once the end was asked for, with the event set.
        after: a single step once the block has ended, instead of steps while it runs.
    """

    name: str
    opened: Callable[[], AbstractContextManager[Step]]
    interval_s: float
    patience_s: float
    role: str | None = None
    waits_first: bool = False
    reopens: bool = False
    rest: float = 0.0
    last_step: bool = False
    after: bool = False


@contextmanager
def supervised(
    lake: str, companions: Sequence[Companion], stop: threading.Event | None = None, report: Report = lambda *_: None
) -> Iterator[None]:
    """Run companions while the block runs, and those that come after it unless it failed or `stop` is set."""
    running = list[_Running]()
    try:
        for each in companions:
            if not each.after:
                running.append(_Running(lake, each, report))
        yield
        for each in companions:
            if each.after and not (stop is not None and stop.is_set()):
                _once(lake, each, stop or threading.Event())
    finally:
        for companion in running:
            if not companion.makes_last_step:
                companion.ask_to_end()
        for companion in running:
            companion.end()


class _Running:
    """The thread of a companion."""

    def __init__(self, lake: str, companion: Companion, report: Report) -> None:
        self._lake, self._companion, self._report = lake, companion, report
        self._ended, self._asked_at = threading.Event(), 0.0
        self._failures, self._is_last, self.makes_last_step = 0, False, companion.last_step
        # A daemon: the process may end while it hangs. In a library's C++ code just then, that aborts the process.
        self._thread = threading.Thread(target=self._run, name=companion.name, daemon=True)
        self._thread.start()

    def ask_to_end(self) -> None:
        if not self._ended.is_set():
            self._asked_at = time.monotonic()
            self._ended.set()

    def end(self) -> None:
        """Ask it to end, and wait for it as long as its patience says."""
        self.ask_to_end()
        name, until = self._companion.name, self._asked_at + self._companion.patience_s
        self._thread.join(min(SAY_AFTER_S, max(0.0, until - time.monotonic())))
        if self._thread.is_alive() and (left := until - time.monotonic()) > 0:
            log.info("%s: is busy; its end is waited for up to %.0f s", name, left)
            self._thread.join(left)
        if self._thread.is_alive():
            self.makes_last_step = False
            log.warning(
                "%s: has not ended within %.0f s and is left behind; the next start repeats its step",
                name,
                self._companion.patience_s,
            )

    def _run(self) -> None:
        if self._companion.waits_first:
            self._ended.wait(self._companion.interval_s)
        while not self._is_last:
            self._is_last = self._ended.is_set()
            if self._is_last and not self.makes_last_step:
                return
            try:
                pause_s = self._steps()
            except BaseException as error:  # SystemExit too, which ends a thread without a word
                pause_s = self._failed(error)
            self._ended.wait(pause_s)

    def _steps(self) -> float:
        """Make steps until it is to end or to be opened anew; returns the seconds until then."""
        companion, pause_s = self._companion, 0.0
        with _opened(self._lake, companion) as step:
            while not self._ended.wait(pause_s):
                began = time.monotonic()
                step(self._ended)
                pause_s = self._succeeded(time.monotonic() - began)
                if companion.reopens:
                    return pause_s
            self._is_last = True
            if self.makes_last_step:
                step(self._ended)
        return 0.0

    def _succeeded(self, took_s: float) -> float:
        companion, rest_s = self._companion, self._companion.rest * took_s
        if self._failures:
            self._failures = 0
            log.info("%s: works again", companion.name)
            self._report(companion.name, None)
        if rest_s > companion.interval_s and not self._ended.is_set():
            log.info("%s: took %.0f s, again in %.0f s", companion.name, took_s, rest_s)
        return max(companion.interval_s, rest_s)

    def _failed(self, error: BaseException) -> float:
        if self._ended.is_set():  # what the end cuts off isn't a failure
            level = logging.WARNING if self._is_last else logging.DEBUG
            log.log(level, "%s: %s; its next start goes on", self._companion.name, describe(error))
            return 0.0
        self._failures += 1
        pause_s, reason = pause_after(self._failures, error), describe(error)
        log.warning("%s: %s; tried again in %.0f s", self._companion.name, reason, pause_s)
        self._report(self._companion.name, reason)
        return pause_s


@contextmanager
def _opened(lake: str, companion: Companion) -> Iterator[Step]:
    with ExitStack() as stack:
        if companion.role is not None:
            stack.enter_context(
                only(companion.role, lake, f"another process has the role {companion.role} of this lake")
            )
        yield stack.enter_context(companion.opened())


def _once(lake: str, companion: Companion, stop: threading.Event) -> None:
    try:
        with _opened(lake, companion) as step:
            step(stop)
    except LakeBusyError as error:
        log.warning("%s: %s; left to it", companion.name, error)
    except Exception as error:
        log.warning("%s: %s; the next start goes on", companion.name, describe(error))


def stateless(step: Step) -> Callable[[], AbstractContextManager[Step]]:
    """For `Companion.opened`: nothing is to be made anew after a failure."""
    return lambda: nullcontext(step)
