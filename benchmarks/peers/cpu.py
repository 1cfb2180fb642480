"""CPU time and memory of a process and everything it started."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil


@dataclass
class _Seen:
    parent: int
    own_s: float = 0.0
    reaped_s: float = 0.0  # of the children it waited for, and of theirs
    running: bool = True


class TreeCpu:
    """A context manager that watches the process `pid` and its descendants, those that end meanwhile too; Linux only.

    What a parent waited for is exact, however short it lived. A child that nobody waits for (Spark's Python workers:
    their parent ignores SIGCHLD, and Linux then forgets their CPU time) is counted up to the last look at it,
    `interval_s` before its end at most.
    """

    def __init__(self, pid: int, interval_s: float = 0.25) -> None:
        self.pid = pid
        self.rss_bytes = 0
        self.peak_rss_bytes = 0  # pages that processes share count once for each
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
            ended: dict[int, float] = {}
            for each in self._seen.values():
                if not each.running:
                    ended[each.parent] = ended.get(each.parent, 0.0) + each.own_s + each.reaped_s
            return sum(each.own_s + max(0.0, each.reaped_s - ended.get(pid, 0.0)) for pid, each in self._seen.items())

    def _watch(self) -> None:
        while not self._end.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        with self._lock:
            for each in self._seen.values():
                each.running = False
            rss = 0
            # By rising pid, so a parent comes before its children: a child that is waited for in between is missed
            # until the next look, and never counted twice.
            for process in psutil.process_iter(["ppid", "cpu_times", "memory_info"]):
                pid, parent, times = process.pid, process.info["ppid"], process.info["cpu_times"]
                if times is None or not (pid == self.pid or pid in self._seen or parent in self._seen):
                    continue
                each = self._seen.setdefault(pid, _Seen(parent))
                each.own_s = times.user + times.system
                each.reaped_s = times.children_user + times.children_system
                each.running = True
                rss += process.info["memory_info"].rss
            self.rss_bytes = rss
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
