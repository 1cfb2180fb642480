"""What a small fleet costs: the job's cores at idle, at 1,000 and at 10,000 clients, its start and its freshness.

python -m benchmarks.small              all three fleets, ten minutes each
python -m benchmarks.small --clients 0  one of them: 0, 1000 or 10000
python -m benchmarks.small --start      only the first two minutes of 10,000 clients

Three receivers report their status every ten seconds, as the plugin does by default. The cores are those of the sixth
to tenth minute after the job's start. The start is the CPU time of the first two minutes, JVM start and compilation
included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks.figures import print_figures, store_runs
from benchmarks.job import Job
from benchmarks.sustained import freshness
from kafka_telemetry_lake.sandbox.cluster import LocalCluster

SECONDS = 600
WARM_S = 300
START_S = 120
STATUS_S = 10  # the plugin's status.interval.ms
RECEIVERS = 3
LOOK_S = 0.25
FLEETS = (0, 1000, 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description="The job under a small fleet's load.")
    parser.add_argument("--clients", type=int, choices=FLEETS, action="append")
    parser.add_argument("--start", action="store_true")
    arguments = parser.parse_args()
    if arguments.start:
        with tempfile.TemporaryDirectory(prefix="small-") as scratch, LocalCluster(landing_partitions=4) as cluster:
            print_figures(start(cluster.bootstrap_servers, Path(scratch) / "lake"))
        return
    for clients in arguments.clients or FLEETS:
        with tempfile.TemporaryDirectory(prefix="small-") as scratch, LocalCluster(landing_partitions=4) as cluster:
            print_figures(small(cluster.bootstrap_servers, Path(scratch) / "lake", clients))


def small(address: str, lake: Path, clients: int) -> dict[str, float]:
    """Figures of ten minutes of the job from its start, beside a fleet at its own pace."""
    samples: list[tuple[float, float, float]] = []  # seconds, CPU-seconds, MB
    first_row_s = None
    with _fleet(address, clients), _receivers(address), Job(address, lake) as job:
        begun, begun_ms = time.monotonic(), time.time() * 1000
        while (now := time.monotonic() - begun) < SECONDS:
            job.check()
            if first_row_s is None and job.points():
                first_row_s = now
            samples.append((now, job.tree.cpu_s(), job.tree.rss_bytes / 2**20))
            time.sleep(LOOK_S if first_row_s is None and clients else 5)
        late = freshness(lake, begun_ms + 1000 * WARM_S, begun_ms + 1000 * SECONDS)
    seconds, cpu_s, rss_mb = np.array(samples).T
    store_runs(f"small_{clients}", {"clients": clients, "samples": samples})
    cores = (cpu_s[-1] - np.interp(WARM_S, seconds, cpu_s)) / (seconds[-1] - WARM_S)
    if not clients:
        return {"idle_cores": cores, "idle_rss_mb": float(rss_mb.max())}
    name = f"small_{clients // 1000}k"
    p50, p95 = np.percentile(late, [50, 95])
    figures = {
        f"{name}_cores": cores,
        f"{name}_rss_mb": float(rss_mb.max()),
        f"{name}_freshness_p50_s": p50,
        f"{name}_freshness_p95_s": p95,
    }
    if clients == max(FLEETS):
        figures["small_start_cpu_s"] = float(np.interp(START_S, seconds, cpu_s))
        figures["first_visible_row_s"] = first_row_s or float("nan")
    return figures


def start(address: str, lake: Path) -> dict[str, float]:
    """CPU-s of the job's first two minutes beside the largest fleet, and when its first row is visible."""
    first_row_s = float("nan")
    with _fleet(address, max(FLEETS)), _receivers(address), Job(address, lake) as job:
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < START_S:
            job.check()
            if np.isnan(first_row_s) and job.points():
                first_row_s = now
            time.sleep(LOOK_S)
        return {"small_start_cpu_s": job.tree.cpu_s(), "first_visible_row_s": first_row_s}


@contextmanager
def _fleet(address: str, clients: int) -> Iterator[None]:
    """A fleet that pushes at its own pace, in a process of its own."""
    if not clients:
        yield
        return
    load = ["-m", "benchmarks.load", "--bootstrap-servers", address, "--clients", str(clients)]
    process = subprocess.Popen(
        [sys.executable, *load, "--seconds", str(SECONDS + 60)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _receivers(address: str) -> Iterator[None]:
    """Brokers' receivers that report their status."""
    end = threading.Event()

    def report() -> None:
        producer = Producer({"bootstrap.servers": address})
        number = 0
        while not end.wait(STATUS_S / RECEIVERS):
            number += 1
            now = time.time_ns() // 1_000_000
            status = {"version": 1, "broker_id": number % RECEIVERS, "time_ms": now, "started_ms": 0, "received": 0}
            producer.produce("client-telemetry-status", json.dumps(status).encode())
            producer.poll(0)
        producer.flush(5)

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


if __name__ == "__main__":
    main()
