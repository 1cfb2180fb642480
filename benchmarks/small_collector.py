"""The Collector under small fleets at their own pace: its cores from the sixth to the tenth minute.

    python -m benchmarks.small_collector     prints each figure and stores it in benchmarks/results.json

`benchmarks.peers.collector.Collector` can as well follow the job's topic during the job's own measurement.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet, captured_templates
from benchmarks.load import land_at_pace
from benchmarks.peers.collector import Collector, build_collector
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

FLEETS = {"1k": 1_000, "10k": 10_000}
WARM_S, MEASURED_S = 300, 300
PARTITIONS = 4


def collector_cores(
    bootstrap_servers: str, topic: str, clients: int, folder: Path, warm_s: float, measured_s: float
) -> float:
    """Land a fleet in `topic` at its own pace; CPU-seconds per second of the Collector that follows it."""
    fleet = Fleet(clients, time.time_ns() // 1_000_000)
    with Collector(bootstrap_servers, topic, folder) as collector:
        pushes, points, _ = land_at_pace(bootstrap_servers, fleet, 0, warm_s, topic)
        collector.wait_for(points)
        cpu_s, begun = collector.tree.cpu_s(), time.monotonic()
        _, more, _ = land_at_pace(bootstrap_servers, fleet, pushes, measured_s, topic)
        collector.wait_for(points + more)
        return (collector.tree.cpu_s() - cpu_s) / (time.monotonic() - begun)


def main() -> None:
    """Measure all fleets at the same time, each in a topic of its own."""
    build_collector()
    captured_templates()
    with (
        tempfile.TemporaryDirectory(prefix="small-collector-") as scratch,
        LocalCluster(heap_mb=512) as cluster,
        ThreadPoolExecutor(len(FLEETS)) as threads,
    ):
        cores = {}
        for name, clients in FLEETS.items():
            cluster.create_topic(name, PARTITIONS)
            cores[name] = threads.submit(
                collector_cores, cluster.bootstrap_servers, name, clients, Path(scratch) / name, WARM_S, MEASURED_S
            )
        print_figures({f"collector_small_{name}_cores": each.result() for name, each in cores.items()})


if __name__ == "__main__":
    main()
