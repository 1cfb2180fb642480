"""Two jobs on one lake, in a folder and in an S3 store: one takes over from another that runs, or that was stopped at
a step of its batch and wakes up later. And a job whose store fails.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import psutil

from tests.support.ledger_faults import LOCAL
from tests.support.ledger_run import PATIENCE_S, Run
from tests.support.s3_proxy import Fault, S3Proxy

MOST_STEPS = 24  # that a following job makes within about two batches
EVERY = ("--trigger-seconds", "0.5", *LOCAL)
ENDS = "telemetry-lake: ingest: the lake was taken over by `ingest`, process "
# Requests of a batch: what commits, the state, Spark's offsets, rows, signs of life.
ADDRESSES = (r"_delta_log/\d{20}\.json", "points-state/", "landing/offsets/", r"landed_date=.*\.parquet", r"\.alive")
FAULTS = (Fault.UNAVAILABLE, Fault.SLOW, Fault.CUT, Fault.ANSWER_LOST, Fault.EXPIRED)
Job = subprocess.Popen[bytes]


def take_over(run: Run, times: int, chance: random.Random, *, stop: bool) -> Counter[str]:
    """Let one job after another take over.

    Args:
        stop: the one before has stopped itself at a random step, and is woken when the next one has judged pushes.

    Returns:
        How often a job ended with which exit code and line; beside that, at which steps it was stopped.
    """
    exits: Counter[str] = Counter()
    run.land()
    job, log = _start(run, 0, chance)
    run.wait(lambda: run.judged() > 0, job)
    for number in range(1, times + 1):
        step = ""
        if stop:
            (run.folder / f"steps-{number - 1}.armed").touch()
        run.land()
        if stop:
            run.wait(partial(_is_stopped, job), job)
            step = (run.folder / f"steps-{number - 1}").read_text().splitlines()[-1]
        else:
            time.sleep(chance.uniform(0, 3))
        begun, before = time.monotonic(), run.judged()
        successor, its_log = _start(run, number, chance)
        run.land()
        if stop:
            run.wait(partial(_judged_more, run, before), successor)
            os.kill(job.pid, signal.SIGCONT)
        code, line = _end_of(job, log)
        exits[f"exit code {code}: {line}"] += 1
        run.wait_for_all(successor)
        run.recoveries_s.append(time.monotonic() - begun)  # from the start of the next one; its Spark starts within
        print(f"took over {number}: {step or 'while it ran'}, exit code {code}", flush=True)
        job, log = successor, its_log
    run.end(job)
    return exits


def fail_requests(run: Run, store: S3Proxy, times: int, chance: random.Random) -> Counter[str]:
    """Let requests of a following job fail; one that ends by it is started again.

    Returns:
        How often which fault struck, and how often a job ended with which exit code and line.
    """
    seen: Counter[str] = Counter()
    run.land()
    job = run.start(*EVERY)
    run.wait_for_all(job)
    for number in range(times):
        fault, address = FAULTS[number % len(FAULTS)], ADDRESSES[chance.randrange(len(ADDRESSES))]
        strike = store.strike(fault, "PUT", address, times=1 if fault is not Fault.UNAVAILABLE else 3)
        run.land()
        begun = time.monotonic()
        while run.judged() < len(run.ledger.landed) and time.monotonic() - begun < PATIENCE_S:
            if job.poll() is not None:
                code, line = _end_of(job, run.log)
                seen[f"exit code {code}: {line[:160]}"] += 1
                job = run.start(*EVERY, "--take-over")
            time.sleep(0.1)
        run.recoveries_s.append(time.monotonic() - begun)
        seen[fault.name.lower()] += bool(strike.struck)
        store.recover()
        print(f"{fault.name.lower()} of {address}: {len(strike.struck)} requests", flush=True)
    run.wait_for_all(job)
    run.end(job)
    return seen


def _start(run: Run, number: int, chance: random.Random) -> tuple[Job, Path]:
    log, step = run.folder / f"job-{number}.log", str(chance.randrange(1, MOST_STEPS))
    command = (sys.executable, "-m", "tests.support.stopped_job", step, str(run.folder / f"steps-{number}"), "ingest",
               *run.source(), "--lake", run.uri, "--driver-memory", "1g", *EVERY, "--take-over")  # fmt: skip
    return run.start(command=command, log=log), log


def _is_stopped(job: Job) -> bool:
    return bool(psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)


def _judged_more(run: Run, before: int) -> bool:
    return run.judged() > before


def _end_of(job: Job, log: Path) -> tuple[int, str]:
    """Exit code and last line; what differs from job to job is left out."""
    code = -1  # it goes on
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = job.wait(PATIENCE_S)
    line = (log.read_text(errors="replace").splitlines() or [""])[-1]
    return code, f"{ENDS}..." if line.startswith(ENDS) else line
