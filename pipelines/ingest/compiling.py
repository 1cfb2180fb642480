"""``python -m kafka_telemetry_lake.pipelines.ingest.compiling``: compile the kernels now, not in the first batch.

It needs two cores for about half a minute, and says how far it is. What it makes is in the user's cache directory
(`udfs.kernels.numba_cache`); where it is there already nothing is done.
"""

from __future__ import annotations

import sys

from kafka_telemetry_lake.pipelines.ingest.operator_task import FUNCTIONS, compile_kernels
from kafka_telemetry_lake.udfs.kernels import numba_cache


def main() -> None:
    """Compile, with one line that a terminal overwrites, or some lines of a file."""
    if numba_cache.is_filled():
        return
    shown = -1

    def show(compiled: int) -> None:
        nonlocal shown
        tenth = min(10 * compiled // FUNCTIONS, 9)
        if tenth > shown:
            shown = tenth
            end = "" if sys.stdout.isatty() else "\n"
            print(f"\rcompiling kernels, once: {10 * tenth} %", end=end, flush=True)

    compile_kernels(show)
    print("\rkernels are compiled         " if sys.stdout.isatty() else "kernels are compiled", flush=True)


if __name__ == "__main__":
    main()
