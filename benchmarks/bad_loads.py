"""The cost to the job of unusual clients, or of a badly configured topic, relative to the normal fleet.

A bad load is the fleet's pushes mixed with others, or bad pushes alone. Its CPU, points and landed bytes are given as
ratios to the fleet alone. A load is proportional if its CPU ratio is below the larger of the other two.

python -m benchmarks.bad_loads     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.figures import print_figures, store_runs
from benchmarks.fleet import Fleet, Landing, instance_id
from benchmarks.job import Job
from benchmarks.load import Lander
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

CLIENTS, PUSHES = 20_000, 30_000
CAP_BYTES = 1_000_000  # telemetry.max.bytes is 1 MiB; the rest is for the record's headers
PARTITIONS = 4
WARM_ROUNDS = 6
HOG = instance_id(-1 & 0xFFFFFFFF)
Load = Callable[[Fleet, int], Iterator[Landing]]


def fleet_alone(fleet: Fleet, first: int) -> Iterator[Landing]:
    """The baseline: the fleet's pushes and no others."""
    return fleet.landings(first, first + PUSHES)


def one_client_pushes_without_pause(fleet: Fleet, first: int) -> Iterator[Landing]:
    """An additional client that pushes thousands of times as often as the others: one push per three of the fleet's."""
    between_ns = 3 * fleet.interval_ns // fleet.clients
    hog = Fleet(1, fleet.landing(first).landed_ms, between_ns / 1e9)
    for number, landing in enumerate(fleet.landings(first, first + PUSHES)):
        yield landing
        if number % 3 == 0:
            own = hog.landing(number // 3)
            yield dataclasses.replace(
                own, client_instance_id=HOG, headers=[*own.headers, ("client_instance_id", HOG.encode())]
            )


def many_attribute_sets(fleet: Fleet, first: int) -> Iterator[Landing]:
    """100,000 unique attribute sets: every point of every 32nd push has an additional attribute."""
    for number, landing in enumerate(fleet.landings(first, first + PUSHES)):
        if number % 32:
            yield landing
            continue
        data = MetricsData.FromString(landing.payload)
        points = 0
        for resource in data.resource_metrics:
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    point.attributes.add(key="request").value.string_value = f"{number}-{points}"
                    points += 1
        yield dataclasses.replace(landing, payload=data.SerializeToString(), points=points)


def every_payload_at_the_cap(fleet: Fleet, first: int) -> Iterator[Landing]:
    """Only pushes of 1 MB: a client's metrics, repeated within one payload."""
    for landing in fleet.landings(first, first + PUSHES // 40):
        times = CAP_BYTES // len(landing.payload)
        yield dataclasses.replace(landing, payload=landing.payload * times, points=landing.points * times)


LOADS: tuple[Load, ...] = (
    fleet_alone,
    one_client_pushes_without_pause,
    many_attribute_sets,
    every_payload_at_the_cap,
)


def main() -> None:
    """Measure each load on a warm job, then the fleet on a topic with one partition."""
    runs: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bad-loads-") as scratch:
        with LocalCluster(landing_partitions=PARTITIONS, heap_mb=512) as cluster:
            runs |= _measure(cluster.bootstrap_servers, Path(scratch) / "lake", LOADS)
        with LocalCluster(landing_partitions=1, heap_mb=512) as cluster:
            alone = _measure(cluster.bootstrap_servers, Path(scratch) / "one", (fleet_alone,))
            runs["one_partition"] = alone["fleet_alone"]
    store_runs("bad_loads", runs)
    base = runs.pop("fleet_alone")
    print_figures(
        {
            f"bad_load_{name}_{figure}": run[figure] / base[figure]
            for name, run in runs.items()
            for figure in ("cpu_s", "points", "bytes", "peak_rss_mb")
        }
    )


def _measure(address: str, lake: Path, loads: tuple[Load, ...]) -> dict[str, dict[str, float]]:
    fleet = Fleet(CLIENTS, time.time_ns() // 1_000_000 - 1_000_000)
    runs = {}
    with Job(address, lake) as job:
        first = 0
        for warm in (*[True] * WARM_ROUNDS, False):
            for load in loads if not warm else (fleet_alone,):
                before, points = job.pushes(), job.points()
                pushes = expected = size = 0
                with job.paused():  # so that every load is read in full batches
                    lander = Lander(address)
                    for landing in load(fleet, first):
                        lander.land(landing)
                        pushes, expected, size = pushes + 1, expected + landing.points, size + len(landing.payload)
                    lander.close()
                    cpu, job.tree.peak_rss_bytes = job.tree.cpu_s(), 0
                job.wait_for(before + pushes)
                time.sleep(2)
                first += PUSHES
                stored = job.points() - points
                if stored != expected:
                    raise RuntimeError(f"{load.__name__}: {stored} rows of {expected} points")
                if not warm:
                    runs[load.__name__] = {
                        "points": expected,
                        "bytes": size,
                        "cpu_s": job.tree.cpu_s() - cpu,
                        "peak_rss_mb": job.tree.peak_rss_bytes / 2**20,
                    }
                    print(f"{load.__name__}: {runs[load.__name__]}", flush=True)
    return runs


if __name__ == "__main__":
    main()
