"""One process at a time in each role of a lake: the job (`only_job`), and others while it runs (`only`).

In a folder the operating system has a lock, which ends with the process. Elsewhere, and between machines, leases and
signs of life say who writes (`pipelines/lake/fence`). The job has a lease in any case, under which it commits.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from deltalake import DeltaTable
from filelock import FileLock, Timeout

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.pipelines.lake.errors import FencedError, WriterRunsError
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, JOB, Fence, Leases, this_process
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.errors import CannotRunError, TelemetryLakeError

LOCK = ".lock"
UPKEEP = "upkeep"  # whoever removes files from tables, and whoever reads for long what they removed
FINDINGS = "findings"  # whoever follows the lake's hours, and notes how far
NOTIFY = "notify"  # whoever sends messages about a lake: two processes would send each of them twice
ICEBERG = "iceberg"  # whoever writes the Iceberg tables
TAKE_OVER = (
    "If it was cut off, or doesn't answer, --take-over starts this one in its place; the other one can't change "
    "anything any more"
)
log = logging.getLogger("telemetry-lake")


class LakeBusyError(CannotRunError):
    """Another process holds the lake's lock."""


class TakenOverError(TelemetryLakeError):
    """Another process has taken over the lake while this one ran."""


@contextlib.contextmanager
def only_job(
    lake: str,
    command: str,
    busy: str,
    *,
    take_over: bool | None = None,
    lost: Callable[[TakenOverError], object] | None = None,
) -> Iterator[Fence]:
    """Lock and lease for the job that writes the lake, which commits under the lease.

    Args:
        command: as it was called, for other processes to name.
        take_over: don't wait for the process that writes it now: fence it; None: the command can't.
        lost: called as soon as another process has taken over; the block ends with the same error otherwise.

    Raises:
        LakeBusyError: another process has the lock, or shows signs of life.
        TakenOverError: at the end of the block, if another process has taken over.
    """
    with contextlib.ExitStack() as locks:
        alone = True
        try:
            locks.enter_context(_lock(lake, LOCK, busy))
        except LakeBusyError:
            if not take_over:
                raise _busy_error(busy, _holder(lake), take_over) from None
            alone = False
        fence = _acquire(lake, JOB, command, busy, alone=alone and "://" not in lake, take_over=take_over)
        fence.keep_alive(lambda: lost and lost(_taken_over(command, fence)))
        is_clean = False
        try:
            yield fence
            is_clean = True
        except Exception as error:  # Spark's too: a task doesn't find what the other process has deleted
            if not _is_lost(fence):
                raise
            raise _taken_over(command, fence) from error
        finally:
            fence.release(clean=is_clean)
        if fence.loss is not None:
            raise _taken_over(command, fence)


def export_as(name: str) -> str:
    """The role of an exporter: its name's note has one writer."""
    return f"export-{name}"


def job_runs(lake: str) -> bool | None:
    """Whether a job has the lake's lock; None: not known, because it is in an object store or may not be looked at."""
    if "://" in lake:
        return None
    file = Path(lake) / LOCK
    if not file.exists():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return None


@contextlib.contextmanager
def only(role: str, lake: str, busy: str) -> Iterator[None]:
    """The lock of a role other than the job's, which commits under no lease.

    Args:
        role: `UPKEEP`, `FINDINGS`, `NOTIFY`, `ICEBERG`, or that of `export_as`.
        lake: its folder or URI; for `ICEBERG` those of the Iceberg tables, which may be in another place.
        busy: says that another process has the role, and what to do.

    Raises:
        LakeBusyError: another process has the lock, or shows signs of life.
    """
    if "://" not in lake:
        with _lock(lake, f".{role}.lock", busy):
            yield
        return
    fence = _acquire(lake, role, role, busy)
    fence.keep_alive(lambda: log.warning("%s: %s", role, fence.loss))
    is_clean = False
    try:
        yield
        is_clean = True
    finally:
        fence.release(clean=is_clean)


def _acquire(
    lake: str, role: str, command: str, busy: str, *, alone: bool = False, take_over: bool | None = None
) -> Fence:
    uri, own, noted = PUSHES.uri(lake), "", 0
    if DeltaTable.is_deltatable(uri):
        table = DeltaTable(uri)
        own = str(table.metadata().id)
        noted = (table.transaction_version(APP_ID) or 0) if role == JOB else 0
    try:
        return Leases(lake, role).acquire(this_process(command, own), noted, alone=alone, take_over=bool(take_over))
    except WriterRunsError as error:
        raise _busy_error(busy, str(error), take_over) from None


def _holder(lake: str) -> str | None:
    """Which process has the job's lock; None: it has no lease yet."""
    leases = Leases(lake, JOB)
    epoch = leases.latest()
    return None if epoch == 0 or leases.is_released(epoch) else leases.describe(epoch)


def _busy_error(busy: str, holder: str | None, take_over: bool | None) -> LakeBusyError:
    return LakeBusyError(f"{busy}{f': {holder}' if holder else ''}{'' if take_over is None else f'. {TAKE_OVER}'}")


def _is_lost(fence: Fence) -> bool:
    """Whether another process has taken over. Then other errors follow: files are gone, and tables have gone on."""
    with contextlib.suppress(FencedError, OSError):
        fence.check()
    return fence.loss is not None


def _taken_over(command: str, fence: Fence) -> TakenOverError:
    return TakenOverError(
        f"{command}: the lake was taken over by {fence.loss}. This one (epoch {fence.epoch}) ends; nothing that it "
        "wrote since then counts"
    )


@contextlib.contextmanager
def _lock(lake: str, name: str, busy: str) -> Iterator[None]:
    if "://" in lake:
        yield
        return
    folder = Path(lake)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / name, timeout=0)
        lock.acquire()
    except Timeout:
        raise LakeBusyError(busy) from None
    except OSError as error:
        raise UsageError(f"can't write to {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
