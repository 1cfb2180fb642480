"""``python -m kafka_telemetry_lake.pipelines.ingest.compiling``: compile the kernels now, not in the first batch.

It needs two cores for about half a minute, and says how far it is. What it makes is in the user's cache directory
(`udfs.kernels.numba_cache`); where it is there already, or the package brings it, nothing is done. If it fails it says
so, and ends as if it hadn't: the first batch compiles.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.rollups import MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.conversion.shard import process_parts
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.kernels.compiled import COMPILES
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from kafka_telemetry_lake.udfs.otlp import decode
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

FUNCTIONS = 125  # that `compile_kernels` compiles


def compile_kernels(progress: Callable[[int], None] | None = None) -> None:
    """Compile what neither the package nor the cache of this user has, in a child on each of two cores.

    Without numba, or if a child fails, less is compiled: `numba_cache.is_filled` says whether all is.

    Args:
        progress: called now and then with the number of functions that have been compiled, of about `FUNCTIONS`.
    """
    if COMPILES:
        numba_cache.fill(decode.load, _convert, progress=progress)


def load_kernels() -> None:
    """Load every kernel of a task; one worker of a machine at a time compiles those that the cache lacks."""
    decode.load()
    _convert()


def _convert() -> None:
    """Load the kernels of a task but those that decode."""
    with numba_cache.exclusive("conversion"):
        shards_of(pa.array(["x"]), 1)
        for rows, _, _ in process_parts(PUSHES_IN.empty_table(), ShardState.empty()):
            RollUp(MINUTE_US).add(rows.metric_points)


@contextmanager
def compiled_in_background(say: Callable[[str], None]) -> Iterator[None]:
    """Compile in another process while the block runs, unless all is compiled already.

    A task of the block that needs the kernels waits for that process (`numba_cache.fill`); if that fails, it compiles
    itself. What the block needs before, such as Spark's start and the plan of the first batch, goes on meanwhile. A
    block that ends first ends it.

    Args:
        say: prints a line about progress.
    """
    if numba_cache.is_filled():
        yield
        return
    say("compiling kernels, once for this user: half a minute on two cores")
    command = [sys.executable, "-m", "kafka_telemetry_lake.pipelines.ingest.compiling"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as child:
        relay = threading.Thread(target=_relay, args=(child, say), name="compiling", daemon=True)
        relay.start()
        try:
            yield
        finally:
            if child.poll() is None:
                with suppress(ProcessLookupError):  # it ended meanwhile
                    os.killpg(child.pid, signal.SIGTERM)  # and its own children, which compile
            relay.join()


def _relay(child: subprocess.Popen[str], say: Callable[[str], None]) -> None:
    assert child.stdout is not None
    for line in filter(None, map(str.strip, child.stdout)):
        say(line)
    child.wait()


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
    if numba_cache.is_filled():
        end = "kernels are compiled"
    elif COMPILES:
        end = "kernels are not compiled: a compiler failed. The first batch compiles them"
    else:
        end = "kernels are not compiled: numba can't be loaded. Conversion is right but slow"
    print(f"\r{end:<30}" if sys.stdout.isatty() else end, flush=True)


if __name__ == "__main__":
    main()
