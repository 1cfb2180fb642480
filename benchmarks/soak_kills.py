"""Kills the job repeatedly during batches, commits and checkpoints: one trial for each kind of kill."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.landing_records import write
from tests.support.ledger import Fleet
from tests.support.ledger_check import Verdict, check

ROOT = Path(__file__).parent.parent
LONGEST_WAIT_S = 90.0
PATIENCE_S = 40.0  # a driver without its JVM must exit within this time
# Files that appear in a lake during a batch; the fault occurs up to half a second after one of them.
MOMENTS = (
    "_checkpoints/landing/offsets/*",
    "pushes/landed_date=*/*",
    "pushes/_delta_log/*.json",
    "_checkpoints/landing/commits/*",
    "metric_points/landed_date=*/*",
    "_checkpoints/points-state/*.state",
    "_checkpoints/points-state/manifest*",
    "metric_points/_delta_log/*.json",
    "push_outcomes/_delta_log/*.json",
    "metric_rollups_1h/_delta_log/*.json",
)
TASK_MOMENTS = ("_checkpoints/landing/offsets/*", "pushes/landed_date=*/*", "metric_points/landed_date=*/*")
WORKER = "Python worker killed"
Job = subprocess.Popen[bytes]


def kill_all(job: Job) -> bool:
    os.killpg(job.pid, signal.SIGKILL)
    return True


def kill_driver(job: Job) -> bool:
    """Spark's JVM outlives the driver until it notices."""
    job.kill()
    return True


def kill_jvm(job: Job) -> bool:
    return _kill_one(job, lambda process: process.name() == "java")


def kill_worker(job: Job) -> bool:
    return _kill_one(job, lambda process: any("pyspark.daemon" in word for word in process.cmdline()))


def _kill_one(job: Job, wanted: Callable[[psutil.Process], bool]) -> bool:
    """Kill the youngest such descendant of the job's process, if there is one."""
    candidates: list[psutil.Process] = []
    for process in psutil.Process(job.pid).children(recursive=True):
        try:
            if wanted(process):
                candidates.append(process)
        except psutil.Error:
            continue
    if candidates:
        max(candidates, key=lambda process: process.create_time()).kill()
    return bool(candidates)


# Each returns whether there was a process to kill.
FAULTS: dict[str, Callable[[Job], bool]] = {
    "driver, JVM and workers killed at once": kill_all,
    "driver killed": kill_driver,
    "JVM killed": kill_jvm,
    WORKER: kill_worker,
}


@dataclass
class Trial:
    """One fault, with its own lake and fleet."""

    fault: str
    folder: Path
    chance: random.Random
    times: int = 0
    hung: int = 0
    ended: int = 0
    recoveries_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet = Fleet(seed=self.chance.randrange(1 << 30))
        self.lake = self.folder / "lake"
        self._job: Job | None = None
        self._recovering_since: float | None = None
        self._judged = 0
        self._files = 0

    @property
    def moments(self) -> tuple[str, ...]:
        return TASK_MOMENTS if self.fault == WORKER else MOMENTS

    def land(self) -> None:
        write(self.folder / "in", f"{self._files:05d}.parquet", self.fleet.round())
        self._files += 1

    def strike(self) -> None:
        """With a job running, wait for one of the moments, cause the fault, and observe the job."""
        self.land()
        moment = self.chance.choice(self.moments)
        before = self._seen(moment)
        job = self._job = self._job or self._start("--trigger-seconds", "0.5")
        # One time in five, the fault occurs during start or recovery.
        begun, early = time.monotonic(), self.fault != WORKER and self.chance.random() < 0.2
        deadline = begun + (self.chance.uniform(2, 20) if early else LONGEST_WAIT_S)
        while self._seen(moment) <= before and job.poll() is None and time.monotonic() < deadline:
            self._note_recovery()
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, 0.5 if self.fault != WORKER else 0.1))
        self._note_recovery()
        if job.poll() is not None:
            raise RuntimeError(f"{self.fault}: the job had ended by itself with exit code {job.returncode}")
        struck = FAULTS[self.fault](job)
        self.times += struck
        if struck:
            print(f"{self.fault} {self.times}: {'while starting' if early else moment}", flush=True)
        if self.fault == WORKER:
            self._expect_recovery()
            self._await_recovery(job)
        else:
            self._end(job, struck=struck)
            self._job = None

    def judge(self) -> Verdict:
        """Process the remaining input and compare the lake with the ledger."""
        if self._job is not None:
            self._end(self._job)
        job = self._start("--once")
        while job.poll() is None:
            self._note_recovery()
            time.sleep(0.02)
        verdict = check(self.lake, self.fleet.ledger)
        if job.returncode:
            verdict.problems.append(f"the last run ended with exit code {job.returncode}")
        verdict.problems += [f"there was never a file {each}" for each in self.moments if not self._seen(each)]
        if self.ended:
            verdict.problems.append(f"{self.ended} times the job exited instead of recovering")
        if self.hung:
            verdict.problems.append(f"{self.hung} times the driver didn't exit by itself within {PATIENCE_S:.0f} s")
        return verdict

    def _await_recovery(self, job: Job) -> None:
        """Wait until the task has run again in another worker; if the job exits, the next strike starts another one."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while job.poll() is None and self._recovering_since is not None and time.monotonic() < deadline:
            self._note_recovery()
            time.sleep(0.02)
        if job.poll() is not None:
            self.ended += 1
            self._end(job)
            self._job = None

    def _expect_recovery(self) -> None:
        self._recovering_since, self._judged = time.monotonic(), self._seen("push_outcomes/_delta_log/*.json")

    def _note_recovery(self) -> None:
        """If the job has stored outcomes again, record the time since its start, or since the death of its worker."""
        if self._recovering_since is not None and self._seen("push_outcomes/_delta_log/*.json") > self._judged:
            self.recoveries_s.append(time.monotonic() - self._recovering_since)
            self._recovering_since = None

    def _seen(self, pattern: str) -> int:
        """How many such files there have been, by the rising numbers in their names, since state files are deleted."""
        names = [path.name for path in self.lake.glob(pattern)]
        numbers = [int(name.split(".")[0]) for name in names if name.split(".")[0].isdigit()]
        if numbers:
            return max(numbers) + 1
        batches = [int(name.split("batch-")[1][:10]) for name in names if "batch-" in name]
        manifests = [int(name[9:19]) for name in names if name.startswith("manifest-")]
        return max(batches + manifests, default=len(names) - 1) + 1

    def _start(self, *flags: str) -> Job:
        argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest",
                "--source", f"files:{self.folder / 'in'}", "--lake", str(self.lake),
                "--master", "local[2,3]", "--driver-memory", "1g", *flags]  # fmt: skip
        if self.times:
            self._expect_recovery()
        with (self.folder / "job.log").open("ab") as output:
            return subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)

    def _end(self, job: Job, *, struck: bool = False) -> None:
        """Kill all processes of a job before the next one starts, except the JVM of a killed driver.

        Args:
            struck: the fault has occurred; a job that is still starting may have had no JVM to kill.
        """
        if self.fault == "driver killed":
            job.wait()
            return
        if struck and self.fault == "JVM killed" and self._ends_within(job, PATIENCE_S) is False:
            self.hung += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()

    @staticmethod
    def _ends_within(job: Job, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(seconds)
        return job.poll() is not None
