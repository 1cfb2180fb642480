"""Suspends a process and its children, as on a suspended machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """Suspend a process and all its children while the block runs."""
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):  # Hadoop runs short commands such as `chmod`
            process.suspend()
    try:
        yield
    finally:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.resume()
