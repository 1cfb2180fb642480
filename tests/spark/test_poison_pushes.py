"""A push that ends Spark's Python worker, whatever the master: one row of quarantine, and the job goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import poison
from tests.support.lake_tables import table
from tests.support.landing_records import captured, record, write

CLIENT = "EZ0N9t0rS5mUyHrcB6Nf0g"
ROOT = Path(__file__).parent.parent.parent


def ingest(folder: Path, master: str, *faults: str, code: int = 0) -> str:
    """One run of the command over 20 good pushes and the bad ones; what it printed. It ends with this exit code."""
    good = [
        each | {"partition": 0, "offset": offset} for offset, each in enumerate(captured().slice(0, 20).to_pylist())
    ]
    bad = [record(20 + n, poison.payload(fault), key=CLIENT) for n, fault in enumerate(faults)]
    if not (folder / "in").exists():
        write(folder / "in", "landed.parquet", good[:10] + bad + good[10:])
        poison.worker_path(folder / "path")
    path = os.pathsep.join([str(folder / "path"), str(ROOT)])
    command = [
        sys.executable,
        "-m",
        "kafka_telemetry_lake.jobs.cli",
        "ingest",
        "--source",
        f"files:{folder / 'in'}",
        "--once",
    ]
    command += ["--lake", str(folder / "lake"), "--master", master, "--driver-memory", "1g", "--shards", "2"]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def check(folder: Path, printed: str, *errors: str) -> None:
    rows = table(folder / "lake", "quarantine").sort_by("offset").to_pylist()
    assert [(row["reason"], row["detail"]) for row in rows] == [("PROCESSING_FAILED", error) for error in errors]
    outcomes = table(folder / "lake", "push_outcomes")
    assert outcomes.num_rows == 20 + len(errors)
    assert outcomes["outcome"].to_pylist().count("quarantined") == len(errors)
    for offset, error in enumerate(errors, 20):
        name = f"client {CLIENT}, client-telemetry/0/{offset}: {error}"
        assert f"points: batch 0: set aside in quarantine (PROCESSING_FAILED): {name}" in printed
    (row,) = [row for row in table(folder / "lake", "pipeline_metrics").to_pylist() if row["stream"] == "points"]
    assert row["set_aside"] == len(errors)


@pytest.mark.slow
def test_a_crash_costs_an_attempt_and_one_row(tmp_path: Path) -> None:
    check(tmp_path, ingest(tmp_path, "local[2,3]", "segv"), "ends its process: SIGSEGV")


@pytest.mark.slow
@pytest.mark.soak  # the one above has attempts left
def test_a_crash_costs_one_row_where_spark_tries_a_task_once(tmp_path: Path) -> None:
    printed = ingest(tmp_path, "local[2]", "segv", "exit", "value_error")
    check(tmp_path, printed, "ends its process: SIGSEGV", "ends its process: exit code 3", "ValueError: a bug")
    assert "a task's process died" in printed


@pytest.mark.slow
def test_a_push_that_ends_the_whole_job_is_isolated_by_the_next_run(tmp_path: Path) -> None:
    """The task that stores few pushes judges them too, so they are not even stored then."""
    ingest(tmp_path, "local[2,3]", "end_the_job", code=-9)
    assert table(tmp_path / "lake", "pushes").num_rows == 0
    check(tmp_path, ingest(tmp_path, "local[2,3]", "end_the_job"), "ends its process: exit code 3")
