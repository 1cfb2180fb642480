"""Two jobs on one lake, in a folder and in an S3 store: one takes over from another that runs, that was stopped at a
step of its batch and wakes up later, or that was killed there. And a job whose store fails.

The jobs are processes without Spark (`tests.support.forked_job`), which start within seconds.
"""

from __future__ import annotations

import itertools
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil

from tests.support.forked_job import ForkedJob
from tests.support.ledger_run import Run
from tests.support.patience import PATIENCE_S
from tests.support.s3_proxy import Fault, S3Proxy

MOST_STEPS = 24  # that a following job makes within about two batches
EVERY = ("--trigger-seconds", "0.5", "--take-over")
LOOK_S = 0.2
LAND_S = 1.0  # until the next round lands for a job that waits for one
ENDS = "telemetry-lake: ingest: the lake was taken over by `ingest`, process "
SETTLES_S = 10.0
GOES_ON = "goes on"
# Whom a job takes over from: one that is stopped at a step, and gets this signal; None: it runs.
FAULTS_OF_WRITERS = {"zombie": signal.SIGCONT, "killed at a step": signal.SIGKILL, "two drivers": None}
# Requests of a batch: what commits, the state, the query's offsets, rows, signs of life.
ADDRESSES = (r"_delta_log/\d{20}\.json", "points-state/", "landing/offsets/", r"landed_date=.*\.parquet", r"\.alive")
FAULTS = (Fault.UNAVAILABLE, Fault.SLOW, Fault.CUT, Fault.ANSWER_LOST, Fault.EXPIRED)


def take_over(run: Run, times: int, chance: random.Random, then: signal.Signals | None) -> Counter[str]:
    """Let one job after another take over.

    Args:
        then: the job before has stopped itself at a step; it gets this signal. One that is woken (SIGCONT) is so when
            the next one has judged pushes, one that is killed before the next one starts. None: it runs.

    Returns:
        How often a job ended with which exit code and line, and how often it was stopped before which step.
    """
    seen: Counter[str] = Counter()
    run.look_s = LOOK_S
    steps = _steps(chance)
    run.land()
    job, log = _start(run, 0, next(steps))
    run.wait(lambda: run.judged() > 0, job)
    for number in range(1, times + 1):
        step = ""
        if then is not None:
            step = _stopped_at(run, job, run.folder / f"steps-{number - 1}")
            seen[f"stopped before {step}"] += 1
        else:
            run.land()
            time.sleep(chance.uniform(0, 3))
        if then == signal.SIGKILL:
            job.send_signal(then)
        begun, before = time.monotonic(), run.judged()
        successor, its_log = _start(run, number, next(steps))
        run.land()
        run.wait(partial(_judged_more, run, before), successor)
        if then == signal.SIGCONT:
            job.send_signal(then)
        end = _end_of(run, job, log)
        assert end != GOES_ON, run.said()
        seen[end] += 1
        run.wait_for_all(successor)
        run.recoveries_s.append(time.monotonic() - begun)  # from the start of the next one
        print(f"took over {number}: {step or 'while it ran'}, {end}", flush=True)
        job, log = successor, its_log
    run.end(job)
    return seen


def fail_requests(run: Run, store: S3Proxy, times: int, chance: random.Random) -> Counter[str]:
    """Let requests of a following job fail; one that ends by it is started again.

    Returns:
        How often which fault struck, and how often a job ended with which exit code and line.
    """
    seen: Counter[str] = Counter()
    run.look_s = LOOK_S
    run.land()
    jobs = itertools.count()
    job, log = _start(run, next(jobs), 0)
    run.wait_for_all(job)
    for number in range(times):
        fault, address = FAULTS[number % len(FAULTS)], ADDRESSES[chance.randrange(len(ADDRESSES))]
        strike = store.strike(fault, "PUT", address, times=1 if fault is not Fault.UNAVAILABLE else 3)
        run.land()
        begun = time.monotonic()
        while run.judged() < len(run.ledger.landed) and time.monotonic() - begun < PATIENCE_S:
            if job.poll() is not None:
                seen[_end_of(run, job, log)] += 1
                job, log = _start(run, next(jobs), 0)
            time.sleep(LOOK_S)
        run.recoveries_s.append(time.monotonic() - begun)
        seen[fault.name.lower()] += bool(strike.struck)
        store.recover()
        print(f"{fault.name.lower()} of {address}: {len(strike.struck)} requests", flush=True)
    time.sleep(SETTLES_S)  # the last fault may end it late
    if job.poll() is not None:
        seen[_end_of(run, job, log)] += 1
        job, log = _start(run, next(jobs), 0)
    run.land()
    run.wait_for_all(job)
    run.end(job)
    return seen


def _steps(chance: random.Random) -> Iterator[int]:
    """Each step before another one comes twice."""
    while True:
        yield from chance.sample(range(1, MOST_STEPS + 1), MOST_STEPS)


def _start(run: Run, number: int, step: int) -> tuple[ForkedJob, Path]:
    """A job; it stops itself at the so-manieth step after it was armed."""
    log, argv = run.folder / f"job-{number}.log", ("ingest", *run.source(), "--lake", run.uri, *EVERY)
    job = ForkedJob(str(step), run.folder / f"steps-{number}", argv, log, run.environment)
    run.running.append(job)
    return job, log


def _stopped_at(run: Run, job: ForkedJob, steps: Path) -> str:
    """Arm a job, and land until it has stopped itself; returns the step, without numbers."""
    steps.with_name(f"{steps.name}.armed").touch()
    stopped, landed = partial(_is_stopped, job), 0.0
    while not stopped():
        assert job.poll() is None, run.said()
        if time.monotonic() - landed > LAND_S:
            run.land()
            landed = time.monotonic()
        time.sleep(LOOK_S)
    return re.sub(r"\d{6,}|(?<=offsets/)\d+", "N", steps.read_text().splitlines()[-1])


def _is_stopped(job: ForkedJob) -> bool:
    return job.poll() is None and psutil.Process(job.pid).status() == psutil.STATUS_STOPPED


def _judged_more(run: Run, before: int) -> bool:
    return run.judged() > before


def _end_of(run: Run, job: ForkedJob, log: Path) -> str:
    """Exit code and last line of a job that must end; what differs from job to job is left out."""
    begun = landed = time.monotonic()
    while job.poll() is None and time.monotonic() - begun < PATIENCE_S:
        if time.monotonic() - landed > LAND_S:  # it may have nothing to write
            run.land()
            landed = time.monotonic()
        time.sleep(LOOK_S)
    code = job.poll()
    if code is None:
        return GOES_ON
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    line = (log.read_text(errors="replace").splitlines() or [""])[-1]
    line = f"{ENDS}..." if line.startswith(ENDS) else re.sub(r"\b[0-9a-f-]{32,36}\b|\d{3,}", "N", line)[:200]
    return f"exit code {code}: {line}"
