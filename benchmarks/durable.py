"""What it costs to wait for the disk: a batch of the operator with and without `os.fsync`, in turn.

    python -m benchmarks.durable

A batch has twenty pushes, so that what it writes costs little. Its files of rows and states, its manifest and its
commits wait for the disk. The figures are those of the disk below the folder for temporary files (TMPDIR).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from benchmarks.figures import print_figures
from benchmarks.fleet_lake import build

ROUNDS, BATCHES, PUSHES = 5, 20, 20


def main() -> None:
    """Print and store the difference of medians, a batch, and how often a batch waits."""
    waits = 0

    def counted(descriptor: int) -> None:
        nonlocal waits
        waits += 1
        fsync(descriptor)

    fsync = os.fsync
    _batch_ms()  # loads the kernels
    synced, unsynced = [], []
    for _ in range(ROUNDS):
        with patch("os.fsync", counted):
            synced.append(_batch_ms())
        with patch("os.fsync", lambda _: None):
            unsynced.append(_batch_ms())
    wall, cpu = (
        statistics.median(each[place] for each in synced) - statistics.median(each[place] for each in unsynced)
        for place in range(2)
    )
    print_figures(
        {"durable_batch_ms": wall, "durable_batch_cpu_ms": cpu, "durable_waits_per_batch": waits / ROUNDS / BATCHES}
    )


def _batch_ms() -> tuple[float, float]:
    """Milliseconds and CPU-milliseconds of a batch."""
    with tempfile.TemporaryDirectory() as lake:
        began, cpu = time.monotonic(), time.process_time()
        build(Path(lake), 1000, BATCHES * PUSHES, PUSHES)
        return (time.monotonic() - began) * 1e3 / BATCHES, (time.process_time() - cpu) * 1e3 / BATCHES


if __name__ == "__main__":
    main()
