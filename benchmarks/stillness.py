"""A process and its children that stand still for a while, as on a machine that sleeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a process and all its children for as long as the block takes."""
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):  # Hadoop runs `chmod` and the like, which end any moment
            process.suspend()
    try:
        yield
    finally:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.resume()
