"""A fleet at its own pace for minutes: lag, freshness of the tables, memory and state over time.

python -m benchmarks.sustained --clients 1000000 --seconds 900          full load: stores figures `sustained_*`
python -m benchmarks.sustained --clients 500000 --seconds 600 --fresh   half load: stores `freshness_*`
python -m benchmarks.sustained --backlog 2000000                        no load, full speed: stores `clients_sustained`
python -m benchmarks.sustained --clients 100000 --seconds 180 --history 100000000   tables start with this many points
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.figures import print_figures, store_runs
from benchmarks.fleet import Fleet
from benchmarks.job import Job, commits, stored_bytes
from benchmarks.load import land
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, METRIC_ROLLUPS_1H, METRIC_ROLLUPS_1M
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

PARTITIONS = 4
INTERVAL_S, POINTS_PER_CLIENT = 300, 100  # by which `clients_sustained` is calculated
WARM_PUSHES = 20_000
SHORTEST_S = 180
COMPILED_S = 300  # by then HotSpot has compiled the code of a batch


def main() -> None:
    parser = argparse.ArgumentParser(description="The job under a fleet's steady load.")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--fresh", action="store_true", help="store the figures of freshness")
    parser.add_argument("--history", type=int, default=0, help="points in the tables before the run")
    parser.add_argument("--backlog", type=int, help="pushes in the topic before the job starts to read")
    arguments = parser.parse_args()
    shortest_s = SHORTEST_S + (COMPILED_S if arguments.fresh else 0)
    if not arguments.backlog and arguments.seconds < shortest_s:
        parser.error(f"--seconds must be at least {shortest_s}")
    with (
        tempfile.TemporaryDirectory(prefix="sustained-") as scratch,
        LocalCluster(landing_partitions=PARTITIONS, heap_mb=512) as cluster,
    ):
        lake = Path(scratch) / "lake"
        if arguments.backlog:
            alone(cluster.bootstrap_servers, lake, arguments.backlog)
        else:
            steady(
                cluster.bootstrap_servers,
                lake,
                arguments.clients,
                arguments.seconds,
                arguments.fresh,
                arguments.history,
            )


def steady(address: str, lake: Path, clients: int, seconds: float, fresh: bool, history: int) -> None:
    """The fleet pushes at its own pace, from its own process, while the job follows."""
    with Job(address, lake) as job:
        _warm(job, address)
        _grow(lake, history)
        watch = _Watch(job)
        begun_ms, cpu, before = time.time_ns() // 1_000_000, job.tree.cpu_s(), job.points()
        load = ["-m", "benchmarks.load", "--bootstrap-servers", address, "--clients", str(clients)]
        output = subprocess.run(
            [sys.executable, *load, "--seconds", str(seconds)], capture_output=True, text=True, check=True
        ).stdout
        figures = dict(line.split(": ") for line in output.splitlines() if ": " in line)
        pushes = WARM_PUSHES + int(figures["pushes"])
        ended = time.monotonic()
        job.wait_for(pushes)
        drained_s = time.monotonic() - ended
        samples, cpu_s = watch.end(), job.tree.cpu_s() - cpu
        points = job.points() - before
        if points != int(figures["points"]):
            raise RuntimeError(f"{points} rows of {figures['points']} points")
        state = sum(file.stat().st_size for file in (lake / "_checkpoints" / "points-state").iterdir())
        checkpoints = sum(file.stat().st_size for file in (lake / "_checkpoints").rglob("*") if file.is_file())
        late = freshness(lake, begun_ms + (COMPILED_S if fresh else 30) * 1000, begun_ms + seconds * 1000)
        minutes = [freshness(lake, at, at + 60_000) for at in range(begun_ms, begun_ms + int(seconds) * 1000, 60_000)]
        lags = lag_by_minute(lake, begun_ms)
        stored = sum(stored_bytes(lake, table) for table in ("pushes", "metric_points", "push_outcomes"))
    by_minute = [round(float(np.median(minute)), 2) for minute in minutes if len(minute)]
    runs: dict[str, Any] = {
        "clients": clients,
        "freshness_p50_s_by_minute": by_minute,
        "load": figures,
        "drained_s": drained_s,
        "cpu_s": cpu_s,
        "lag_s_by_minute": lags,
        "samples": samples,
    }
    store_runs(f"sustained_{clients}" + (f"_history_{history}" if history else ""), runs)
    print(f"lag by minute, s: {lags}")
    print(f"the load itself was late by {figures['late_s']} s")
    print(f"median freshness by minute, s: {by_minute}")
    p50, p95 = np.percentile(late, [50, 95])
    if fresh:
        print_figures({"freshness_p50_s": p50, "freshness_p95_s": p95})
        return
    name = f"sustained_{clients // 1000}k" + (f"_history_{history // 1_000_000}m" if history else "")
    print_figures(
        {
            f"{name}_seconds": seconds,
            f"{name}_points_per_s": points / seconds,
            f"{name}_cores_used": cpu_s / (seconds + drained_s),
            f"{name}_freshness_p50_s": p50,
            f"{name}_freshness_p95_s": p95,
            f"{name}_lag_first_minutes_s": float(np.mean(lags[1:4])),
            f"{name}_lag_last_minutes_s": float(np.mean(lags[-4:-1])),
            f"{name}_peak_rss_mb": max(sample["rss_mb"] for sample in samples),
            f"{name}_rss_at_half_mb": samples[len(samples) // 2]["rss_mb"],
            f"{name}_rss_at_end_mb": samples[-1]["rss_mb"],
            f"{name}_state_mb": state / 2**20,
            f"{name}_checkpoints_mb": checkpoints / 2**20,
        }
    )
    if not history:
        day = stored / (pushes / (clients / INTERVAL_S)) * 86_400
        print_figures({f"{name}_storage_gb_per_day": day / 1e9})


def alone(address: str, lake: Path, backlog: int) -> None:
    """The job processes a backlog of a million clients; only the broker runs beside it."""
    with Job(address, lake) as job:
        _warm(job, address)
        fleet = Fleet(1_000_000, time.time_ns() // 1_000_000 - 1_000_000)
        with job.paused():  # until all pushes have landed
            points = land(address, fleet, 0, backlog)
            before, cpu, begun = job.points(), job.tree.cpu_s(), time.monotonic()
            watch = _Watch(job)
        job.wait_for(WARM_PUSHES + backlog)
        seconds, cpu_s = time.monotonic() - begun, job.tree.cpu_s() - cpu
        if job.points() - before != points:
            raise RuntimeError(f"{job.points() - before} rows of {points} points")
        peak = job.tree.peak_rss_bytes
        samples = watch.end()
        state = sum(file.stat().st_size for file in (lake / "_checkpoints" / "points-state").iterdir())
    store_runs(f"backlog_{backlog}", {"pushes": backlog, "points": points, "samples": samples})
    print_figures(
        {
            "backlog_pushes": backlog,
            "backlog_seconds": seconds,
            "backlog_points_per_s": points / seconds,
            "backlog_points_per_cpu_s": points / cpu_s,
            "backlog_peak_rss_mb": peak / 2**20,
            "backlog_rss_at_half_mb": samples[len(samples) // 2]["rss_mb"],
            "backlog_rss_at_end_mb": samples[-1]["rss_mb"],
            "backlog_state_mb": state / 2**20,
            "clients_sustained": points / seconds / POINTS_PER_CLIENT * INTERVAL_S,
        }
    )


def freshness(lake: Path, from_ms: float, to_ms: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds from landed to queryable, of each push that landed in this period."""
    late = [np.zeros(0)]
    for commit in commits(lake):
        landed = commit.landed_ms.to_numpy(zero_copy_only=False)
        chosen = (landed >= from_ms) & (landed < to_ms)
        late.append((commit.committed_ms - landed[chosen]) / 1000)
    return np.concatenate(late)


def lag_by_minute(lake: Path, begun_ms: int) -> list[float]:
    """For each minute of the run, how far behind its oldest push the commits of that minute were, s."""
    minutes: dict[int, float] = {}
    for commit in commits(lake):
        minute = (commit.committed_ms - begun_ms) // 60_000
        if minute >= 0 and len(commit.landed_ms):
            oldest = (commit.committed_ms - int(commit.landed_ms.to_numpy(zero_copy_only=False).min())) / 1000
            minutes[minute] = max(minutes.get(minute, 0.0), oldest)
    return [round(minutes[minute], 1) for minute in sorted(minutes)]


def _warm(job: Job, address: str) -> None:
    """Process pushes of other clients than the run's, so that the JVM compiles its loops."""
    land(address, Fleet(WARM_PUSHES, time.time_ns() // 1_000_000 - 400_000), 0, WARM_PUSHES)
    job.wait_for(WARM_PUSHES)


def _grow(lake: Path, points: int) -> None:
    """Append the tables' own rows repeatedly, until there are this many points and the rollups that belong to them."""
    existing = DeltaTable(lake / METRIC_POINTS.name).count()
    for table in (METRIC_POINTS, METRIC_ROLLUPS_1M, METRIC_ROLLUPS_1H):
        paths = DeltaTable(lake / table.name).file_uris()
        texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
        parts = [pq.read_table(path, partitioning=None, read_dictionary=texts) for path in paths]
        rows = pa.concat_tables(parts, promote_options="default")
        for number in range(max(0, points - existing) // existing):
            files = TableFiles(table, str(lake))
            files.write(rows)
            TableLog(table, str(lake)).commit(files.close(), "history", number)


class _Watch:
    """Samples memory and CPU every 10 s."""

    def __init__(self, job: Job) -> None:
        self._job, self._samples, self._end = job, list[dict[str, float]](), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> list[dict[str, float]]:
        self._end.set()
        self._thread.join()
        return self._samples

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._end.wait(10):
            sample = {"second": time.monotonic() - begun, "cpu_s": self._job.tree.cpu_s()}
            self._samples.append(sample | {"rss_mb": self._job.tree.rss_bytes / 2**20})


if __name__ == "__main__":
    main()
