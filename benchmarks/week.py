"""A week of a lake with its clock sped up: memory, files, log entries and time of a batch at the end of each day.

The batches are those of `benchmarks.aged`, the job's own code without Spark: its commits, the lifecycle's steps,
merging of today's files, the logs' checkpoints and their cleanup, and `maintain` after each day. The clock goes on by
the same time with each batch, so a day has few batches, but all that comes with a day: another landed date, expired log
entries, files to compact and to delete. What has expired on this clock is made old on the disk.

A lake that is begun anew each day takes turns with it. Its work is the same every day, so what it costs is the
machine's: days are compared by the ratio of both.

    python -m benchmarks.week [--batches-a-day 1440]    prints figures, stores them in benchmarks/results.json
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psutil
from deltalake import DeltaTable

from benchmarks.aged import Job
from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings

DAYS, DAY = 7, timedelta(days=1)
RETENTION_DAYS = 3  # so that days are dropped within the week
PUSHES_A_BATCH = 5
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
TABLES = tuple(table.name for table in (PUSHES, *OPERATOR_TABLES))


class Week:
    """A lake whose clock goes on by `step` with each batch."""

    def __init__(self, lake: Path, batches_a_day: int) -> None:
        self.now, self.step, self._lake = FIRST, DAY / batches_a_day, lake
        self.job = self._job(lake)
        self._process = psutil.Process()
        self._written: dict[Path, datetime] = {}  # log entries, by when they were first seen

    def run(self, batches: int) -> dict[str, float]:
        """Run batches; returns figures of them and of the lake after them."""
        upkeep, most, own, others = self.job.upkeep_cpu_s, 0, 0.0, 0.0
        with tempfile.TemporaryDirectory() as folder:
            fresh = self._job(Path(folder))
            for number in range(batches):
                own += cpu_of_batch(self.job)
                others += cpu_of_batch(fresh)
                self.now += self.step
                if number % 50 == 49:
                    self._age_logs()
                    most = max(most, *self._live_files().values())
        return {
            "batch_cpu_s": own / batches,
            "fresh_batch_cpu_s": others / batches,
            "merge_share": (self.job.upkeep_cpu_s - upkeep) / own,
            "rss_mb": self._process.memory_info().rss / 1e6,
            "live_files_max": float(most),
            "log_entries_max": float(max(len(list(self._log(name).iterdir())) for name in TABLES)),
            "files_in_folders": float(sum(1 for name in TABLES for _ in (self._lake / name).rglob("*.parquet"))),
        }

    def _job(self, lake: Path) -> Job:
        return Job(lake, lambda: self.now, PUSHES_A_BATCH, self.step.total_seconds())

    def maintain(self) -> list[str]:
        """Maintain as each night; returns what failed."""
        self.job.lifecycle.step()  # VACUUM waits for no hours here, so the files that it needs are read before
        settings = MaintenanceSettings(dict.fromkeys(TABLES, RETENTION_DAYS), 128 << 20, 0, RETENTION_DAYS)
        work = Maintenance(str(self._lake), checkpoints_of(str(self._lake), None), settings, self.now.date())
        return [problem for name in work.tables() for problem in work.maintain(name).problems]

    def days(self, name: str) -> list[date]:
        """The landed dates of a table's live files."""
        folders = {path.split("/")[0] for path in self._paths(name)}
        return sorted(date.fromisoformat(folder.partition("=")[2]) for folder in folders)

    def _live_files(self) -> dict[str, int]:
        return {name: len(self._paths(name)) for name in TABLES}

    def _paths(self, name: str) -> list[str]:
        return [path.removeprefix(f"{self._lake / name}/") for path in DeltaTable(self._lake / name).file_uris()]

    def _log(self, name: str) -> Path:
        return self._lake / name / "_delta_log"

    def _age_logs(self) -> None:
        """Make log entries old that are older than a day on this clock: delta-rs looks at the files' own times."""
        for name in TABLES:
            for entry in self._log(name).iterdir():
                if self.now - self._written.setdefault(entry, self.now) > DAY:
                    long_ago = time.time() - 2 * DAY.total_seconds()
                    os.utime(entry, (long_ago, long_ago))


def cpu_of_batch(job: Job) -> float:
    """CPU seconds of a job's next batch, without its upkeep."""
    cpu, upkeep = time.process_time(), job.upkeep_cpu_s
    job.batch()
    return time.process_time() - cpu - (job.upkeep_cpu_s - upkeep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches-a-day", type=int, default=1440)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="week-"))
    try:
        week = Week(folder, args.batches_a_day)
        days = []
        for number in range(1, DAYS + 1):
            days.append(week.run(args.batches_a_day))
            if problems := week.maintain():
                raise SystemExit("\n".join(problems))
            print_figures({f"week_{name}_day_{number}": value for name, value in days[-1].items()})
        first, last = (day["batch_cpu_s"] / day["fresh_batch_cpu_s"] for day in (days[1], days[-1]))
        ratio = last / first
        most = max(day["live_files_max"] for day in days)
        print_figures({"week_batch_ratio_day_7_to_day_2": ratio, "week_live_files_max": most,
                       "week_batches_a_day": args.batches_a_day})  # fmt: skip
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
