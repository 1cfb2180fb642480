"""Two jobs on one lake: one was stopped somewhere in its batch, another took over, and the first one wakes up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.ingest import RunningJob, make_lake, make_source
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.locks import LakeBusyError, only_job
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from tests.support.ledger_run import Run, StoreRun
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import S3Server

BUSY = "another job is writing this lake"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.close()


def once(spark: SparkSession, run: Run, *, take_over: bool = False) -> None:
    """As ``ingest --once``, in the test's session."""
    settings = parse(IngestSettings, [*run.source(), "--lake", str(run.lake), "--once"], "test")
    with only_job(str(run.lake), "ingest", "busy", take_over=take_over) as fence:
        own = replace(make_lake(settings), checkpoints=own_checkpoints(str(run.lake), None, fence), fence=fence)
        RunningJob(spark, own, make_source(settings), settings, threading.Event()).run()


def stopped(run: Run, step: str) -> subprocess.Popen[bytes]:
    """A job that has stopped itself before a step."""
    command = (sys.executable, "-m", "tests.support.stopped_job", step, str(run.folder / "steps"), "ingest",
               *run.source(), "--lake", run.uri, "--driver-memory", "1g", "--once")  # fmt: skip
    job = run.start(command=command)
    run.wait(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, job)
    return job


SLOW, SOAK = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=marks)
        for step, marks in {
            "add push_outcomes/_delta_log/00000000000000000005.json": SLOW,  # all other tables have the batch
            "add lake/_writers/job-000000000002.json": SLOW,
            "add metric_points/_delta_log/00000000000000000003.json": SOAK,  # its epoch
            "begun offsets/1": SOAK,  # Spark has noted the batch
            "add pushes/_delta_log/00000000000000000004.json": SOAK,
            "note points-state/manifest-0000000001.json": SOAK,
            "note client_changes/_lifecycle-e000000000002.json": SOAK,
        }.items()
    ],
)
def test_a_job_that_was_taken_over_wakes_up_and_changes_nothing(spark: SparkSession, run: Run, step: str) -> None:
    run.land()
    once(spark, run)
    run.land()
    first = stopped(run, step)
    with pytest.raises(LakeBusyError, match="--take-over starts this one in its place"):
        once(spark, run)
    run.land()
    once(spark, run, take_over=True)
    assert run.verdict().problems == []
    os.kill(first.pid, signal.SIGCONT)
    lines = (first.wait(PATIENCE_S), run.log.read_text().splitlines())[1]
    if "_writers" in step:  # it had claimed nothing yet
        assert (first.returncode, lines[-1].partition(": ")[2].partition(": `")[0]) == (
            2,
            f"{BUSY} ({run.lake} is locked): run one job at a time",
        ), lines[-20:]
    else:
        assert first.returncode == 1
        assert "telemetry-lake: ingest: the lake was taken over by `ingest`, process" in lines[-1], lines[-20:]
    assert not [line for line in lines if "Traceback" in line], lines[-40:]
    assert run.verdict().problems == [], "what it wrote after that counts for nobody"
    run.land()
    once(spark, run)
    assert run.verdict().problems == [], "the next job goes on where the second one was"


@pytest.fixture
def store_run(tmp_path: Path) -> Iterator[StoreRun]:
    server = S3Server.start(tmp_path / "objects")
    run = StoreRun(tmp_path, server, server.environment["AWS_ENDPOINT_URL"])
    yield run
    run.close()
    server.stop()


# Claims and commits of who was taken over are tried against a store by tests/unit/lake/test_object_store.py.
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "step",
    [
        "note points-state/manifest-0000000000.json",
        "add push_outcomes/_delta_log/00000000000000000003.json",  # all other tables have the batch
    ],
)
def test_the_same_in_an_object_store(store_run: StoreRun, step: str) -> None:
    store_run.land()
    first = stopped(store_run, step)
    store_run.land()
    log = store_run.folder / "second.log"
    assert store_run.start("--once", "--take-over", log=log).wait(PATIENCE_S) == 0, store_run.said()
    assert store_run.verdict().problems == []
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(PATIENCE_S) == 1, store_run.said()
    lines = store_run.log.read_text().splitlines()
    assert "telemetry-lake: ingest: the lake was taken over by `ingest`, process" in lines[-1], lines[-20:]
    assert not [line for line in lines if "Traceback" in line], lines[-40:]
    assert store_run.verdict().problems == [], "what it wrote after that counts for nobody"
