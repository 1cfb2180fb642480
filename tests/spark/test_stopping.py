"""Ctrl-C, and SIGTERM to one process or to all: the job ends soon, in a few lines, and the next start goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import captured, write
from tests.support.patience import PATIENCE_S, idle_clock, wait_until

PUSHES, LIMIT_S = 800, 10.0
PROGRESS = re.compile(r"\d\d:\d\d:\d\d (ingest|lifecycle|points|pushes): ")  # of the batch that was running


def ctrl_c(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def sigterm(process: subprocess.Popen[str]) -> None:
    process.terminate()


def sigterm_to_all(process: subprocess.Popen[str]) -> None:
    """As systemd ends a unit: the workers, which have a process group of their own, too."""
    job = psutil.Process(process.pid)
    for each in [job, *job.children(recursive=True)]:
        each.terminate()


def ignores_sigterm(child: psutil.Process) -> bool:
    """Whether it does, if it is Java: one that gets SIGTERM while it starts prints an error of its own."""
    (ignored,) = re.findall(r"SigIgn:\s*(\w+)", Path(f"/proc/{child.pid}/status").read_text())
    return child.name() != "java" or bool(int(ignored, 16) & 1 << (signal.SIGTERM - 1))


SOAK = [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.parametrize(("ask", "moment"), [
    (ctrl_c, "batch"),
    pytest.param(sigterm_to_all, "session", marks=pytest.mark.slow),
    *(pytest.param(ask, "batch", marks=SOAK) for ask in (sigterm, sigterm_to_all)),
    *(pytest.param(ask, "session", marks=SOAK) for ask in (ctrl_c, sigterm)),
    *(pytest.param(ask, "idle", marks=SOAK) for ask in (ctrl_c, sigterm, sigterm_to_all)),
])  # fmt: skip
def test_the_job_ends_soon_and_quietly_and_goes_on_at_the_next_start(
    ask: Callable[[subprocess.Popen[str]], None], moment: str, ingest: Ingest, tmp_path: Path
) -> None:
    lake, log = tmp_path / "lake", tmp_path / "job.log"
    write(tmp_path / "in", "0.parquet", captured().slice(0, PUSHES))
    flags = ["--source", f"files:{tmp_path / 'in'}", "--source-name", "test", "--lake", str(lake)]
    flags += ["--master", "local[2]", "--trigger-seconds", "0.5"]
    argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", *flags]
    moments: dict[str, Callable[[], object]] = {
        "session": lambda: "incubator" in log.read_text(),  # the first line of its JVM
        "batch": lambda: any(lake.glob("pushes/landed_date=*/*.parquet")),
        "idle": lambda: "records, " in log.read_text(),
    }
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, text=True, start_new_session=True)
    try:
        wait_until(moments[moment], process=process, said=log.read_text)
        assert all(map(ignores_sigterm, psutil.Process(process.pid).children()))
        before = len(log.read_text().splitlines())
        with idle_clock() as clock:
            ask(process)
            assert process.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        process.kill()
    assert clock.seconds < LIMIT_S
    last = log.read_text().splitlines()[before:]
    assert [line for line in last if not PROGRESS.match(line)] == []
    assert any("ingest: stopped" in line for line in last)
    assert moment != "idle" or len(last) <= 3, last
    ingest(tmp_path / "in", lake)
    for name in ("pushes", "push_outcomes"):
        assert offsets(table(lake, name)) == offsets(captured().slice(0, PUSHES)), name


def offsets(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
