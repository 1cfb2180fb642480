"""Lakes and jobs with which explorations of the commit protocol begin, and what an exploration has found."""

from __future__ import annotations

from tests.support.interleavings import Explored, Process, run_alone
from tests.support.model_jobs import empty_lake, ingest
from tests.support.model_store import Disk, carry_out

LINES = ("done", "killed", "TakenOverError", "LakeBusyError")  # how a job may end


def lake(*, crashed: bool) -> Disk:
    """One record is stored and judged. The job that did it has ended, or crashed at its very end."""
    disk, end = run_alone("p0", lambda: ingest(1, 1), empty_lake())
    assert end == "done"
    return disk.changed({path: None for path in disk.files if path.endswith(".released") and crashed})


def cut_off() -> Disk:
    """One record is stored and not judged: the job crashed before it wrote the first manifest."""
    job, disk = Process("p0", lambda: ingest(1, 1)), empty_lake()
    node = job.known(job.start, disk)
    while node.step is not None and "/manifest-" not in node.step[1]:
        answer, disk = carry_out(disk, node.step)
        node = job.known(node.after(answer), disk)
    assert node.step is not None
    return disk


def two() -> list[Process]:
    """One takes a record, the other two and doesn't wait for the first: they note different offsets for one batch."""
    return [Process("p1", lambda: ingest(2, 1)), Process("p2", lambda: ingest(3, 2, take_over=True))]


def three() -> list[Process]:
    """The same, and one more that takes over."""
    return [*two(), Process("p3", lambda: ingest(3, 1, take_over=True))]


BEFORE = {"ended": lambda: lake(crashed=False), "crashed": lambda: lake(crashed=True), "cut off": cut_off}


def problem(explored: Explored, *also: str) -> str:
    """The first line of what was found; a job that ends with another line than that of a loser counts too.

    Args:
        also: how a line may begin.
    """
    if explored.found is not None:
        return explored.found.partition("\n")[0]
    ends = (end.partition(": ")[2] for end in explored.ends)
    return next((end for end in ends if not end.startswith((*LINES, *also))), "none")
