"""Faults beside the driver's death, which ``make soak`` tries: workers, executors, the disk. Judged by the ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from deltalake import DeltaTable

from jobs.local_cluster.ports import ReservedPorts
from tests.landing_records import write
from tests.ledger import Fleet
from tests.ledger_check import check

pytestmark = pytest.mark.slow
Job = subprocess.Popen[bytes]


class Runner:
    """``telemetry-lake ingest`` as a process, over <folder>/in into a lake."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lake, self.log = folder, folder / "lake", folder / "job.log"
        self.running: list[Job] = []
        self.fleet = Fleet()
        self.files = 0

    def land(self) -> None:
        write(self.folder / "in", f"{self.files:03d}.parquet", self.fleet.round())
        self.files += 1

    def start(self, *flags: str, command: tuple[str, ...] = ()) -> Job:
        argv = command or (sys.executable, "-m", "jobs.cli", "ingest", "--source", f"files:{self.folder / 'in'}",
                           "--lake", str(self.lake), "--driver-memory", "1g", *flags)  # fmt: skip
        with self.log.open("ab") as output:
            job = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
        self.running.append(job)
        return job

    def judged(self) -> int:
        there = (self.lake / "push_outcomes" / "_delta_log").is_dir()
        return DeltaTable(str(self.lake / "push_outcomes")).count() if there else 0

    def wait(self, there: Callable[[], object], job: Job, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            assert job.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def end(self, job: Job) -> None:
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == 0, self.log.read_text()[-3000:]

    def right(self) -> None:
        verdict = check(self.lake, self.fleet.ledger)
        assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    for job in runner.running:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def below(pid: int, *words: str) -> list[psutil.Process]:
    """Descendants whose command line has all the words."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if all(word in line for word in words):
            found.append(process)
    return found


def test_a_killed_python_worker_fails_a_task_and_not_the_job(runner: Runner) -> None:
    runner.land()
    job = runner.start("--trigger-seconds", "0.2", "--master", "local[2,3]")
    runner.wait(lambda: runner.judged() > 0, job)
    for _ in range(3):
        before = len(list(runner.lake.glob("metric_points/landed_date=*/*")))
        judged = runner.judged()
        runner.land()
        runner.wait(lambda before=before: len(list(runner.lake.glob("metric_points/landed_date=*/*"))) > before, job)
        for worker in below(job.pid, "pyspark.daemon"):
            worker.kill()
        runner.wait(lambda judged=judged: runner.judged() > judged, job)
    runner.end(job)
    runner.right()


def test_an_executor_of_a_standalone_cluster_is_killed(runner: Runner) -> None:
    ports = ReservedPorts(1)
    master = f"spark://127.0.0.1:{ports.numbers[0]}"
    home = Path(pyspark.__file__).parent
    deploy = "org.apache.spark.deploy"
    launcher = str(home / "bin" / "spark-class")
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    runner.start(command=(launcher, f"{deploy}.master.Master", "--port", str(ports.numbers[0]), *address))
    workers = [
        runner.start(
            command=(launcher, f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir",
                     str(runner.folder / f"worker-{number}"), *address, master)
        )
        for number in range(2)
    ]  # fmt: skip
    runner.land()
    job = runner.start("--trigger-seconds", "0.2", "--master", master, "--shards", "2")
    runner.wait(lambda: runner.judged() > 0, job)
    for number in range(2):
        judged = runner.judged()
        runner.land()
        time.sleep(0.3 * number)
        (executor,) = below(workers[number].pid, "CoarseGrainedExecutorBackend")
        executor.kill()
        runner.wait(lambda judged=judged: runner.judged() > judged, job)
    runner.end(job)
    ports.release()
    runner.right()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "lake"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"can't mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_the_job_with_its_reason_and_loses_nothing(runner: Runner, small_disk: Path) -> None:
    for _ in range(8):
        runner.land()
    runner.lake = runner.folder / "roomy"
    assert runner.start("--once", "--master", "local[2,3]").wait(240) == 0, runner.log.read_text()[-3000:]
    needed = sum(file.stat().st_blocks * 512 for file in runner.lake.rglob("*"))
    runner.lake = small_disk
    for share in (0.4, 0.6):
        subprocess.run(["mount", "-o", f"remount,size={round(share * needed)}", str(small_disk)], check=True)
        job = runner.start("--once", "--master", "local[2,3]")
        assert job.wait(240) == 1, runner.log.read_text()[-3000:]
        assert "No space left" in runner.log.read_text().splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert runner.start("--once", "--master", "local[2,3]").wait(240) == 0, runner.log.read_text()[-3000:]
    runner.right()
