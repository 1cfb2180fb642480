"""What bad clients, or a badly made topic, cost the job: CPU beside the fleet alone, and what they add to its load.

A bad load is the fleet's own pushes with others among them, or bad ones alone. Its cost is a ratio to the fleet alone,
and so are its points and landed bytes: one that costs no more than its share has a cost below the larger of the two.

python -m benchmarks.bad_loads     prints each figure and keeps it in benchmarks/results.json
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.figures import keep_runs, tell
from benchmarks.fleet import Fleet, Landing, instance_id
from benchmarks.job import Job
from benchmarks.load import Lander
from jobs.local_cluster import LocalCluster

CLIENTS, PUSHES = 20_000, 30_000
CAP_BYTES = 1_000_000  # telemetry.max.bytes is 1 MiB; the rest is for the record's headers
PARTITIONS = 4
WARM_ROUNDS = 6
HOG = instance_id(-1 & 0xFFFFFFFF)
Load = Callable[[Fleet, int], Iterator[Landing]]


def fleet_alone(fleet: Fleet, first: int) -> Iterator[Landing]:
    """What the others are compared with."""
    return fleet.landings(first, first + PUSHES)


def one_client_pushes_without_pause(fleet: Fleet, first: int) -> Iterator[Landing]:
    """One client more, which pushes thousands of times as often as the others: a third of the fleet's pushes."""
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
    """100,000 attribute sets that no other point has: an attribute more on every point of every 32nd push."""
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
    """Pushes of 1 MB and no others: a client's metrics again and again in one payload."""
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
    keep_runs("bad_loads", runs)
    base = runs.pop("fleet_alone")
    tell(
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
                with job.paused():  # full batches of each: their cost is not what is compared
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
