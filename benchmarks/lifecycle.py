"""The cost of the client lifecycle by the number of known clients: CPU of a step and of merging its table, memory.

A step covers ten seconds of a fleet at the default push interval of five minutes, so one client in thirty has pushed.
Clients are processed in the driver, or in tasks: one more process, which has all shards, so the figures of both add
up to all work. Spark itself isn't in it.

    python -m benchmarks.lifecycle     prints each figure and stores it in benchmarks/results.json
    python -m benchmarks.lifecycle --clients 10000000 --in-tasks     takes a quarter of an hour and 10 GB
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.lifecycle import follower
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import ShardsTask
from kafka_telemetry_lake.pipelines.runtime.python_worker import release_memory
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table

INTERVAL_MS = 300_000
STEP_US = 10_000_000
STEPS, WARM = 8, 2
SHARDS = 2
PARTITIONS = 12
LANDED_AT_ONCE = 100_000
JOB_US_PER_POINT, POINTS_PER_PUSH = 4.1, 102  # of the whole job, measured once
START_US = 1_790_000_000_000_000


class Fleet:
    """Clients that push in turn, each once per interval, into a lake."""

    def __init__(self, size: int, lake: str) -> None:
        ids = np.random.default_rng(7).bytes(16 * size)
        texts = [urlsafe_b64encode(ids[16 * i : 16 * i + 16])[:22].decode() for i in range(size)]
        self.ids = pa.array(texts)
        self.client_ids = pa.array([f"app-{i % 5000}-{i}" for i in range(size)])
        self.addresses = pa.array([f"10.{i >> 12 & 255}.{i >> 4 & 255}.{i & 15}" for i in range(size)])
        self.size, self._lake, self.offset, self.commits = size, lake, 0, 0
        for table in (PUSHES, PUSH_OUTCOMES):
            table.create(lake)

    def land(self, first: int, count: int, now: int) -> None:
        """Let clients push, and commit that."""
        rows = np.arange(first, first + count) % self.size
        taken, repeat = pa.array(rows), pa.repeat
        self.offset += count
        columns = {
            "source": repeat("kafka", count), "cluster_id": repeat("c", count), "topic": repeat("t", count),
            "partition": pa.array(rows % PARTITIONS), "offset": pa.array(self.offset + np.arange(count)),
            "landed_at": pa.array(now + np.arange(count) * STEP_US // count), "client_id": self.client_ids.take(taken),
            "client_instance_id": self.ids.take(taken), "client_address": self.addresses.take(taken),
            "client_software_name": repeat("apache-kafka-java", count), "principal": repeat("User:app", count),
            "client_software_version": repeat("4.3.1", count), "client_port": pa.array(rows % 60_000),
            "broker_id": pa.array(rows % 9), "push_interval_ms": repeat(INTERVAL_MS, count),
            "terminating": repeat(False, count), "outcome": repeat("points", count),
        }  # fmt: skip
        labels = [[("group_id", f"g-{i % 5000}"), ("group_member_id", f"m-{i}")] for i in rows.tolist()]
        columns["labels"] = pa.array(labels, PUSH_OUTCOMES.schema.field("labels").type)
        self.commits += 1
        for table in (PUSHES, PUSH_OUTCOMES):
            self._commit(table, {name: columns[name] for name in table.schema.names if name in columns}, count)

    def _commit(self, table: Table, columns: dict[str, Any], count: int) -> None:
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in table.schema
        ]
        files = TableFiles(table, self._lake)
        files.write(pa.table(arrays, table.schema))
        TableLog(table, self._lake).commit(files.close(), "fleet", self.commits)


@cache
def the_fleet(size: int, lake: str) -> Fleet:
    """One for each process: to make ten million clients takes a while."""
    return Fleet(size, lake)


def land(size: int, lake: str, begun: int, count: int) -> None:
    """Let a fleet push: at first each client, so many at once; later those of some steps."""
    fleet = the_fleet(size, lake)
    if not begun:
        for first in range(0, size, LANDED_AT_ONCE):
            fleet.land(first, min(LANDED_AT_ONCE, size - first), START_US)
    fleet.offset, fleet.commits = size * (1 + begun), 1_000_000 * begun
    for number in range(begun, begun + count):
        fleet.land(number * size // 30, size // 30, START_US + number * STEP_US)


class Tasks:
    """Runs tasks in a process of its own, and knows what CPU time they took."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()

    def __call__(self, task: ShardsTask) -> Sequence[Any]:
        rows, spent = self._pool.submit(run_task, task).result()
        self.cpu_s += spent
        return rows


def run_task(task: ShardsTask) -> tuple[list[dict[str, Any]], float]:
    """Rows of a task, and the CPU time that it took, s."""
    before = time.process_time()
    batch = pa.RecordBatch.from_pydict({"id": list(range(task.shards))})
    rows = [row for each in task(iter([batch])) for row in each.to_pylist()]
    return rows, time.process_time() - before


def measure(size: int, in_tasks: bool) -> dict[str, float]:
    """Figures of a fleet of this size, of a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, size, in_tasks).result()


def _measure(size: int, in_tasks: bool) -> dict[str, float]:
    follower.MOST_IN_PROCESS = -1
    tasks, maker = Tasks(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with tempfile.TemporaryDirectory() as lake, tempfile.TemporaryDirectory() as local, maker:
        os.environ["SPARK_LOCAL_DIRS"] = local

        def landed(begun: int, count: int) -> None:
            maker.submit(land, size, lake, begun, count).result()

        landed(0, 0)
        before = resident_after_release()
        lifecycle = Lifecycle(lake, tasks=(SHARDS, tasks) if in_tasks else None)
        first = _spent(lifecycle, tasks)
        landed(1, WARM)
        _spent(lifecycle, tasks)
        spent = []
        for number in range(STEPS):
            landed(1 + WARM + number, 1)
            spent.append(_spent(lifecycle, tasks))
        driver, task = np.median(spent, axis=0)
        remembered = resident_after_release() - before
        texts = sum(each.stat().st_size for each in Path(local).rglob("*") if each.is_file())
        vars(follower).update(LEAST_CHANGES=0, MOST_FILES=0)
        landed(1 + WARM + STEPS, 1)
        merge = np.sum(_spent(lifecycle, tasks)) - driver - task
        tasks.close()
    return {
        "driver_cpu_s": driver, "tasks_cpu_s": task, "us_per_push": 1e6 * (driver + task) / (size // 30),
        "share_of_job_percent": 100 * 1e6 * (driver + task) / (size // 30) / (JOB_US_PER_POINT * POINTS_PER_PUSH),
        "first_seen_us_per_client": 1e6 * sum(first) / size, "merge_cpu_s": merge,
        "driver_mb": remembered / 1e6, "disk_mb": texts / 1e6,
    }  # fmt: skip


def _spent(lifecycle: Lifecycle, tasks: Tasks) -> tuple[float, float]:
    """CPU time, s, of the driver and of tasks, to take what has landed."""
    driver, task = time.process_time(), tasks.cpu_s
    lifecycle.catch_up()
    return time.process_time() - driver, tasks.cpu_s - task


def resident_after_release() -> float:
    """Bytes of memory of this process."""
    gc.collect()
    release_memory()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--in-tasks", action="store_true", help="only in tasks")
    args = parser.parse_args()
    for size in args.clients:
        for in_tasks in (True,) if args.in_tasks else (False, True):
            name = f"lifecycle_{size}_clients" + "_in_tasks" * in_tasks
            print_figures({f"{name}_{figure}": value for figure, value in measure(size, in_tasks).items()})


if __name__ == "__main__":
    main()
