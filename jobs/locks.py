"""File locks of a lake: for the job, for upkeep and for evaluating findings. The OS releases them with the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from kafka_telemetry_lake.jobs.settings import UsageError
from kafka_telemetry_lake.udfs.errors import CannotRunError

JOB = ".lock"


class LakeBusyError(CannotRunError):
    """Another process holds the lake's lock."""


def only_job(lake: str, busy: str) -> contextlib.AbstractContextManager[None]:
    """Lock for the job that writes the lake. Entering raises ``LakeBusyError(busy)`` if another process has it."""
    return _lock(lake, JOB, busy)


def job_runs(lake: str) -> bool | None:
    """Whether a job has the lake's lock; None: not known, because it is in an object store or may not be looked at."""
    if "://" in lake:
        return None
    file = Path(lake) / JOB
    if not file.exists():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return None


def only_upkeep(lake: str, busy: str) -> contextlib.AbstractContextManager[None]:
    """Lock for removing files from tables: `maintain`, which may run beside the job, or a replay."""
    return _lock(lake, ".upkeep.lock", busy)


def only_findings(lake: str, busy: str) -> contextlib.AbstractContextManager[None]:
    """Lock for evaluating findings: one process at a time follows the lake's hours."""
    return _lock(lake, ".findings.lock", busy)


def only_notifier(lake: str, busy: str) -> contextlib.AbstractContextManager[None]:
    """Lock for sending messages about a lake: two processes would send each of them twice."""
    return _lock(lake, ".notify.lock", busy)


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
