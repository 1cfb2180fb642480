"""Child processes that never outlive this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# Kills every process group that it still watches when its input ends. The pipe closes however this process dies, even
# by SIGKILL, when neither atexit nor a signal handler would run.
_GUARD = """
trap '' INT TERM HUP
watched=
while read -r verb group; do
  others=
  for each in $watched; do [ "$each" = "$group" ] || others="$others $each"; done
  watched=$others
  [ "$verb" = forget ] || watched="$watched $group"
done
for each in $watched; do kill -s KILL -- "-$each" 2>/dev/null; done
"""


class _Guard:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[str] | None = None

    def send(self, verb: str, group: int) -> None:
        with self._lock:
            if self._shell is None:
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, text=True, start_new_session=True
                )
            assert self._shell.stdin is not None
            self._shell.stdin.write(f"{verb} {group}\n")
            self._shell.stdin.flush()


_guard = _Guard()


class Process:
    """A command in its own process group. Its output goes to ``log``; with ``pipes``, stdin and stdout are pipes.

    ``variables`` are added to its environment.
    ``stop`` is SIGTERM, then SIGKILL after ``limit`` seconds; ``pause`` and ``resume`` are SIGSTOP and SIGCONT.
    All signals go to the whole group, and do nothing after it has ended.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        pipes: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        with log.open("ab") as output:
            self._child: subprocess.Popen[bytes] = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )
        self.pid = self._child.pid
        self._watched = True
        _guard.send("watch", self.pid)

    @property
    def stdin(self) -> IO[bytes]:
        assert self._child.stdin is not None, "started without pipes"
        return self._child.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._child.stdout is not None, "started without pipes"
        return self._child.stdout

    @property
    def returncode(self) -> int | None:
        """None while it runs, paused or not; else its exit status, or the negated number of the fatal signal."""
        code = self._child.poll()
        if code is not None and self._watched:
            self._watched = False
            _guard.send("forget", self.pid)  # the kernel may reuse its pid
        return code

    @property
    def running(self) -> bool:
        return self.returncode is None

    def wait(self, limit: float) -> bool:
        """True as soon as it has ended, False if it still runs after ``limit`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(limit)
        return not self.running

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            os.killpg(self.pid, number)

    def stop(self, limit: float = 20.0) -> None:
        self.signal(signal.SIGTERM)
        self.resume()  # a paused process handles SIGTERM only after it resumes
        if not self.wait(limit):
            self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._child.wait()
        assert not self.running
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def pause(self) -> None:
        """Returns when all its threads stand still: the signal alone may leave some time for an answer or two.

        At most a second later: a shell whose child is stopped between `vfork` and `exec` waits for it instead.
        """
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 1
        while self.running and time.monotonic() < deadline:
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG):
                return
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
