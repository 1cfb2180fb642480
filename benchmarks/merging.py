"""What merging of today's small files costs: CPU of a million points merged, times how often a row is merged.

Files have as many rows as a batch gives a shard, in each table. How often a row is merged is counted by the sizes of a
day's files at full commit rate, as the upkeep chooses them. Small fleets get more batches, to be measurable. Files of
the operator's tables are merged several times over, as many as a merge takes; those of `pushes` once, since their
offsets must not repeat.

    python -m benchmarks.merging    prints figures, stores them in benchmarks/results.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.aged import BATCH_S, SHARDS, Job, live_files_after_a_day
from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from kafka_telemetry_lake.pipelines.lake.delta_log import file_rows
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.pipelines.upkeep.merging import merged
from kafka_telemetry_lake.pipelines.upkeep.small_files import MANY, TARGET_BYTES, runs_to_merge

# Pushes of a batch every two seconds, and batches.
FLEETS = {"10k_clients": (67, 8), "100k_clients": (670, 6), "1m_clients": (6_700, 4)}


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


def cpu_of_merging(table: Table, lake: str) -> float:
    """CPU seconds to merge a table's rows once."""
    rows = file_rows(pa.table(DeltaTable(table.uri(lake)).get_add_actions()))
    fit = 1 if table is PUSHES else min(MANY, TARGET_BYTES // max(row["size_bytes"] for row in rows)) // len(rows)
    began = time.process_time()
    merged(table, Lake(lake), rows * max(1, fit))
    return (time.process_time() - began) / max(1, fit)


def main() -> None:
    for name, (pushes, batches) in FLEETS.items():
        with tempfile.TemporaryDirectory() as folder:
            job = Job(Path(folder), pushes=pushes)
            job.fleet = Fleet(20_000, int(job.clock().timestamp() * 1000), 300)
            for _ in range(batches):
                job.batch()
            actions = pa.table(DeltaTable(METRIC_POINTS.uri(folder)).get_add_actions())
            points = pc.sum(actions["num_records"]).as_py()
            tables = [table for table in (PUSHES, *OPERATOR_TABLES) if len(job.sizes[table.name]) >= batches]
            once = {table.name: cpu_of_merging(table, folder) / points * 1e6 for table in tables}
        sizes = {table.name: job.sizes[table.name] for table in tables}
        times = {table: times_merged(sum(each) // len(each)) for table, each in sizes.items()}
        print_figures({
            f"merge_cpu_s_a_million_points_{name}": once[METRIC_POINTS.name],
            f"merge_times_{name}": times[METRIC_POINTS.name],
            f"merge_cpu_s_a_million_landed_{name}": once[METRIC_POINTS.name] * times[METRIC_POINTS.name],
            f"merge_cpu_s_a_million_landed_pushes_{name}": once[PUSHES.name] * times[PUSHES.name],
            f"merge_cpu_s_a_million_landed_all_tables_{name}": sum(once[table] * times[table] for table in once),
            f"merge_live_files_{name}": live_files_after_a_day(sizes[METRIC_POINTS.name]),
            f"merge_memory_mb_{name}": psutil.Process().memory_info().rss / 1e6,
        })  # fmt: skip


if __name__ == "__main__":
    main()
