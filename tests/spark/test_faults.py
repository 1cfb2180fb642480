"""Faults beside the driver's death, which ``make soak`` tries: workers, executors, the disk. Judged by the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger_faults import (
    fill_disk,
    kill_executors,
    kill_workers,
    refuse_second_job,
    small_disk,
    suspend_job,
)
from tests.support.ledger_run import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.close()


def is_right(run: Run) -> bool:
    verdict = run.verdict()
    return (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])


def test_a_killed_python_worker_fails_a_task_and_not_the_job(run: Run) -> None:
    kill_workers(run, 3)
    assert is_right(run)


@pytest.mark.soak
def test_an_executor_of_a_standalone_cluster_is_killed(run: Run) -> None:
    kill_executors(run, 2)
    assert is_right(run)


def test_a_machine_that_stood_still_goes_on(run: Run) -> None:
    suspend_job(run, 2)
    assert is_right(run)


@pytest.mark.soak
def test_a_full_disk_ends_the_job_with_its_reason_and_loses_nothing(run: Run) -> None:
    with small_disk(run.lake) as problem:
        if problem:
            pytest.skip(problem)
        fill_disk(run, (0.4, 0.6))
        assert is_right(run)


@pytest.mark.soak  # test_ingest_command.py has one too
def test_a_second_job_on_the_lake_is_refused(run: Run) -> None:
    refuse_second_job(run, 1)
    assert is_right(run)
