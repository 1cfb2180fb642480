"""How long a newcomer waits on an empty machine: `make demo` in a fresh clone, with an empty home and no cache.

``python -m benchmarks.first_use`` clones the last commit of this checkout into a scratch folder and runs `make demo`
there: when it has installed, its first row, its end, and the CPU of all its processes. Then it runs a job of captured
pushes in another empty home, where nothing is compiled: until a file of points is committed
(`once_cold_first_row_s`) and to its end (`once_cold_...`). Last it compiles the kernels alone
(`kernels_cold_cpu_s`). With ``--before COMMIT`` it does the same for that commit first, and prints the ratios
(`..._vs_before`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.figures import print_figures

ROOT = Path(__file__).parents[1]
FIRST_ROW = re.compile(rb"lake: \S+ \(.+\) is in the lake: ")
DEMO = re.compile(rb"demo: starting a Kafka broker")
SUBREAPER = 36  # of prctl(2): processes that lose their parent become this process's, so that it can wait for them
LAST_CHILD_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", metavar="COMMIT", help="an earlier commit, measured first")
    before = parser.parse_args().before
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    earlier = {} if before is None else first_use(before)
    figures = first_use("HEAD")
    ratios = {f"{name}_vs_before": figures[name] / value for name, value in earlier.items()}
    print_figures(figures | ratios)


def first_use(commit: str) -> dict[str, float]:
    """Seconds of wall and CPU time of one commit's `make demo` and of a job without any compiled code."""
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-first-use-") as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir(mode=0o700)
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        revision = subprocess.run(["git", "-C", ROOT, "rev-parse", commit], check=True, capture_output=True, text=True)
        subprocess.run(["git", "-C", clone, "checkout", "--quiet", revision.stdout.strip()], check=True)
        # An activated environment, or this checkout on the path, would be used instead of the clone.
        theirs = ("PYTHONPATH", "VIRTUAL_ENV", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TELEMETRY_LAKE_JARS")
        environment = {key: value for key, value in os.environ.items() if key not in theirs}
        environment |= {"HOME": str(home), "PYTHONUNBUFFERED": "1"}
        times, cpu = _run(["make", "demo"], clone, environment)
        figures = {
            "install_s": times[DEMO.pattern],
            "first_row_s": times[FIRST_ROW.pattern],
            "demo_s": times[b""],
            "demo_cpu_s": cpu,
        }
        other = Path(folder) / "other-home"
        other.mkdir(mode=0o700)
        command = ["--source", "files:sandbox/data/captured", "--lake", f"{folder}/lake", "--once"]
        ingest = [".venv/bin/telemetry-lake", "ingest", *command]
        with FirstRow(Path(folder) / "lake" / "metric_points" / "_delta_log") as first:
            times, cpu = _run(ingest, clone, environment | {"HOME": str(other)})
        kernels = kernels_cold_cpu_s(clone, environment | {"NUMBA_CACHE_DIR": f"{folder}/numba"})
        return (
            figures
            | {"once_cold_first_row_s": first.seconds}
            | {"once_cold_s": times[b""], "once_cold_cpu_s": cpu, "kernels_cold_cpu_s": kernels}
        )


class FirstRow:
    """A context manager that notes in `seconds` when a Delta table's log first adds a file."""

    def __init__(self, log: Path) -> None:
        self._log, self._began, self._end = log, time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seconds = float("nan")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            if any(b'"add"' in each.read_bytes() for each in self._log.glob("*.json")):
                self.seconds = time.monotonic() - self._began
                return


class SparkWorkers:
    """A context manager that adds up the CPU-s of Spark's Python workers, which nobody waits for.

    Linux discards their times when they end, so theirs are those of the last sample, a quarter of a second before.
    """

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def cpu_s(self) -> float:
        return sum(self._seen.values())

    def _watch(self) -> None:
        while not self._end.wait(0.25):
            daemons = {
                each.pid: each for each in psutil.process_iter(["ppid", "cmdline", "cpu_times"])
                if "pyspark.daemon" in (each.info["cmdline"] or ())
            }  # fmt: skip
            for pid, each in daemons.items():
                if each.info["ppid"] in daemons and (times := each.info["cpu_times"]) is not None:
                    self._seen[pid] = times.user + times.system


def kernels_cold_cpu_s(clone: Path, environment: dict[str, str]) -> float:
    """CPU-s of a worker until it has all kernels, its children included, where neither package nor cache has any."""
    program = "from kafka_telemetry_lake.pipelines.ingest import operator_task; operator_task._compile()"
    return _run([".venv/bin/python", "-c", program], clone, environment)[1]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[dict[bytes, float], float]:
    """Seconds until lines that match the patterns, and until the end (``b""``); and CPU-s of all processes."""
    began, before = time.monotonic(), os.times()
    times: dict[bytes, float] = {}
    with (
        SparkWorkers() as workers,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE) as run,
    ):
        assert run.stdout is not None
        for line in run.stdout:
            for pattern in (DEMO, FIRST_ROW):
                if pattern.search(line):
                    times.setdefault(pattern.pattern, time.monotonic() - began)
        if run.wait():
            raise SystemExit(f"{' '.join(command)} ended with {run.returncode}")
        times[b""] = time.monotonic() - began
        _wait_for_the_last()
    after = os.times()
    waited_for = after.children_user + after.children_system - before.children_user - before.children_system
    return times, waited_for + workers.cpu_s()


def _wait_for_the_last() -> None:
    """Wait for processes that outlive the command, such as a JVM that writes its archive of classes."""
    end = time.monotonic() + LAST_CHILD_S
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.1)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
