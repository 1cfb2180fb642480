"""Two jobs on one lake, at every interleaving of their steps (docs/commit-protocol.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.interleavings import Explored, Explorer, Process, run_alone
from tests.support.model_jobs import empty_lake, ingest, model
from tests.support.model_store import Disk
from tests.support.protocol_invariants import Invariants, is_invisible


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with model():
        yield


def lake(*, crashed: bool) -> Disk:
    """One record is stored and judged. The job that did it has ended, or crashed at its very end."""
    disk, end = run_alone("p0", lambda: ingest(1, 1), empty_lake())
    assert end == "done"
    return disk.changed({path: None for path in disk.files if path.endswith(".released") and crashed})


def two_jobs(preemptions: int | None, *, crashed: bool, wake: bool) -> Explored:
    """One takes a record, the other two and doesn't wait for the first: they note different offsets for one batch."""
    jobs = [Process("p1", lambda: ingest(2, 1)), Process("p2", lambda: ingest(3, 2, take_over=True))]
    return Explorer(jobs, Invariants(3, wake=wake), is_invisible, preemptions).explore(lake(crashed=crashed))


@pytest.mark.parametrize("crashed", [False, True], ids=["ended", "crashed"])
def test_one_job_after_the_other(crashed: bool) -> None:
    explored = two_jobs(0, crashed=crashed, wake=True)
    assert explored.found is None, explored.found
    assert explored.ends == {"p1: done": 2, "p2: done": 2}
    assert explored.states > 250
