"""What it costs to judge all findings of a fleet's hour, alone and as a share of the job that wrote it.

Lakes of two sizes tell what the command costs by itself from what each client adds. A client pushes 12 times an hour.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import RESULTS, print_figures
from benchmarks.fleet_lake import build

PUSHES_AN_HOUR = 12
MILLION = 1_000_000


def evaluated_cpu_s(lake: Path) -> float:
    """CPU-s of `telemetry-lake findings` over a lake that it hasn't seen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "kafka_telemetry_lake", "findings", "--lake", str(lake)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs=2, default=(10_000, 50_000))
    sizes = sorted(parser.parse_args().clients)
    cpu_s, points = [], []
    for clients in sizes:
        with tempfile.TemporaryDirectory(prefix="findings-") as folder:
            points.append(build(Path(folder) / "lake", clients, clients * PUSHES_AN_HOUR, batch=20_000))
            cpu_s.append(evaluated_cpu_s(Path(folder) / "lake"))
        print(f"{clients} clients, {points[-1]} points: {cpu_s[-1]:.1f} CPU-s", flush=True)
    per_client = (cpu_s[1] - cpu_s[0]) / (sizes[1] - sizes[0])
    points_of_a_million = points[1] / sizes[1] * MILLION
    job_points_per_cpu_s = json.loads(RESULTS.read_text("utf-8"))["end_to_end_points_per_cpu_s"]
    print_figures(
        {
            "findings_fixed_cpu_s": cpu_s[0] - per_client * sizes[0],
            "findings_cpu_s_per_million_clients_hour": per_client * MILLION,
            "findings_us_per_point": per_client * MILLION / points_of_a_million * 1e6,
            "findings_share_of_job": per_client * MILLION / (points_of_a_million / job_points_per_cpu_s),
        }
    )


if __name__ == "__main__":
    main()
