"""A lake of 90 days beside a fresh one: the same batches, a start of the job, first answers, and a day's live files.

The aged lake has made-up history: `--files` files in `metric_points` and a tenth of that in every other table of the
operator, all links to one file, and a log with an entry every two seconds of the last day. The batches are those of the
job without Spark: pushes are stored and judged, each table gets its commit, the lifecycle steps every four batches, and
the upkeep looks every twelve. Without Spark's fixed costs a difference shows more. The two lakes take turns. The start
is one of `ingest --once` without new records, with Spark.

    python -m benchmarks.aged [--files 300000] [--batches 400]    prints figures, stores them in benchmarks/results.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet
from benchmarks.fleet_lake import pushes_rows
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.row_order import sorted_by_client
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSHES, QUARANTINE, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.pipelines.upkeep.small_files import Upkeep, runs_to_merge
from tests.support.landing_records import CAPTURED

SHARDS, CLIENTS, PUSHES_A_BATCH = 2, 1_000, 50
DAYS, BATCH_S = 90, 2
LIFECYCLE_EVERY, UPKEEP_EVERY = 4, 12  # batches
WARM = 24  # batches that aren't measured
TELEMETRY_LAKE = [sys.executable, "-m", "kafka_telemetry_lake"]
QUESTIONS = {
    "points": "SELECT metric, count(*) FROM metric_points WHERE landed_date = current_date GROUP BY ALL",
    "clients": "SELECT state, count(*) FROM clients GROUP BY ALL",
}


class Job:
    """The batches of one lake.

    Args:
        clock: the time at which pushes land, and by which the upkeep merges today's files; None: this machine's.
        pushes: in a batch.
        step_s: time from a batch to the next one, by which the fleet's own times go on.
    """

    def __init__(
        self, lake: Path, clock: Callable[[], datetime] | None = None, pushes: int = PUSHES_A_BATCH,
        step_s: float = BATCH_S,
    ) -> None:  # fmt: skip
        self.lake, self.pushes = lake, pushes
        self.clock = clock or (lambda: datetime.now(UTC))
        for table in TABLES:
            table.create(str(lake))
        self.state = StateFolder(str(lake / "_state"), SHARDS, SHARDS)
        self.number, self.upkeep_cpu_s = 0, 0.0
        self.sizes: dict[str, list[int]] = defaultdict(list)
        clients = min(CLIENTS, round(pushes * 86_400 / step_s))  # each pushes once a day at least
        first_ms = int((self.clock().timestamp() - step_s) * 1000)  # a batch lands what was pushed since the one before
        self.fleet = Fleet(clients, first_ms, clients / pushes * step_s)
        self.open()

    def open(self) -> None:
        """As a start does."""
        lake = str(self.lake)
        self.logs = {table.name: TableLog(table, lake) for table in (PUSHES, *OPERATOR_TABLES)}
        self.lifecycle, self.upkeep = Lifecycle(lake), Upkeep(lake, lambda: self.logs[PUSHES.name].version)
        self.followed, self.position = FollowedTable(PUSHES.uri(lake)), self.logs[PUSHES.name].version

    def batch(self) -> None:
        first = self.number * self.pushes
        landings = list(self.fleet.landings(first, first + self.pushes))
        rows = pushes_rows(landings, first, SHARDS)
        now = pa.scalar(self.clock(), rows.schema.field("landed_at").type)
        rows = rows.set_column(
            rows.schema.get_field_index("landed_at"), rows.schema.field("landed_at"), pa.repeat(now, len(rows))
        )
        files = TableFiles(PUSHES, str(self.lake))
        for partition in range(SHARDS):  # a row group each, as tasks write them
            files.write(sorted_by_client(rows.filter(pc.equal(rows["partition"], partition))))
        self._commit(PUSHES.name, files.close())
        commits = list(self.followed.commits(self.position))
        self.position = commits[-1].version
        paths = tuple(path for commit in commits for path in commit.files)
        before = self.state.before(self.number)
        task = ShardTask(str(self.lake), self.number, paths, SHARDS, self.state.uri, before.states)
        shards = pa.record_batch({"id": list(range(SHARDS))})
        results = [row for result in task([shards]) for row in result.to_pylist()]
        self.state.write(before.after(self.number, {row["shard"]: row["state"] for row in results}))
        made = [DataFile.from_json(text) for row in results for text in row["files"]]
        if any(file.table == QUARANTINE.name for file in made):  # as points far from their landing are
            raise SystemExit("pushes of the fleet were quarantined")
        for table in OPERATOR_TABLES:
            self._commit(table.name, [file for file in made if file.table == table.name])
        self.number += 1
        if self.number % LIFECYCLE_EVERY == 0:
            self.lifecycle.step()
        if self.number % UPKEEP_EVERY == 0:
            begun = time.process_time()
            self.upkeep.look(threading.Event(), self.clock().date())
            self.upkeep_cpu_s += time.process_time() - begun

    def _commit(self, name: str, files: list[DataFile]) -> None:
        self.sizes[name] += [file.size for file in files]
        self.logs[name].commit(files, "aged", self.number)


def age(lake: Path, files: int) -> None:
    """Give the tables a history of `DAYS` days, and their logs a day of commits."""
    for table in (PUSHES, *OPERATOR_TABLES):
        folder = lake / table.name
        delta = DeltaTable(str(folder))
        actions = pa.table(delta.get_add_actions()).to_pylist()
        if not actions:
            continue
        template = actions[0]
        count = files if table is METRIC_POINTS else files // 10
        log = folder / "_delta_log"
        lines = json_lines(log)
        (add,) = [line["add"] for line in lines if "add" in line and line["add"]["path"] == template["path"]]
        version = delta.version()
        today = datetime.now(UTC).date()
        for age_days in range(DAYS, 0, -1):
            day = (today - timedelta(days=age_days)).isoformat()
            (folder / f"{LANDED_DATE.name}={day}").mkdir(exist_ok=True)
            adds = []
            original = folder / f"{LANDED_DATE.name}={day}" / "original"
            shutil.copy(folder / add["path"], original)  # a file of ext4 has 65,000 links at most
            for _ in range(count // DAYS):
                path = f"{LANDED_DATE.name}={day}/part-{uuid.uuid4()}.zstd.parquet"
                os.link(original, folder / path)
                changed = {
                    "path": path,
                    "partitionValues": {LANDED_DATE.name: day},
                    "dataChange": False,
                }  # read long ago
                adds.append({"add": add | changed})
            version += 1
            write_commit(log, version, adds)
        delta = DeltaTable(str(folder))
        delta.create_checkpoint()
        for _ in range(86_400 // BATCH_S):
            version += 1
            write_commit(log, version, [])
        DeltaTable(str(folder)).create_checkpoint()


def json_lines(log: Path) -> Iterator[dict[str, Any]]:
    for file in log.glob("*.json"):
        yield from map(json.loads, file.read_text().splitlines())


def write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    about = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}
    (log / f"{version:020d}.json").write_text("\n".join(json.dumps(each) for each in [*actions, about]))


def measure(fresh: Job, aged: Job, batches: int) -> dict[str, float]:
    """Mean CPU and time of a batch in both lakes, the ratio, and how they change from the first quarter to the last."""
    cpu: dict[str, list[float]] = defaultdict(list)
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(WARM + batches):
        for name, job in (("fresh", fresh), ("aged", aged)):
            begun, began = time.process_time(), time.monotonic()
            job.batch()
            if number >= WARM:
                cpu[name].append(time.process_time() - begun)
                took[name].append(time.monotonic() - began)
    quarter = batches // 4
    return {
        **{f"aged_{name}_batch_cpu_s": sum(cpu[name]) / batches for name in cpu},
        **{f"aged_{name}_batch_s": sum(took[name]) / batches for name in took},
        "aged_batch_ratio": sum(cpu["aged"]) / sum(cpu["fresh"]),
        "aged_batch_time_ratio": sum(took["aged"]) / sum(took["fresh"]),
        "aged_last_to_first_quarter": sum(cpu["aged"][-quarter:]) / sum(cpu["aged"][:quarter]),
    }


def live_files_after_a_day(sizes: list[int], batches_s: float = BATCH_S) -> int:
    """Most live files of a day with files of these sizes at full commit rate, merged at every look of the upkeep."""
    live: list[dict[str, Any]] = []
    most, a_look = 0, int(60 / batches_s)
    for first in range(0, int(86_400 / batches_s), a_look):
        for number in range(first * SHARDS, (first + a_look) * SHARDS):
            live.append({"size_bytes": sizes[number % len(sizes)], "partition": ""})
        while (run := next(runs_to_merge(live), None)) is not None:
            live[run] = [{"size_bytes": sum(file["size_bytes"] for file in live[run]), "partition": ""}]
        most = max(most, len(live))
    return most


def seconds(command: list[str]) -> float:
    # Installed modules are compiled once, not at each start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.monotonic()
    done = subprocess.run([*TELEMETRY_LAKE, *command], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--batches", type=int, default=400)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aged-"))
    try:
        run(folder, args.files, args.batches)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, files: int, batches: int) -> None:
    starts = [
        ["ingest", "--source", f"files:{CAPTURED}", "--lake", str(folder / n), "--once"] for n in ("fresh", "aged")
    ]
    for start in starts:
        seconds(start)
    print_figures({"fresh_restart_s": seconds(starts[0])})
    fresh, aged = Job(folder / "fresh"), Job(folder / "aged")
    for job in (fresh, aged):
        job.batch()
    age(aged.lake, files)
    aged.lifecycle.catch_up()
    began = time.monotonic()
    aged.open()
    figures = {"aged_open_s": time.monotonic() - began}
    for table in (PUSHES, METRIC_POINTS):
        log = aged.lake / table.name / "_delta_log"
        figures[f"aged_log_entries_{table.name}"] = len(list(log.iterdir()))
        figures[f"aged_log_mb_{table.name}"] = sum(file.stat().st_size for file in log.iterdir()) / 1e6
    figures |= measure(fresh, aged, batches)
    figures |= {
        f"live_files_after_a_day_{name}": live_files_after_a_day(sizes) for name, sizes in aged.sizes.items() if sizes
    }
    figures["aged_memory_mb"] = psutil.Process().memory_info().rss / 1e6
    print_figures(figures)
    seconds(["query", "--lake", str(fresh.lake), "SELECT 1"])  # compiles modules
    for name, sql in QUESTIONS.items():
        print_figures({f"aged_first_answer_{name}_s": seconds(["query", "--lake", str(aged.lake), sql])})
        print_figures({f"fresh_first_answer_{name}_s": seconds(["query", "--lake", str(fresh.lake), sql])})
    # Reads the day's commits, and judges the pushes of the batches above once more.
    print_figures({"aged_first_restart_s": seconds(starts[1])})
    print_figures({"aged_restart_s": seconds(starts[1])})


if __name__ == "__main__":
    main()
