"""Jobs that are processes, one of which takes over from another: a few of the soak (`benchmarks.soak_writers`)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.soak_writers import ENDS, FAULTS_OF_WRITERS, take_over
from tests.support.ledger_run import Run

pytestmark = pytest.mark.lake  # it starts jobs

TIMES = 3
LOSER = f"exit code 1: {ENDS}..."


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS_OF_WRITERS)
def test_the_job_before_ends_and_no_row_is_lost_or_doubled(tmp_path: Path, fault: str) -> None:
    run = Run(tmp_path)
    try:
        seen = take_over(run, TIMES, random.Random(1), FAULTS_OF_WRITERS[fault])
    finally:
        run.close()
    assert run.verdict().problems == []
    assert seen["ended by SIGKILL" if fault == "killed at a step" else LOSER] == TIMES, seen
