"""Who may write a lake: one job, and one upkeep beside it. Locks of the operating system end with their process."""

from __future__ import annotations

import contextlib
from pathlib import Path

from filelock import FileLock

from jobs.settings import UsageError


def only_job(lake: str) -> contextlib.AbstractContextManager[object]:
    """One job writes a lake at a time. Entering raises ``filelock.Timeout`` beside another."""
    return _lock(lake, ".lock")


def only_upkeep(lake: str) -> contextlib.AbstractContextManager[object]:
    """One process at a time takes files out of a lake's tables: `maintain`, which runs beside the job, or a replay."""
    return _lock(lake, ".upkeep.lock")


def _lock(lake: str, name: str) -> contextlib.AbstractContextManager[object]:
    if "://" in lake:
        return contextlib.nullcontext()
    folder = Path(lake)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't write to {folder}: {error.strerror}") from error
    return FileLock(folder / name, timeout=0)
