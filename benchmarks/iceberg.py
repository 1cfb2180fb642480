"""What Iceberg snapshots cost: for each table and commit, for each live file, and on the disk.

    python -m benchmarks.iceberg

A table of 1, 100 or 10,000 live files over 30 days gets a file more, and a merge of ten files, as `telemetry-lake
iceberg --follow` sees them. The files are links to one of a single row: nothing but metadata is read or written.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.iceberg import folder_tables
from kafka_telemetry_lake.pipelines.iceberg.folder_tables import FolderTables
from kafka_telemetry_lake.pipelines.iceberg.mirror import MirroredTable
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES

SIZES, ROUNDS, COMMITS, KEEP, DAYS = (1, 100, 10_000), 9, 1000, 20, 30
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class _Lake:
    """A lake with table `push_outcomes`."""

    def __init__(self, folder: str, files: int) -> None:
        self.folder, self._numbers = Path(folder), count()
        PUSH_OUTCOMES.create(folder)
        self._log = TableLog(PUSH_OUTCOMES, folder)
        writer = TableFiles(PUSH_OUTCOMES, folder)
        writer.write(pa.Table.from_pylist([{"landed_at": NOON, "topic": "t", "offset": 1}], PUSH_OUTCOMES.schema))
        (self._file,) = writer.close()
        self.add(files)
        self.mirror = MirroredTable(folder, PUSH_OUTCOMES.name, FolderTables(f"{folder}/_iceberg"), KEEP)

    def add(self, files: int = 1) -> None:
        """Commit files."""
        self._log.commit([self._link() for _ in range(files)], f"benchmark-{next(self._numbers)}", 0)

    def merge(self) -> None:
        """Replace ten files by one."""
        self._log.rearrange(files_of(DeltaTable(PUSH_OUTCOMES.uri(str(self.folder))))[:10], [self._link()])

    def metadata_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "_iceberg").rglob("*") if path.is_file())

    def _link(self) -> DataFile:
        number = next(self._numbers)
        day = (date(2026, 11, 21) - timedelta(days=number % DAYS)).isoformat()
        path, table = f"landed_date={day}/part-{number}.zstd.parquet", self.folder / PUSH_OUTCOMES.name
        (table / path).parent.mkdir(exist_ok=True)
        os.link(table / self._file.path, table / path)
        return replace(self._file, path=path, landed_date=day)


def main() -> None:
    """Print and store CPU-milliseconds: of the first snapshot, of later ones by what they add, of a merge."""
    figures: dict[str, float] = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            lake = _Lake(folder, size)
            figures[f"iceberg_first_cpu_ms_{size}_files"] = _cpu_ms(lake.mirror.follow)
            commits, looks, merges = [], [], []
            for _ in range(ROUNDS):
                lake.add()
                commits.append(_cpu_ms(lake.mirror.follow))
                looks.append(_cpu_ms(lake.mirror.follow))
            for _ in range(3):
                lake.add(10)
                lake.mirror.follow()
                lake.merge()
                merges.append(_cpu_ms(lake.mirror.follow))
            figures[f"iceberg_commit_cpu_ms_{size}_files"] = statistics.median(commits)
            figures[f"iceberg_look_cpu_ms_{size}_files"] = statistics.median(looks)
            figures[f"iceberg_merge_cpu_ms_{size}_files"] = statistics.median(merges)
    few, many = (figures[f"iceberg_commit_cpu_ms_{size}_files"] for size in (SIZES[0], SIZES[-1]))
    figures["iceberg_commit_cpu_us_per_live_file"] = (many - few) * 1e3 / SIZES[-1]
    print_figures(figures)
    print_figures(_thousand_commits())


def _thousand_commits() -> dict[str, float]:
    """Cost of each of so many commits, and the bytes of metadata after them.

    What no reader needs is deleted each ten minutes, which have 60 commits if one comes every ten seconds.
    """
    with tempfile.TemporaryDirectory() as folder, patch.object(folder_tables, "GRACE_S", -1.0):
        lake, cpu_ms, most = _Lake(folder, 1), 0.0, 0
        for number in range(COMMITS):
            lake.add()
            cpu_ms += _cpu_ms(lake.mirror.follow)
            if number % 60 == 59:
                most = max(most, lake.metadata_bytes())
                cpu_ms += _cpu_ms(lake.mirror.tidy)
        lake.mirror.tidy()
        return {
            "iceberg_1000_commits_cpu_ms_each": cpu_ms / COMMITS,
            "iceberg_1000_commits_most_metadata_bytes": most,
            "iceberg_1000_commits_metadata_bytes": lake.metadata_bytes(),
        }


def _cpu_ms(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return (time.process_time() - began) * 1e3


if __name__ == "__main__":
    main()
