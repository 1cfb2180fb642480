"""Bytes of a data point in each table, and in each column of the largest ones, by load shape and age of the files.

Pushes of each shape of `benchmarks.shapes` go through the job's two tasks without Spark, in batches of
`PUSHES_A_BATCH`. Then the same rows are measured as their files age: `landed` as the tasks write them, `merged` as the
job merges today's small files, `compacted` as `maintain` leaves those of past days. Bytes of a column are those of its
pages in the files; what is left of a file is its footer.

    python -m benchmarks.bytes [SHAPE ...]    prints all figures, stores those of tables in benchmarks/results.json

A figure is `bytes_<shape>_<age>_<table>`; a column's is its table's with `.<column>`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from benchmarks.fleet_lake import SHARDS, landing_rows, pushes_rows
from benchmarks.shapes import SHAPES
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, file_rows
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.pipelines.upkeep.merging import merged
from kafka_telemetry_lake.pipelines.upkeep.small_files import TARGET_BYTES

PUSHES_A_BATCH, BATCHES = 4_000, 5
ROWS = 500  # of an Arrow batch, about what Spark makes of pushes
LEAST = 0.005  # bytes a point of a column that is printed
STORED = (PUSHES, *OPERATOR_TABLES)


def main() -> None:
    chosen = sys.argv[1:] or [shape.name for shape in SHAPES]
    for shape in (each for each in SHAPES if each.name in chosen):
        with tempfile.TemporaryDirectory() as folder:
            points = land(folder, shape.fleets(PUSHES_A_BATCH * BATCHES)[0])
            for age in ("landed", "merged", "compacted"):
                began = time.process_time()
                if age == "compacted":
                    maintain(folder)
                sizes = sizes_of(folder, is_merged=age == "merged")
                figures = {name: size / points for name, size in sorted(sizes.items())}
                tables = {name: size for name, size in figures.items() if "." not in name}
                prefix = f"bytes_{shape.name}_{age}"
                for name, size in figures.items():
                    if "." in name and size >= LEAST:
                        print(f"{prefix}_{name}: {size:.3f}", flush=True)
                print_figures(
                    {f"{prefix}_{name}": size for name, size in tables.items()}
                    | {f"{prefix}_all_tables": sum(tables.values())}
                )
                print(f"{prefix}_cpu_s: {time.process_time() - began:.2f}", flush=True)


def land(lake: str, fleet: Fleet) -> int:
    """Write a lake of the fleet's pushes as the job's tasks do; returns the number of points."""
    for table in TABLES:
        table.create(lake)
    (Path(lake) / "_state").mkdir()
    logs = {table.name: TableLog(table, lake) for table in STORED}
    states: dict[int, tuple[str, ...]] = {}
    points = 0
    for number in range(BATCHES):
        first = number * PUSHES_A_BATCH
        landings = list(fleet.landings(first, first + PUSHES_A_BATCH))
        points += sum(landing.points for landing in landings)
        batches = landing_rows(pushes_rows(landings, first, SHARDS)).to_batches(max_chunksize=ROWS)
        stored = [row["file"] for batch in StoreTask(lake)(batches) for row in batch.to_pylist()]
        files = [DataFile.from_json(text) for text in stored]
        task = ShardTask(lake, number, tuple(file.path for file in files), SHARDS, f"{lake}/_state", states)
        for result in task([pa.record_batch({"id": range(SHARDS)})]):
            for row in result.to_pylist():
                states[row["shard"]] = tuple(row["state"])
                files += [DataFile.from_json(text) for text in row["files"]]
        for name, log in logs.items():
            log.commit([file for file in files if file.table == name], "benchmark", number)
    return points


def maintain(lake: str) -> None:
    """Compact the files as those of past days."""
    settings = MaintenanceSettings({}, TARGET_BYTES, vacuum_hours=168, snapshot_days=1)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    maintenance = Maintenance(lake, f"{lake}/_checkpoints", settings, tomorrow)
    for table in STORED:
        problems = maintenance.maintain(table.name).problems
        if problems:
            raise SystemExit(f"{table.name}: {problems}")


def sizes_of(lake: str, *, is_merged: bool) -> Counter[str]:
    """Bytes by table, and by column as `<table>.<column>`.

    Args:
        is_merged: of each day's files merged into one, as the job does; the tables don't get those.
    """
    sizes: Counter[str] = Counter()
    for table in STORED:
        folder = Path(table.uri(lake))
        rows = file_rows(pa.table(DeltaTable(folder).get_add_actions()))
        rows.sort(key=lambda row: row["modification_time"])
        paths = [unquote(row["path"]) for row in rows]
        if is_merged:
            days = sorted({row["partition"]["landed_date"] for row in rows})
            of_days = ([row for row in rows if row["partition"]["landed_date"] == day] for day in days)
            paths = [merged(table, Lake(lake), of_day).path for of_day in of_days]
        for path in paths:
            sizes[table.name] += (folder / path).stat().st_size
            footer = pq.read_metadata(folder / path)
            for group in range(footer.num_row_groups):
                for number in range(footer.num_columns):
                    column = footer.row_group(group).column(number)
                    name = column.path_in_schema.partition(".")[0]
                    sizes[f"{table.name}.{name}"] += column.total_compressed_size
    return sizes


if __name__ == "__main__":
    main()
