"""Waits of tests, and the time that they allow. No test may fail because the machine has other work.

A test that promises no time waits for an event. One that promises a time takes it from `idle_clock`.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kafka_telemetry_lake.sandbox.patience import PATIENCE_S

__all__ = ["PATIENCE_S", "IdleClock", "idle_clock", "wait_until"]

# Of CPU for a look at how busy the machine is; before each look. What ends sooner needs none: it counts as it was.
SPIN_S, EVERY_S = 0.02, 0.2
SPUN = bytes(1 << 20)


class Process(Protocol):
    """What is used of a process, such as ``Popen``."""

    def poll(self) -> int | None: ...


def wait_until(
    condition: Callable[[], object],
    *,
    process: Process | None = None,
    said: Callable[[], object] = str,
    every_s: float = 0.02,
) -> None:
    """Wait until a condition holds.

    Args:
        process: should bring it about, so its end is a failure, too.
        said: what a failure says.
        every_s: seconds between two looks.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended = process is not None and process.poll() is not None
        if condition():
            return
        assert not ended, said()
        assert time.monotonic() < deadline, said()
        time.sleep(every_s)


class IdleClock:
    """Time since its start, of which other work on the machine is taken off.

    Attributes:
        slowness: by how many times a thread that only computes was slower than alone, on the average of all looks.
    """

    def __init__(self) -> None:
        self._began, self._walls, self._spun = time.monotonic(), 0.0, 0.0
        self._ended = threading.Event()
        self._took: float | None = None
        self._thread = threading.Thread(target=self._look, name="idle clock", daemon=True)
        self._thread.start()

    @property
    def slowness(self) -> float:
        return max(1.0, self._walls / self._spun) if self._spun else 1.0

    @property
    def seconds(self) -> float:
        """Seconds that it would have taken on a machine without other work, at the least; until `stop`, if it was."""
        took = time.monotonic() - self._began if self._took is None else self._took
        return took / self.slowness

    def stop(self) -> None:
        self._took = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(EVERY_S):
            began, wall = time.thread_time(), time.monotonic()
            while (spun := time.thread_time() - began) < SPIN_S:
                hashlib.sha256(SPUN)  # other threads of Python run meanwhile
            self._walls += time.monotonic() - wall
            self._spun += spun


@contextmanager
def idle_clock() -> Iterator[IdleClock]:
    """A clock that stops with the block."""
    clock = IdleClock()
    try:
        yield clock
    finally:
        clock.stop()
