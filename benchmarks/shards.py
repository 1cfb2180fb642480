"""What shards cost, without Spark: a batch of 100 files with 2, 8 and 32 shards, and `reshard`.

The shards are judged by as many tasks as the batch is worth, four workers have at most, one task after the other. A
file has the pushes of a landing partition: 10 to 300.
`scale_efficiency_8_shards` is what 8 shards cost over 2, in the worst of the batches that several workers take part in;
each batch has a figure of its own.
`reshard` goes from 2 shards to 8, in CPU seconds by million clients, which are those of `benchmarks.state`:
DELTA with the pushes of an hour, and a fifth with 40 cumulative series each.

    python -m benchmarks.shards     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import cProfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from benchmarks.fleet_lake import landing_rows, pushes_rows
from benchmarks.state import NOW_US, synthetic
from benchmarks.task import spent_in
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask, tasks_for
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask, workers_for
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.kernels.sharding import shards_at

FILES, PUSHES = 100, (1_000, 2_000, 4_000, 8_000, 10_000, 30_000)
FEW_PUSHES, MANY_PUSHES = min(PUSHES), max(PUSHES)
FOR_SEVERAL_WORKERS = 4_000  # pushes of the least batch that is worth more than one worker
SHARDS, WORKERS, RUNS = (2, 8, 32), 4, 8
CLIENTS, BEFORE, AFTER = 200_000, 2, 8
# As `benchmarks.task` has them.
STAGES = {
    "open files": (("push_files.py", "_groups"),),
    "read rows": (("push_files.py", "read_once"), ("push_files.py", "slices")),
    "judge pushes": (("shard.py", "_parts"),),
    "write rows": (("operator_task.py", "add"), ("operator_task.py", "close")),
    "state": (("chain.py", "read"), ("chain.py", "write"), ("parts.py", "changes")),
    "all": (("operator_task.py", "__call__"),),
}


def main() -> None:
    figures, all_spent = dict[str, float](), dict[tuple[int, int], float]()
    for pushes in PUSHES:
        with tempfile.TemporaryDirectory() as folder:
            spent = a_batch(Path(folder), pushes)
        name = f"{pushes}_pushes"
        figures |= {f"shards_batch_cpu_s_{FILES}_files_{shards}_shards_{name}": spent[shards] for shards in SHARDS}
        figures[f"scale_efficiency_8_shards_{name}"] = spent[8] / spent[2]
        all_spent |= {(pushes, shards): each for shards, each in spent.items()}
    several_workers = (pushes for pushes in PUSHES if pushes >= FOR_SEVERAL_WORKERS)
    figures["scale_efficiency_8_shards"] = max(
        figures[f"scale_efficiency_8_shards_{pushes}_pushes"] for pushes in several_workers
    )
    print_figures(figures | {"scale_model_error_percent": model_error_percent(all_spent)})
    with tempfile.TemporaryDirectory() as folder:
        print_figures({"reshard_s_per_million_clients": a_reshard(folder)})


def model_error_percent(spent: Mapping[tuple[int, int], float]) -> float:
    """By how much a model misses at most: so much a push, and so much a shard, by three of the batches."""
    few, many = min(SHARDS), max(SHARDS)
    push = (spent[MANY_PUSHES, few] - spent[FEW_PUSHES, few]) / (MANY_PUSHES - FEW_PUSHES)
    shard = (spent[FEW_PUSHES, many] - spent[FEW_PUSHES, few]) / (many - few)
    rest = spent[FEW_PUSHES, few] - push * FEW_PUSHES - shard * few
    errors = [(rest + push * pushes + shard * shards) / real - 1 for (pushes, shards), real in spent.items()]
    return 100 * max(map(abs, errors))


def a_batch(lake: Path, pushes: int) -> dict[int, float]:
    """CPU seconds of a batch by number of shards, the least of some runs; prints in which stages they go."""
    rows = pushes_rows(list(Fleet(pushes, NOW_US // 1000).landings(0, pushes)), 0, FILES)
    files: list[DataFile] = []
    for partition in range(FILES):
        own = landing_rows(rows.filter(pc.equal(rows["partition"], partition))).combine_chunks()
        (written,) = StoreTask(str(lake), None, max(SHARDS))(own.to_batches())
        files += [DataFile.from_json(text) for text in written["file"].to_pylist()]
    del rows
    workers = workers_for(sum(file.size for file in files))
    spent = {shards: list[float]() for shards in SHARDS}
    for number in range(RUNS + 1):  # the first one warms up
        for shards in SHARDS:
            task = a_task(lake, f"state-{number}-{shards}", files, shards)
            began = time.process_time()
            judged(task, workers)
            spent[shards].append(time.process_time() - began)
    for shards in SHARDS:
        task, profile = a_task(lake, f"state-{shards}", files, shards), cProfile.Profile(time.process_time)
        results = profile.runcall(judged, task, workers)
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent_in(STAGES, profile).items())
        stages += f"; {sum(len(row['files']) for row in results)} files"
        tasks = tasks_for(shards, WORKERS, workers)
        print(
            f"{pushes} pushes, {shards} shards, {tasks} tasks, CPU-s by stage under the profiler: {stages}", flush=True
        )
    return {shards: min(runs[1:]) for shards, runs in spent.items()}


def a_task(lake: Path, state: str, files: Sequence[DataFile], shards: int) -> ShardTask:
    (lake / state).mkdir()
    held = {file.path: HeldShards.from_json(file.held) for file in files if file.held is not None}
    return ShardTask(str(lake), 0, tuple(file.path for file in files), shards, str(lake / state), held=held)


def judged(task: ShardTask, workers: int) -> list[dict[str, Any]]:
    """What so many tasks return for the shards, one after the other."""
    tasks = tasks_for(task.shards, WORKERS, workers)
    results = task(pa.RecordBatch.from_pydict({"id": range(number, task.shards, tasks)}) for number in range(tasks))
    return [row for result in results for row in result.to_pylist()]


def a_reshard(folder: str) -> float:
    """CPU seconds by million clients."""
    state = synthetic(CLIENTS, 0.2)
    shard = shards_at(column(state.clients, "place").astype(np.int32), BEFORE)
    states = {}
    for number in range(BEFORE):
        mine = state.rows_of(np.sort(column(state.clients, "client")[shard == number]))
        tables = ((name, getattr(mine, name)) for name in SCHEMAS)
        states[number] = (ShardFiles(folder, number).write_tables(tables, 0),)
    del mine, state
    began = time.process_time()
    moved = redistribute(folder, states, AFTER, 1)
    assert moved.clients == CLIENTS
    return (time.process_time() - began) * 1_000_000 / CLIENTS


if __name__ == "__main__":
    main()
