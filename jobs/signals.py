"""SIGTERM and SIGINT ask a command to stop, instead of ending its process.

Ctrl-C reaches every process of a terminal's group, and systemd signals every process of a unit.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_S = 7.0  # supervisors wait ten seconds or more before they kill
LOOK_S = 0.5
log = logging.getLogger("telemetry-lake")
_asked = threading.Event()


def stop_at_signals() -> threading.Event:
    """Handle both signals from now on; they set the returned event, which is the same one for the whole process."""
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, _ask)
    return _asked


def _ask(_sign: int, _frame: FrameType | None) -> None:
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it logs each call of Spark that the end interrupts
    _asked.set()


@contextmanager
def ends_soon(stop: threading.Event, line: str, kill: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Inside, the process ends at most `STOP_S` after `stop` is set, with exit code 0, whatever it is doing.

    Args:
        line: logged when it ends so.
        kill: called before.
    """
    ended = threading.Event()

    def watch() -> None:
        while not stop.wait(LOOK_S):
            if ended.is_set():
                return
        if not ended.wait(STOP_S):
            log.info(line)
            sys.stdout.flush()
            kill()
            os._exit(0)

    threading.Thread(target=watch, name="ends_soon", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def end_soon_after_a_signal(line: str) -> None:
    """Leave both signals to handlers that a library installs later, but end the process `STOP_S` after the first one.

    Args:
        line: logged when it ends so.
    """
    signs, written = socket.socketpair()  # Python writes the number of each signal that has a handler
    written.setblocking(False)
    signal.set_wakeup_fd(written.fileno())

    def watch() -> None:
        while signs.recv(1)[0] not in (signal.SIGTERM, signal.SIGINT):
            pass
        time.sleep(STOP_S)
        log.info(line)
        sys.stdout.flush()
        os._exit(0)

    written.detach()  # stays open as long as the process
    threading.Thread(target=watch, name="end_soon_after_a_signal", daemon=True).start()
