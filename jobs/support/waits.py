"""What a command waits for, said while it waits: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import TracebackType
from typing import Self

EVERY_S, LIVE_S = 8.0, 0.5
WIDTH = 24

log = logging.getLogger("telemetry-lake")


class WaitLines(logging.Filter):
    """A context manager: while nothing else is logged, it says what is awaited, for how long, and how long it may take.

    Args:
        name: of the command, which begins each line.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._live = sys.stdout.isatty()
        self._what, self._usual_s = "", 0.0
        self._began = self._last_line = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._say, name="waits", daemon=True)
        self._handlers = logging.getLogger().handlers

    def __enter__(self) -> Self:
        for handler in self._handlers:
            handler.addFilter(self)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._clear()
        for handler in self._handlers:
            handler.removeFilter(self)

    def wait_for(self, what: str, usual_s: float) -> None:
        """From now on `what` is awaited, which takes about `usual_s` seconds. Said again, it changes nothing."""
        if what == self._what:
            return
        self._what, self._usual_s, self._began = what, usual_s, time.monotonic()

    def filter(self, _record: logging.LogRecord) -> bool:
        """Called before each line of the log; lets all pass."""
        self._last_line = time.monotonic()
        self._clear()
        return True

    def _clear(self) -> None:
        if self._live:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    def _say(self) -> None:
        while not self._ended.wait(LIVE_S):
            if not self._what:
                continue
            waited = time.monotonic() - self._began
            text = f"{self._name}: waiting for {self._what}, {waited:.0f} of about {self._usual_s:.0f} s"
            if self._live:
                done = min(WIDTH, int(WIDTH * waited / self._usual_s))
                sys.stdout.write(f"\r{'█' * done}{'░' * (WIDTH - done)} {text}\x1b[K")
                sys.stdout.flush()
            elif time.monotonic() - self._last_line >= EVERY_S:
                log.info("%s", text)
