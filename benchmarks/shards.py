"""What shards cost, without Spark: a batch of 100 files by 2, 8 and 32 tasks one after the other, and `reshard`.

Each task opens every file of the batch, so the first figures say what that costs. A file has the pushes of a landing
partition. `reshard` goes from 2 shards to 8, in CPU seconds by million clients, which are those of `benchmarks.state`:
DELTA with the pushes of an hour, and a fifth with 40 cumulative series each.

    python -m benchmarks.shards     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from benchmarks.fleet_lake import landing_rows, pushes_rows
from benchmarks.state import NOW_US, synthetic
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, column
from kafka_telemetry_lake.udfs.kernels.sharding import shards_at

FILES, PUSHES = 100, 1_000
SHARDS = (2, 8, 32)
CLIENTS, BEFORE, AFTER = 200_000, 2, 8


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print_figures(a_batch(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        print_figures({"reshard_s_per_million_clients": a_reshard(folder)})


def a_batch(lake: Path) -> dict[str, float]:
    """CPU seconds of a batch with so many shards, the least of two runs."""
    pushes = pushes_rows(list(Fleet(PUSHES, NOW_US // 1000).landings(0, PUSHES)), 0, FILES)
    paths = []
    for partition in range(FILES):
        rows = landing_rows(pushes.filter(pc.equal(pushes["partition"], partition))).combine_chunks()
        (written,) = StoreTask(str(lake))(rows.to_batches())
        paths += [DataFile.from_json(text).path for text in written["file"].to_pylist()]
    spent = {shards: [0.0] * 0 for shards in SHARDS}
    for number in range(3):  # the first one warms up
        for shards in SHARDS:
            state = lake / f"state-{number}-{shards}"
            state.mkdir()
            task = ShardTask(str(lake), 0, tuple(paths), shards, str(state))
            began = time.process_time()
            list(task([pa.RecordBatch.from_pydict({"id": range(shards)})]))
            spent[shards].append(time.process_time() - began)
    least = {shards: min(runs[1:]) for shards, runs in spent.items()}
    figures = {f"shards_batch_cpu_s_{FILES}_files_{shards}_shards": value for shards, value in least.items()}
    return figures | {"scale_cost_8_shards_over_2": least[8] / least[2]}


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
