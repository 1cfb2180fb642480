"""What a batch costs the driver, by number of shards, and what the driver remembers of clients. Without Spark.

The tasks do nothing: each shard gets one more state file, and its chain has 25, half of the most that it may have. So
a batch is the driver's own Python: it pickles the task as Spark does, writes the manifest, sweeps the folder of states
and sums up its bytes, and commits to `push_outcomes`. Spark's scheduler isn't in it; it has no more tasks with more
shards. What the driver remembers of clients is by how much it grows from a fleet to a larger one whose clients
the lifecycle runs in tasks.

    python -m benchmarks.driver     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import cloudpickle

from benchmarks.figures import print_figures
from benchmarks.lifecycle import measure
from kafka_telemetry_lake.pipelines.ingest import operator
from kafka_telemetry_lake.pipelines.ingest.operator import Operator, OperatorSettings
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from kafka_telemetry_lake.udfs.limits import Limits

SHARDS = (10, 100, 1000)
CHAIN, BATCHES = 25, 5
FLEETS = (100_000, 1_000_000)


def main() -> None:
    spent = {shards: batch_ms(shards) for shards in SHARDS}
    few, some, many = SHARDS
    each = (spent[many] - spent[few]) / (many - few)
    figures = {f"driver_ms_{shards}_shards": value for shards, value in spent.items()}
    expected = spent[few] + each * (some - few)
    figures["driver_model_error_percent"] = 100 * abs(expected / spent[some] - 1)
    print_figures(figures | {"driver_ms_per_shard": each})
    small, large = (measure(fleet, in_tasks=True)["driver_mb"] for fleet in FLEETS)
    print_figures({"driver_mb_per_million_clients": 1e6 * (large - small) / (FLEETS[1] - FLEETS[0])})


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

    def __call__(self, _: object, task: ShardTask, *__: object) -> list[dict[str, Any]]:
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


if __name__ == "__main__":
    main()
