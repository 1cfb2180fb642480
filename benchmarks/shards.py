"""What shards cost, without Spark: a batch of 100 files with 2, 8 and 32 shards, and `reshard`.

The shards are judged by two tasks, or by four, as with four workers, one task after the other. A file has the pushes of
a landing partition: ten, so that the batch is just too large for a single task, or a hundred.
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
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, column
from kafka_telemetry_lake.udfs.kernels.sharding import shards_at

FILES, PUSHES, MANY_PUSHES = 100, 1_000, 10_000
SHARDS, WORKERS = (2, 8, 32), 4
CLIENTS, BEFORE, AFTER = 200_000, 2, 8
# As `benchmarks.task` has them.
STAGES = {
    "open files": (("push_files.py", "_groups"),),
    "read rows": (("push_files.py", "batches"),),
    "judge pushes": (("shard.py", "_parts"),),
    "write rows": (("operator_task.py", "add"), ("operator_task.py", "close")),
    "state": (("chain.py", "read"), ("chain.py", "write"), ("parts.py", "changes")),
    "all": (("operator_task.py", "__call__"),),
}


def main() -> None:
    figures, all_spent = dict[str, float](), dict[tuple[int, int], float]()
    for pushes in (PUSHES, MANY_PUSHES):
        with tempfile.TemporaryDirectory() as folder:
            spent = a_batch(Path(folder), pushes)
        name = "" if pushes == PUSHES else f"_{pushes}_pushes"
        figures |= {f"shards_batch_cpu_s_{FILES}_files_{shards}_shards{name}": spent[shards] for shards in SHARDS}
        figures[f"scale_cost_8_shards_over_2{name}"] = spent[8] / spent[2]
        all_spent |= {(pushes, shards): each for shards, each in spent.items()}
    print_figures(figures | {"scale_model_error_percent": model_error_percent(all_spent)})
    with tempfile.TemporaryDirectory() as folder:
        print_figures({"reshard_s_per_million_clients": a_reshard(folder)})


def model_error_percent(spent: Mapping[tuple[int, int], float]) -> float:
    """By how much a model misses at most: so much a push, and so much a shard, by three of the batches."""
    few, many = min(SHARDS), max(SHARDS)
    push = (spent[MANY_PUSHES, few] - spent[PUSHES, few]) / (MANY_PUSHES - PUSHES)
    shard = (spent[PUSHES, many] - spent[PUSHES, few]) / (many - few)
    rest = spent[PUSHES, few] - push * PUSHES - shard * few
    errors = [(rest + push * pushes + shard * shards) / real - 1 for (pushes, shards), real in spent.items()]
    return 100 * max(map(abs, errors))


def a_batch(lake: Path, pushes: int) -> dict[int, float]:
    """CPU seconds of a batch by number of shards, the least of two runs; prints in which stages they go."""
    rows = pushes_rows(list(Fleet(pushes, NOW_US // 1000).landings(0, pushes)), 0, FILES)
    files: list[DataFile] = []
    for partition in range(FILES):
        own = landing_rows(rows.filter(pc.equal(rows["partition"], partition))).combine_chunks()
        (written,) = StoreTask(str(lake), None, max(SHARDS))(own.to_batches())
        files += [DataFile.from_json(text) for text in written["file"].to_pylist()]
    del rows
    spent = {shards: [0.0] * 0 for shards in SHARDS}
    for number in range(3):  # the first one warms up
        for shards in SHARDS:
            task = a_task(lake, f"state-{number}-{shards}", files, shards)
            began = time.process_time()
            judged(task)
            spent[shards].append(time.process_time() - began)
    for shards in SHARDS:
        task, profile = a_task(lake, f"state-{shards}", files, shards), cProfile.Profile(time.process_time)
        results = profile.runcall(judged, task)
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent_in(STAGES, profile).items())
        stages += f"; {sum(len(row['files']) for row in results)} files"
        print(f"{pushes} pushes, {shards} shards, CPU-s by stage under the profiler: {stages}", flush=True)
    return {shards: min(runs[1:]) for shards, runs in spent.items()}


def a_task(lake: Path, state: str, files: Sequence[DataFile], shards: int) -> ShardTask:
    (lake / state).mkdir()
    held = {file.path: HeldShards.from_json(file.held) for file in files if file.held is not None}
    return ShardTask(str(lake), 0, tuple(file.path for file in files), shards, str(lake / state), held=held)


def judged(task: ShardTask) -> list[dict[str, Any]]:
    """What `WORKERS` tasks return for the shards, one after the other."""
    shares = np.array_split(np.arange(task.shards), min(task.shards, WORKERS))
    results = task(pa.RecordBatch.from_pydict({"id": share}) for share in shares)
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
    moved = redistribute(folder, folder, states, AFTER, 1)
    assert moved.clients == CLIENTS
    return (time.process_time() - began) * 1_000_000 / CLIENTS


if __name__ == "__main__":
    main()
