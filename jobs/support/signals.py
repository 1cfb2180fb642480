"""SIGTERM and SIGINT ask a command to stop, instead of ending its process.

Ctrl-C reaches every process of a terminal's group, and systemd signals every process of a unit.

A handler of Python runs in the main thread, between any two of its bytecodes: a lock that it takes may be one that the
main thread holds, and then neither goes on. So it only assigns. What takes locks is done by a thread, which reads the
numbers of signals from a socket. Python's own handler in C writes them, whatever the main thread is in.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_S = 7.0  # supervisors wait ten seconds or more before they kill
SAY_S = 1.0  # of these for the last line: who reads it may have stopped reading
ALARM_S = 9.0  # until the system ends the process: on a busy machine the last line and the end take seconds
SIGNS = (signal.SIGTERM, signal.SIGINT)
log = logging.getLogger("telemetry-lake")


class _Asked(threading.Event):
    """An event that is also set by an assignment, which takes no lock."""

    told = False

    def is_set(self) -> bool:
        return self.told or super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self.told or super().wait(timeout)


class _Ears:
    """Hears both signals until it is closed, and ends the process `STOP_S` after the first one, or by `ALARM_S`."""

    def __init__(self) -> None:
        self.asked = _Asked()
        self.line, self.code = "stopped", 0
        self.kill: Callable[[], object] = lambda: None
        self.armed = False
        self.before: dict[signal.Signals, Any] = {}
        self._heard, self._written = socket.socketpair()  # Python writes the number of each signal that has a handler
        self._written.setblocking(False)
        self._descriptor_before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def ask(self, _sign: int, _frame: FrameType | None) -> None:
        """The handler. It takes no lock."""
        self.asked.told = True
        self.arm()

    def arm(self) -> None:
        """Let the system end the process, if a library's C code lets no thread of Python run any more."""
        if not self.armed:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, ALARM_S)

    def close(self) -> None:
        """Leave the process as it was before."""
        signal.set_wakeup_fd(self._descriptor_before)
        for sign, handler in self.before.items():
            signal.signal(sign, handler)
        self._written.close()  # ends the thread
        if self.armed:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _listen(self) -> None:
        with self._heard:
            sign = self._heard.recv(1)
            while sign and sign[0] not in SIGNS:
                sign = self._heard.recv(1)
            if not sign:
                return
            self.arm()
            threading.Thread(target=self._tell, name="tell of a signal", daemon=True).start()  # it takes locks
            deadline = time.monotonic() + STOP_S - SAY_S
            while (left := deadline - time.monotonic()) > 0:
                self._heard.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    if not self._heard.recv(64):
                        return
            end_at_once(self._say, self.kill, self.code)

    def _tell(self) -> None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it logs each call of Spark that the end interrupts
        self.asked.set()

    def _say(self) -> None:
        if self.code:
            print(f"telemetry-lake: {self.line}", file=sys.stderr, flush=True)
        else:
            log.info(self.line)
            sys.stdout.flush()


_ears: _Ears | None = None


def stop_at_signals(line: str, kill: Callable[[], object] = lambda: None) -> threading.Event:
    """Handle both signals from now on. They set the returned event, which is the same one for the whole process.

    The process ends at most `STOP_S` after the first one, with exit code 0, whatever it is doing.

    Args:
        line: logged if the process has to be ended so.
        kill: called before it is.
    """
    if threading.current_thread() is not threading.main_thread():
        return threading.Event()  # signals are those of the program that runs the command in a thread
    ears = _listening(line, 0)
    ears.kill = kill
    for sign in SIGNS:
        before = signal.signal(sign, ears.ask)
        ears.before.setdefault(sign, before)
    return ears.asked


def end_at_once(say: Callable[[], object], kill: Callable[[], object], code: int) -> None:
    """End the process, whatever its other threads are doing.

    Args:
        say: prints the last line. It gets half of `SAY_S`: another thread may hold what it needs.
        kill: called before the end.
    """
    try:
        saying = threading.Thread(target=say, name="last line", daemon=True)
        saying.start()
        saying.join(SAY_S / 2)
        kill()
    finally:
        os._exit(code)


def end_soon_after_a_signal(line: str, code: int = 0) -> None:
    """Leave both signals to other handlers, but end the process `STOP_S` after the first one that has a handler.

    Args:
        line: logged when it ends so.
        code: its exit code then.
    """
    if threading.current_thread() is threading.main_thread():
        _listening(line, code)


def leave_signals() -> None:
    """Undo it all, for a program that goes on after the command."""
    global _ears  # noqa: PLW0603  # a process has one disposition of signals
    if _ears is not None and threading.current_thread() is threading.main_thread():
        _ears.close()
        _ears = None


def _in_fork() -> None:
    """A fork has no thread that listens, and a signal to it isn't one to this process."""
    if _ears is not None:
        signal.set_wakeup_fd(-1)
        for sign in _ears.before:
            signal.signal(sign, signal.SIG_DFL)


os.register_at_fork(after_in_child=_in_fork)


def _listening(line: str, code: int) -> _Ears:
    global _ears  # noqa: PLW0603  # a process has one disposition of signals
    if _ears is None:
        _ears = _Ears()
    _ears.line, _ears.code = line, code
    return _ears
