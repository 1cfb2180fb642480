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
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import print_figures
from benchmarks.peers.cpu import TreeCpu

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
        with first_row(Path(folder) / "lake" / "metric_points" / "_delta_log") as first:
            times, cpu = _run(ingest, clone, environment | {"HOME": str(other)})
        kernels = kernels_cold_cpu_s(clone, environment | {"NUMBA_CACHE_DIR": f"{folder}/numba"})
        figures |= {"once_cold_first_row_s": first.result(), "once_cold_s": times[b""], "once_cold_cpu_s": cpu}
        return figures | {"kernels_cold_cpu_s": kernels}


@contextmanager
def first_row(log: Path) -> Iterator[Future[float]]:
    """Gives the seconds until a Delta table's log first adds a file; NaN if none has come when the block ends."""
    began, ended = time.monotonic(), threading.Event()

    def watch() -> float:
        while not ended.wait(0.1):
            if any(b'"add"' in each.read_bytes() for each in log.glob("*.json")):
                return time.monotonic() - began
        return float("nan")

    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(watch)
        finally:
            ended.set()


def kernels_cold_cpu_s(clone: Path, environment: dict[str, str]) -> float:
    """CPU-s of a worker until it has all kernels, its children included, where neither package nor cache has any."""
    program = "from kafka_telemetry_lake.pipelines.ingest import operator_task; operator_task._compile()"
    return _run([".venv/bin/python", "-c", program], clone, environment)[1]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[dict[bytes, float], float]:
    """Seconds until lines that match the patterns, and until the end (``b""``); and CPU-s of all processes."""
    began = time.monotonic()
    times: dict[bytes, float] = {}
    run = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
    with TreeCpu(run.pid) as tree:
        assert run.stdout is not None
        for line in run.stdout:
            for pattern in (DEMO, FIRST_ROW):
                if pattern.search(line):
                    times.setdefault(pattern.pattern, time.monotonic() - began)
        tree.cpu_s_at_end()
        times[b""] = time.monotonic() - began
        if run.wait():
            raise SystemExit(f"{' '.join(command)} ended with {run.returncode}")
        _wait_for_the_last()
        return times, tree.cpu_s()


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
