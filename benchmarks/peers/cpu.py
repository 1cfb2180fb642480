"""CPU time and memory of a process and its descendants."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())  # kcmp(2), which libc doesn't wrap
_KCMP_VM = 1
_libc = ctypes.CDLL(None)


@dataclass
class _Seen:
    parent: int
    own_s: float = 0.0
    reaped_s: float = 0.0  # of the children it waited for, and of theirs
    running: bool = True


class TreeCpu:
    """A context manager that watches the process `pid` and all its descendants, including ended ones; Linux only.

    The CPU time of a child that its parent waits for is exact, however short its life. Linux discards the CPU time of
    other children, such as Spark's Python workers, whose parent ignores SIGCHLD: theirs is counted up to the last
    sample, at most `interval_s` before their end.

    Args:
        proportional: measure `peak_pss_bytes` too. A sample then costs about 10 ms per GB of the processes' memory.
    """

    def __init__(self, pid: int, interval_s: float = 0.25, *, proportional: bool = False) -> None:
        self.pid = pid
        self.rss_bytes = 0
        self.peak_rss_bytes = 0  # shared pages count in each process
        # Proportional set size: a page counts once, however many processes share it. Python workers are forks and map
        # the same libraries as the driver, so the sum of resident sizes counts up to 0.6 GB more than once.
        self.peak_pss_bytes = 0
        self._proportional = proportional
        self._interval_s = interval_s
        self._seen: dict[int, _Seen] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """CPU-seconds, user and system, from the start of each process until now."""
        self._look()
        with self._lock:
            # A parent has the times of children that it waited for. Of an ended one they were last seen before that, so
            # what its children took counts if it is more. Children come after their parents.
            total, ended = 0.0, dict[int, float]()
            for pid, each in reversed(self._seen.items()):
                whole = each.own_s + max(each.reaped_s, ended.get(pid, 0.0))
                if each.running or each.parent not in self._seen:
                    total += whole
                else:
                    ended[each.parent] = ended.get(each.parent, 0.0) + whole
            return total

    def cpu_s_at_end(self, limit_s: float = 60.0) -> float:
        """Wait until the process, a child of this one, has ended, and return the CPU-seconds of its whole life.

        It isn't reaped: its CPU time could not be read then. Raises `TimeoutError` if it still runs after `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} still runs after {limit_s:.0f} s")
            time.sleep(0.02)
        return self.cpu_s()

    def _watch(self) -> None:
        while not self._end.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        with self._lock:
            for each in self._seen.values():
                each.running = False
            rss = pss = 0
            space: dict[int, int] = {}  # bytes of address space
            # Pids rise, so a parent comes before its children: a child that ends in between is missed until the next
            # sample, but never counted twice.
            for process in psutil.process_iter(["ppid", "cpu_times", "memory_info"]):
                pid, parent, times = process.pid, process.info["ppid"], process.info["cpu_times"]
                if times is None or not (pid == self.pid or pid in self._seen or parent in self._seen):
                    continue
                is_new = pid not in self._seen
                each = self._seen.setdefault(pid, _Seen(parent))
                each.own_s = times.user + times.system
                each.reaped_s = times.children_user + times.children_system
                each.running = True
                space[pid] = (memory := process.info["memory_info"]).vms
                # Between fork and exec a process shares all its parent's pages: a forking JVM would count twice.
                if (is_new and space.get(parent) == memory.vms) or _same_memory(pid, parent):
                    continue
                rss += memory.rss
                pss += _pss(pid) if self._proportional else 0
            self.rss_bytes = rss
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
            self.peak_pss_bytes = max(self.peak_pss_bytes, pss)


def _same_memory(pid: int, parent: int) -> bool:
    """Whether a process still runs in its parent's address space: a vfork that has called no exec yet.

    On a busy machine that lasts many samples, while the parent's size changes. False where the system can't tell.
    """
    return _KCMP is not None and _libc.syscall(_KCMP, pid, parent, _KCMP_VM, 0, 0) == 0


def _pss(pid: int) -> int:
    """Proportional set size in bytes; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
