"""What merging of today's small files costs: CPU of a million points merged, times how often a row is merged.

Files of `metric_points` have as many rows as a batch gives a shard. How often a row is merged is counted by the sizes
of a day's files at full commit rate, as the upkeep chooses them.

    python -m benchmarks.merging    prints figures, stores them in benchmarks/results.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.aged import BATCH_S, SHARDS, Job
from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from kafka_telemetry_lake.pipelines.lake.delta_log import file_rows
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.pipelines.upkeep.merging import merged
from kafka_telemetry_lake.pipelines.upkeep.small_files import MANY, runs_to_merge

FLEETS = {"10k_clients": 67, "100k_clients": 670, "1m_clients": 6_700}  # pushes of a batch every two seconds


def times_merged(size: int) -> float:
    """Bytes that merging writes, by bytes that a day's batches write in files of one size."""
    live: list[dict[str, Any]] = []
    batches, rewritten, a_look = int(86_400 / BATCH_S), 0, int(60 / BATCH_S)
    for _ in range(0, batches, a_look):
        live += [{"size_bytes": size, "partition": ""}] * (a_look * SHARDS)
        while (run := next(runs_to_merge(live), None)) is not None:
            total = sum(file["size_bytes"] for file in live[run])
            rewritten += total
            live[run] = [{"size_bytes": total, "partition": ""}]
    return rewritten / (batches * SHARDS * size)


def main() -> None:
    for name, pushes in FLEETS.items():
        with tempfile.TemporaryDirectory() as folder:
            job = Job(Path(folder), pushes=pushes)
            job.fleet = Fleet(20_000, int(job.clock().timestamp() * 1000), 300)
            for _ in range(4):
                job.batch()
            actions = pa.table(DeltaTable(Path(folder) / METRIC_POINTS.name).get_add_actions())
            rows = list(file_rows(actions)) * (MANY // actions.num_rows)
            points = pc.sum(actions["num_records"]).as_py() * (MANY // actions.num_rows)
            began = time.process_time()
            merged(METRIC_POINTS, folder, rows)
            cost = (time.process_time() - began) / points * 1e6
            times = times_merged(pc.mean(actions["size_bytes"]).as_py())
        print_figures({
            f"merge_cpu_s_a_million_points_{name}": cost,
            f"merge_times_{name}": times,
            f"merge_cpu_s_a_million_landed_{name}": cost * times,
        })  # fmt: skip


if __name__ == "__main__":
    main()
