"""What a batch costs the driver, by number of shards, and what the driver remembers of clients. Without Spark.

The tasks do nothing: each shard gets one more state file, and its chain has 25, half of the most that it may have. So
a batch is the driver's own Python: it pickles the task as Spark does, writes the manifest, sweeps the folder of states
and sums up its bytes, and commits to `push_outcomes`. Spark's scheduler isn't in it; it has no more tasks with more
shards. Of clients the driver remembers the lifecycle's columns. What these take is by how much a process grows from a
fleet to a larger one.

    python -m benchmarks.driver     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import cloudpickle

from benchmarks.figures import print_figures
from benchmarks.lifecycle import Fleet
from kafka_telemetry_lake.pipelines.ingest import operator
from kafka_telemetry_lake.pipelines.ingest.operator import Operator, OperatorSettings
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask, _release_memory
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.labels import label
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance
from kafka_telemetry_lake.udfs.limits import Limits

SHARDS = (10, 100, 1000)
CHAIN, BATCHES = 25, 5
FLEETS = (100_000, 300_000)


def main() -> None:
    spent = {shards: batch_ms(shards) for shards in SHARDS}
    few, some, many = SHARDS
    each = (spent[many] - spent[few]) / (many - few)
    figures = {f"driver_ms_{shards}_shards": value for shards, value in spent.items()}
    expected = spent[few] + each * (some - few)
    figures["driver_model_error_percent"] = 100 * abs(expected / spent[some] - 1)
    print_figures(figures | {"driver_ms_per_shard": each})
    small, large = (in_process(fleet) for fleet in FLEETS)
    print_figures({"driver_mb_per_million_clients": (large - small) / (FLEETS[1] - FLEETS[0])})


def batch_ms(shards: int) -> float:
    """Milliseconds of CPU that a batch with empty work takes the driver: the median of some."""
    with tempfile.TemporaryDirectory() as folder:
        lake, checkpoints = f"{folder}/lake", f"{folder}/checkpoints"
        for table in TABLES:
            table.create(lake)
        state = StateFolder(f"{checkpoints}/points-state", shards, shards)
        tasks = EmptyTasks()
        vars(operator)["run_tasks"] = tasks
        OffsetGuard.load = staticmethod(lambda *_: OffsetGuard("", (), -1))  # type: ignore[assignment]  # no Spark
        judge = Operator(None, OperatorSettings(lake, checkpoints, Limits(), 1 << 30), state)  # type: ignore[arg-type]  # no Spark
        judge.start_from(0)
        spent = []
        for number in range(BATCHES):
            tasks.cpu_s, began = 0.0, time.process_time()
            judge.run_batch(number, ("landed_date=2026-11-25/part-0.parquet",), number + 1)
            spent.append(time.process_time() - began - tasks.cpu_s)
        return 1000 * float(np.median(spent[1:]))  # the first one takes the snapshot of the day


class EmptyTasks:
    """Stands for `run_tasks`. Writes empty state files, in CPU time that isn't the driver's."""

    cpu_s = 0.0

    def __call__(self, _: object, task: ShardTask, __: object = None) -> list[dict[str, Any]]:
        assert cloudpickle.dumps(task)  # type: ignore[no-untyped-call]  # Spark's copy has no types
        began = time.process_time()
        rows = []
        for shard in range(task.shards):
            known = task.states.get(shard, ())[1:]
            new = [
                f"shard-{shard:05d}-batch-{task.batch_id:010d}-{number:08x}.state"
                for number in range(CHAIN - len(known))
            ]
            for name in new:
                Path(task.state_folder, name).touch()
            rows.append({"shard": shard, "state": [*known, *new], "files": [], "counts": {}, "set_aside": []})
        self.cpu_s += time.process_time() - began
        return rows


def in_process(clients: int) -> float:
    """Bytes of a process of its own that remembers so many clients."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(remembered, (clients,))


def remembered(size: int) -> float:
    """Bytes of memory of this process after the lifecycle has seen a fleet."""
    fleet, clients, clocks = Fleet(size), Clients(), Clocks()
    versions, chunk = SUBSCRIPTIONS.schema.empty_table(), 50_000
    before = resident_after_release()
    for first in range(0, size, chunk):
        pushes, outcomes = fleet.pushes(first, min(chunk, size - first), 1_790_000_000_000_000)
        advance(clients, clocks, pushes, versions, 1)
        label(clients, outcomes, 1)
    del pushes, outcomes
    return resident_after_release() - before


def resident_after_release() -> float:
    gc.collect()
    _release_memory()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    main()
