"""`maintain` and `quality --full` on a lake with very many small files: CPU, time and peak memory, by file.

The lake has `--days` days of `--files` files each in `metric_points` and a tenth of that in each other table of the
operator: what a lake looks like whose small files nobody has merged. The rows are those of two batches of the
benchmarks' fleet, each time with other offsets and times. Both commands run on copies of it, in processes of their own.

    python -m benchmarks.aged_upkeep [--days 6] [--files 5000]    prints figures
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.aged import Job
from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table

PARTS = 10  # files of `metric_points` for one of `pushes`
OFFSETS = 100  # of the pushes of two batches
COMMIT_FILES = 100
COMMANDS = {"maintain": ["maintain"], "quality": ["quality", "--full"]}


def build(lake: Path, days: int, files: int) -> int:
    """Write the lake; returns its number of files."""
    with tempfile.TemporaryDirectory() as source:
        job = Job(Path(source))
        job.batch()
        job.batch()
        rows = {table: _rows(table, source) for table in (PUSHES, *OPERATOR_TABLES)}
    rows = {table: own for table, own in rows.items() if own.num_rows}
    began = pc.min(rows[PUSHES]["landed_at"]).as_py()
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    logs = {table: (table.create(str(lake)), TableLog(table, str(lake)))[1] for table in rows}
    number = 0
    for day in range(days, 0, -1):
        made: dict[Table, list[DataFile]] = {table: [] for table in rows}
        for batch in range(files // PARTS):
            number += 1
            at = midnight - timedelta(days=day) + timedelta(hours=23) * batch / (files // PARTS)
            for table, own in rows.items():
                moved = _moved(own, OFFSETS * number, at - began)
                size = -(-len(moved) // (PARTS if table is METRIC_POINTS else 1))
                for first in range(0, len(moved), size):
                    written = TableFiles(table, str(lake))
                    written.write(moved.slice(first, size))
                    made[table] += written.close()
        for table, log in logs.items():
            for first in range(0, len(made[table]), COMMIT_FILES):
                log.commit(made[table][first : first + COMMIT_FILES], f"day-{day}", first)
    for table in rows:
        DeltaTable(table.uri(str(lake))).create_checkpoint()
    return sum(len(DeltaTable(table.uri(str(lake))).file_uris()) for table in rows)


def _rows(table: Table, lake: str) -> pa.Table:
    return DeltaTable(table.uri(lake)).to_pyarrow_table(columns=table.schema.names).cast(table.schema)


def _moved(rows: pa.Table, offsets: int, later: timedelta) -> pa.Table:
    """The rows with other offsets and times."""
    for index, field in enumerate(rows.schema):
        more = offsets if field.name == "offset" else later if pa.types.is_timestamp(field.type) else None
        if more is not None:
            rows = rows.set_column(index, field, pc.add(rows[field.name], pa.scalar(more)).cast(field.type))
    return rows


def measured(name: str, lake: Path) -> dict[str, float]:
    """Figures of a command on a lake."""
    began = time.monotonic()
    command = [sys.executable, "-m", "kafka_telemetry_lake", *COMMANDS[name], "--lake", str(lake)]
    before = os.times()
    process, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0
    while process.poll() is None:
        try:
            peak = max(peak, psutil.Process(process.pid).memory_full_info().uss)
        except psutil.Error:
            break
        time.sleep(0.2)
    if process.wait():
        raise SystemExit(f"{name} failed")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {f"{name}_s": time.monotonic() - began, f"{name}_cpu_s": cpu, f"{name}_peak_mb": peak / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--files", type=int, default=5_000, help="of metric_points in a day")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aged-upkeep-") as folder:
        lake = Path(folder) / "lake"
        files = build(lake, args.days, args.files)
        for name in COMMANDS:
            copy = shutil.copytree(lake, Path(folder) / name, copy_function=os.link)
            figures = measured(name, copy)
            print_figures(figures | {f"{name}_cpu_ms_a_file": 1000 * figures[f"{name}_cpu_s"] / files})
            shutil.rmtree(copy)


if __name__ == "__main__":
    main()
