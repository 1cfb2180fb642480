"""What a batch of pushes costs a task: CPU, memory, storage, and whether the good pushes beside it stay exact.

Each batch is processed in a forked child of a process that has the kernels loaded, below limits of memory and time: a
batch that breaks the operator is a result, not the end of the search.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.quality.batch import BatchChecks
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, METRIC_ROLLUPS_1M, ROWS_OF_PUSHES
from kafka_telemetry_lake.udfs.conversion.rollups import MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.conversion.shard import process_parts
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from tests.support.hostile_batches import GOOD_CLIENTS, batch, good_rows, hostile_rows
from tests.support.hostile_genomes import Genome

MEMORY_LIMIT = 5 << 30  # above what the child starts with
SECONDS_LIMIT = 90  # of CPU
WALL_PER_PROCESSOR = 20  # ends what hangs, on a busy machine too
FLOOR_S = 0.25  # of CPU: what a batch costs whose hostile push is empty is less
# Of memory at its peak: what the Parquet writers, DuckDB's checks and 100,000 rows need, however they came.
FLOOR_BYTES = 128 << 20
# Of memory after it: pieces that the allocators keep.
FLOOR_RETAINED = 32 << 20
READ_ROWS = 1024
CLIENT = "client_instance_id"
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Cost:
    """What a genome's batch took, as measured; `failure` says how it broke the operator.

    What is per byte is beyond the floors.
    """

    wire_bytes: int = 0  # as landed, with headers
    raw_bytes: int = 0  # uncompressed, with headers
    cpu_s: float = 0.0
    peak_bytes: int = 0  # of memory, beyond that of the batch itself
    retained_bytes: int = 0  # after it, the state among them; anonymous memory
    stored_bytes: int = 0  # Parquet and state
    series: int = 0  # in the state
    pushes: int = 0
    failure: str = ""
    parts: dict[str, int] = field(default_factory=dict)  # rows by table

    @property
    def us_per_byte(self) -> float:
        return max(0.0, self.cpu_s - FLOOR_S) * 1e6 / max(1, self.raw_bytes)

    @property
    def memory_per_byte(self) -> float:
        return max(0, self.peak_bytes - FLOOR_BYTES) / max(1, self.raw_bytes)

    @property
    def us_per_landed_byte(self) -> float:
        return max(0.0, self.cpu_s - FLOOR_S) * 1e6 / max(1, self.wire_bytes)

    @property
    def memory_per_landed_byte(self) -> float:
        return max(0, self.peak_bytes - FLOOR_BYTES) / max(1, self.wire_bytes)

    @property
    def retained_beyond_series(self) -> int:
        """Bytes retained beyond 1 KB for each series."""
        return max(0, self.retained_bytes - FLOOR_RETAINED - 1024 * self.series)

    @property
    def stored_per_landed_byte(self) -> float:
        return self.stored_bytes / max(1, self.wire_bytes)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise KeyError(name)


def measured(function: Callable[[], Any]) -> tuple[Any, float, int]:
    """A function's result, its CPU in seconds, and its peak of memory in bytes."""
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM counts anew
    began = time.process_time()
    result = function()
    return result, time.process_time() - began, _status("VmHWM") - before


def _trim() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    _libc.malloc_trim(0)
    return _status("RssAnon")


def run_task(pushes: pa.Table, lake: str) -> tuple[ShardState, dict[str, int], int, list[str]]:
    """What a task of the operator does with a slice: state, rows by table, stored bytes and files."""
    state = ShardState.empty()
    writers = {each.name: TableFiles(each, lake) for each in (*ROWS_OF_PUSHES, METRIC_ROLLUPS_1M)}
    minutes, checks, rows_of = RollUp(MINUTE_US), BatchChecks(), dict.fromkeys(writers, 0)
    checks.read(pushes)
    for rows, _, after in process_parts(pushes, state):
        state = after
        for each in ROWS_OF_PUSHES:
            written = getattr(rows, each.name)
            writers[each.name].write(written)
            checks.write(each, written)
            rows_of[each.name] += written.num_rows
            if each is METRIC_POINTS:
                minutes.add(written)
    writers[METRIC_ROLLUPS_1M.name].write(minutes.table())
    checks.counts()
    files = [file for writer in writers.values() for file in writer.close()]
    stored = sum(file.size for file in files) + len(state.to_bytes())
    return state, rows_of, stored, [f"{file.table}/{file.path}" for file in files]


def rows_of_good(lake: str, files: list[str]) -> list[str]:
    """What the tables have of the good clients, one text for each row; read in small pieces, as texts may be long."""
    good, result = pa.array(GOOD_CLIENTS), []
    for name in files:
        file = pq.ParquetFile(Path(lake) / name)
        if CLIENT not in file.schema_arrow.names:
            continue
        chosen = pc.is_in(file.read([CLIENT])[CLIENT], good)
        done, table = 0, name.partition("/")[0]
        for rows in file.iter_batches(READ_ROWS):
            part = rows.filter(chosen.slice(done, rows.num_rows).combine_chunks())
            done += rows.num_rows
            for row in part.to_pylist():
                result.append(f"{table} {sorted((key, str(value)) for key, value in row.items() if value is not None)}")
    return sorted(result)


def expected_good() -> list[str]:
    """The good clients' rows when nobody else pushes; it loads all kernels, too."""
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-search-") as lake:
        *_, files = run_task(batch(good_rows()), lake)
        return rows_of_good(lake, files)


def _measure(genome: Genome, good: list[str], lake: str) -> Cost:
    rows, wire_bytes, raw_bytes = hostile_rows(genome)
    pushes = batch([*rows, *good_rows()])
    del rows
    before = _trim()
    (state, rows_of, stored, files), cpu_s, peak = measured(lambda: run_task(pushes, lake))
    retained = _trim() - before
    cost = Cost(
        wire_bytes, raw_bytes, round(cpu_s, 3), peak, retained, stored,
        state.numbers.num_rows + state.distributions.num_rows, genome["copies"], "", rows_of,
    )  # fmt: skip
    if rows_of_good(lake, files) != good:
        return Cost(**(vars(cost) | {"failure": "the good clients' rows are others"}))
    if rows_of["push_outcomes"] != pushes.num_rows:
        return Cost(**(vars(cost) | {"failure": f"{rows_of['push_outcomes']} outcomes of {pushes.num_rows} pushes"}))
    return cost


def cost(genome: Genome, good: list[str], seconds: float = SECONDS_LIMIT) -> Cost:
    """Measure a genome's batch in a child, which may die of it."""
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-search-", dir=_scratch()) as lake:
        measured, failure = in_child(lambda: vars(_measure(genome, good, lake)), seconds)
    return Cost(failure=failure) if failure else Cost(**measured)


def in_child(function: Callable[[], Any], seconds: float = SECONDS_LIMIT) -> tuple[Any, str]:
    """The function's result, which must fit JSON, or how its process ended: it runs below limits of memory and CPU."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(function, writer, int(seconds))
    os.close(writer)
    output, wait_until = b"", time.monotonic() + WALL_PER_PROCESSOR * seconds
    with os.fdopen(reader, "rb", 0) as pipe:
        while select.select([pipe], [], [], max(0.0, wait_until - time.monotonic()))[0] and (
            part := pipe.read(1 << 16)
        ):
            output += part
    if not output:
        os.kill(child, signal.SIGKILL)  # it has ended, or it hangs
    _, status = os.waitpid(child, 0)
    if output:
        result, failure = json.loads(output)
        return result, failure
    return None, f"killed by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "ended"


def _child(function: Callable[[], Any], writer: int, seconds: int) -> None:
    result, failure = None, ""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY_LIMIT,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        spent = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
        result = function()
    except BaseException as error:  # whatever it is, it is what the search looks for
        failure = f"{type(error).__name__}: {str(error)[:300]} at {_where(error)}"
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(json.dumps([result, failure]).encode())
    os._exit(0)


def _where(error: BaseException) -> str:
    """The last line of this project on the error's way."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename]
    ours = [each for each in frames if each.filename.endswith(".py")]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"


def _scratch() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
