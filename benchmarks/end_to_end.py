"""The whole job as shipped, in data points per CPU-second, compared with the Collector and a naive Spark job.

Every round lands the same pushes for all sides before they start to read. The warm job is paused meanwhile, and then
reads them in batches as large as its defaults allow. The Collector and the naive job read a separate topic. CPU time is
that of all processes of a side, without the start-up of the two Spark jobs. At the end the job alone follows a tenth of
the full load.

    python -m benchmarks.end_to_end     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures, store_runs
from benchmarks.fleet import Fleet, describe
from benchmarks.job import Job, stored_bytes
from benchmarks.load import land, land_at_pace
from benchmarks.peers.collector import build_collector, run_collector
from benchmarks.peers.naive_spark import run_naive_spark
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

CLIENTS = 200_000
PUSHES, WARM_ROUNDS = 50_000, 8
PACE_S = 60
PARTITIONS = 4
PEERS = ("collector", "naive_spark")


def main() -> None:
    """Measure all sides, and print and store the figures."""
    parser = argparse.ArgumentParser(description="End-to-end cost beside the peers.")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    build_collector()
    runs: dict[str, Any] = {"fleet": describe(), **{side: [] for side in ("job", *PEERS)}}
    with (
        tempfile.TemporaryDirectory(prefix="end-to-end-") as scratch,
        LocalCluster(landing_partitions=PARTITIONS, heap_mb=512) as cluster,
    ):
        folder, address = Path(scratch), cluster.bootstrap_servers
        fleet = Fleet(CLIENTS, time.time_ns() // 1_000_000 - 600_000)
        with Job(address, folder / "lake") as job:
            done = _warm(job, address, fleet)
            for number in range(rounds):
                # Spark ends Python workers after an idle minute, and the peers take longer: one round starts new ones.
                _measured(job, address, fleet, done, done + PUSHES)
                done += PUSHES
                runs["job"].append(_measured(job, address, fleet, done, done + PUSHES))
                topic = f"round-{number}"
                cluster.create_topic(topic, PARTITIONS)
                points = land(address, fleet, done, done + PUSHES, topic)
                done += PUSHES
                collector = run_collector(address, topic, points, folder / f"collector-{number}")
                naive = run_naive_spark(address, topic, points, folder / f"naive-{number}")
                for result in (collector, naive):
                    runs[result.name].append(dataclasses.asdict(result))
                for side in ("job", *PEERS):
                    print(f"round {number}, {side}: {runs[side][-1]}", flush=True)
                cluster.delete_topic(topic)
            runs["job_at_a_tenth"] = _at_a_tenth(job, address)
            sizes = {name: stored_bytes(job.lake, name) for name in TABLES}
            points = job.points()
    store_runs("end_to_end", runs)
    ours = statistics.median(run["points"] / run["cpu_s"] for run in runs["job"])
    theirs = {name: statistics.median(run["points_read"] / run["cpu_s"] for run in runs[name]) for name in PEERS}
    tenth = runs["job_at_a_tenth"]
    print_figures(
        {
            "end_to_end_points_per_cpu_s": ours,
            "end_to_end_points_per_cpu_s_at_a_tenth": tenth["points"] / tenth["cpu_s"],
            **{f"end_to_end_{name}_points_per_cpu_s": per_cpu_s for name, per_cpu_s in theirs.items()},
            **{f"end_to_end_vs_{name}": ours / per_cpu_s for name, per_cpu_s in theirs.items()},
            "end_to_end_peak_rss_mb": max(run["peak_rss_bytes"] for run in runs["job"]) / 2**20,
            "bytes_per_point": sizes["metric_points"] / points,
            "bytes_per_point_all_tables": sum(sizes.values()) / points,
        }
    )


TABLES = ("pushes", "metric_points", "push_outcomes", "metric_rollups_1m", "metric_rollups_1h")


def _warm(job: Job, address: str, fleet: Fleet) -> int:
    """Land some loads like the measured ones, until the JVM has compiled the hot code."""
    for number in range(WARM_ROUNDS):
        land(address, fleet, number * PUSHES, (number + 1) * PUSHES)
        job.wait_for((number + 1) * PUSHES)
    return WARM_ROUNDS * PUSHES


def _measured(job: Job, address: str, fleet: Fleet, first: int, last: int) -> dict[str, float]:
    with job.paused():
        landed = land(address, fleet, first, last)
        points, cpu, begun = job.points(), job.tree.cpu_s(), time.monotonic()
    job.wait_for(last)
    seconds = time.monotonic() - begun
    time.sleep(2)  # includes the work that a batch does after its commit
    if job.points() - points != landed:
        raise RuntimeError(f"{job.points() - points} rows of {landed} points")
    return {
        "points": landed,
        "cpu_s": job.tree.cpu_s() - cpu,
        "seconds": seconds,
        "peak_rss_bytes": job.tree.peak_rss_bytes,
    }


def _at_a_tenth(job: Job, address: str) -> dict[str, float]:
    """A fleet of 100,000 clients, a tenth of the full load, at its own pace: 333 pushes per second.

    The JVM compiles other code for small batches, so the warm-up takes as long as the measurement.
    """
    before = job.pushes()
    pushes, _, _ = land_at_pace(address, Fleet(100_000, time.time_ns() // 1_000_000), 0, PACE_S)
    job.wait_for(before + pushes)
    before, stored, cpu = job.pushes(), job.points(), job.tree.cpu_s()
    fleet = Fleet(100_000, time.time_ns() // 1_000_000)
    pushes, points, _ = land_at_pace(address, fleet, 0, PACE_S)
    job.wait_for(before + pushes)
    if job.points() - stored != points:
        raise RuntimeError(f"{job.points() - stored} rows of {points} points")
    return {"points": points, "pushes": pushes, "cpu_s": job.tree.cpu_s() - cpu, "seconds": PACE_S}


if __name__ == "__main__":
    main()
