"""The whole job as shipped, in data points per CPU-second, compared with its peers.

Each load shape of `benchmarks.shapes` is measured with several numbers of waiting points, so that the fixed cost of a
round and the cost of a point can be told apart. The warm job is paused while a round's pushes land, and then reads them
in batches as large as its defaults allow. The peers (`benchmarks.peers`) read the same pushes from a separate topic.
CPU time is that of all processes of a side, without the start-up of the two Spark jobs. After the stock fleet the job
alone follows a tenth of the full load.

    python -m benchmarks.end_to_end                              prints and stores each figure
    python -m benchmarks.end_to_end --shapes once --sizes 500k   a part of it; stores nothing
    python -m benchmarks.comparison                              writes the tables of benchmarks/README.md
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.comparison import Round, figures
from benchmarks.figures import print_figures, store_runs
from benchmarks.fleet import Fleet, describe
from benchmarks.job import Job, stored_bytes
from benchmarks.load import land, land_at_pace
from benchmarks.peers import PeerResult
from benchmarks.peers.collector import build_collector, run_collector
from benchmarks.peers.naive_spark import run_naive_spark
from benchmarks.peers.rust import build_rust, run_rust
from benchmarks.shapes import SHAPES, SIZES, STOCK, Shape
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

WARM_ROUNDS = 8  # of the first shape at the largest size, until the JVM has compiled the hot code
# Lands before each round: Spark ends Python workers after an idle minute, and the peers take longer.
UNMEASURED = "2m"
# Of other shapes than the stock fleet: the naive job takes more than a minute for five million points.
NAIVE_AT_MOST = "2m"
PACE_S = 60
PARTITIONS = 4
ROLLUPS = ("metric_rollups_1m", "metric_rollups_1h")
TABLES = ("pushes", "metric_points", "push_outcomes", *ROLLUPS)
PEERS: dict[str, Callable[[str, str, int, Path], PeerResult]] = {
    "collector": run_collector,
    "collector_tuned": functools.partial(run_collector, tuned=True),
    "rust": run_rust,
    "naive_spark": run_naive_spark,
}


def main() -> None:
    """Measure all sides, and print and store the figures."""
    parser = argparse.ArgumentParser(description="End-to-end cost beside the peers.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shapes", nargs="+", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if options.shapes is None or shape.name in options.shapes]
    is_whole = (len(shapes), len(options.sizes), len(options.peers)) == (len(SHAPES), len(SIZES), len(PEERS))
    if {"collector", "collector_tuned"} & set(options.peers):
        build_collector()
    if "rust" in options.peers:
        build_rust()
    rounds: list[Round] = []
    runs: dict[str, Any] = {"fleet": describe(), "shapes": {shape.name: shape.meaning for shape in shapes}}
    of_job: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="end-to-end-") as scratch,
        LocalCluster(landing_partitions=PARTITIONS, heap_mb=512) as cluster,
        Job(cluster.bootstrap_servers, Path(scratch) / "lake") as job,
    ):
        for shape in shapes:
            print(f"{shape.name}: {shape.meaning}", flush=True)
            warm_rounds = WARM_ROUNDS if shape is shapes[0] else 0
            before = _stored(job)
            for each in _rounds(cluster, job, shape, options, warm_rounds, Path(scratch)):
                rounds.append(each)
                print(f"  {each}", flush=True)
            if shape is STOCK and is_whole:
                runs["job_at_a_tenth"] = tenth = _at_a_tenth(job, cluster.bootstrap_servers)
                of_job["end_to_end_points_per_cpu_s_at_a_tenth"] = tenth["points"] / tenth["cpu_s"]
            prefix = "" if shape is STOCK else f"end_to_end_{shape.name}_"
            of_job |= {prefix + name: value for name, value in _bytes_per_point(before, _stored(job)).items()}
    compared = figures(rounds) | of_job
    if is_whole:
        store_runs("end_to_end", runs | {"rounds": [dataclasses.asdict(each) for each in rounds]})
        print_figures(compared)
    else:
        for name, value in compared.items():
            print(f"{name}: {value:.4g}")


def _rounds(
    cluster: LocalCluster,
    job: Job,
    shape: Shape,
    options: argparse.Namespace,
    warm_rounds: int,
    scratch: Path,
) -> Iterator[Round]:
    """Each side's rounds of a shape. The job reads all sizes before the peers start, so its Python workers live on."""
    of_size = {size: shape.pushes(points) for size, points in SIZES.items()}
    warm = max(of_size[size] for size in options.sizes)
    of_round = of_size[UNMEASURED] + sum(of_size[size] for size in options.sizes)
    fleet, plain = shape.fleets(warm_rounds * warm + options.rounds * of_round)
    address, done = cluster.bootstrap_servers, 0
    for _ in range(warm_rounds):
        _measured(job, address, fleet, done, done + warm)
        done += warm
    for number in range(options.rounds):
        _measured(job, address, fleet, done, done + of_size[UNMEASURED])
        done += of_size[UNMEASURED]
        first = done
        for size in options.sizes:
            yield Round(shape.name, size, "job", **_measured(job, address, fleet, done, done + of_size[size]))
            done += of_size[size]
        for size in options.sizes:
            topic = f"{shape.name}-{size}-{number}"
            cluster.create_topic(topic, PARTITIONS)
            points = land(address, plain, first, first + of_size[size], topic)
            first += of_size[size]
            for name in options.peers:
                if name == "naive_spark" and shape is not STOCK and SIZES[size] > SIZES[NAIVE_AT_MOST]:
                    continue
                result = PEERS[name](address, topic, points, scratch / name)
                shutil.rmtree(scratch / name)
                yield Round(
                    shape.name, size, name, result.points_read, result.cpu_s, result.seconds, result.peak_rss_bytes
                )
            cluster.delete_topic(topic)


def _measured(job: Job, address: str, fleet: Fleet, first: int, last: int) -> dict[str, Any]:
    with job.paused():
        landed = land(address, fleet, first, last)
        pushes, points, cpu, begun = job.pushes(), job.points(), job.tree.cpu_s(), time.monotonic()
        job.tree.peak_rss_bytes = 0
    job.wait_for(pushes + last - first)
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


def _stored(job: Job) -> Counter[str]:
    """Bytes of each table, and the number of points; none while the job starts."""
    points = job.points()
    return Counter({name: stored_bytes(job.lake, name) for name in TABLES} | {"points": points} if points else {})


def _bytes_per_point(before: Counter[str], after: Counter[str]) -> dict[str, float]:
    sizes = {name: after[name] - before[name] for name in TABLES}
    points = after["points"] - before["points"]
    return {
        "bytes_per_point": sizes["metric_points"] / points,
        "bytes_per_point_all_tables": sum(sizes.values()) / points,
        "rollup_bytes_share": sum(sizes[name] for name in ROLLUPS) / sizes["metric_points"],
    }


if __name__ == "__main__":
    main()
