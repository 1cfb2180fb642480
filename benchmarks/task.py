"""Where the CPU of an operator's task goes, without Spark: one shard's pushes, from table `pushes` to written files.

    python -m benchmarks.task [LOAD ...]     prints each figure and stores it in benchmarks/results.json

Loads: `stock` is the fleet of `benchmarks.fleet`, uncompressed and mostly DELTA; `totals` few clients with many pushes
of totals, in Kafka's five compression types; `histograms` explicit and exponential ones; `small` ten pushes of `stock`.
The figure of a load is the median of `ROUNDS` tasks that each start with empty state. The stages come from one more
task, under Python's profiler: their sum is a little more than the figure.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks import corpora
from benchmarks.figures import print_figures
from benchmarks.fleet import COMPRESS, Fleet, Landing, histogram_templates
from benchmarks.fleet_lake import landing_rows, pushes_rows
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile

ROUNDS = 5
SMALLEST_ROUND = 40_000  # points: the clock of CPU time is coarse
FIRST_MS = corpora.START_NS // 1_000_000

# Functions whose time, with that of what they call, is a stage's: file and name.
STAGES = {
    "read pushes": (("push_files.py", "_groups"), ("push_files.py", "batches")),
    "decompress": (("compression.py", "decompress"),),
    "digests": (("payloads.py", "_digests"),),
    "decode": (("payloads.py", "_decode_within"),),
    "normalise attributes": (("identity.py", "normalise"),),
    "read points": (("points.py", "read_points"), ("distributions.py", "read_distributions")),
    "check pushes": (("principals.py", "check_senders"), ("redelivery.py", "check_pushes")),
    "limits of series": (("state_limits.py", "beyond_limit"), ("shard.py", "_spend_series")),
    "convert": (("series.py", "convert"),),
    "rows of points": (("point_rows.py", "metric_points"),),
    "other rows": (
        ("push_rows.py", "push_outcomes"), ("push_rows.py", "client_events"), ("quarantine.py", "quarantined_pushes"),
        ("quarantine.py", "quarantined_points"),
    ),
    "rollups": (("rollups.py", "add"), ("rollups.py", "coarser"), ("rollups.py", "table")),
    "checks": (("batch.py", "write"), ("batch.py", "read"), ("batch.py", "counts")),
    "write files": (("table_files.py", "write"), ("table_files.py", "close")),
    "state": (
        ("chain.py", "read"), ("chain.py", "write"), ("state_limits.py", "evicted_clients"), ("state.py", "merge"),
    ),
    "release memory": (("python_worker.py", "release_memory"),),
}  # fmt: skip


def stock(pushes: int = 10_000) -> list[Landing]:
    """The fleet that `benchmarks.end_to_end` lands."""
    return list(Fleet(200_000, FIRST_MS).landings(0, pushes))


def totals(pushes: int = 10_000, clients: int = 400) -> list[Landing]:
    """Few clients, each with many pushes of totals in one of the compression types."""
    return list(Fleet(clients, FIRST_MS, cumulative=1.0, codecs=tuple(COMPRESS), instances=5).landings(0, pushes))


def histograms(pushes: int = 4_000, clients: int = 2_000) -> list[Landing]:
    """Clients with two pushes of fifty histograms each, one half explicit and the other exponential ones."""
    templates = histogram_templates()
    return list(Fleet(clients, FIRST_MS, cumulative=1.0, templates=templates, instances=50).landings(0, pushes))


LOADS: dict[str, Callable[[], list[Landing]]] = {
    "stock": stock,
    "totals": totals,
    "histograms": histograms,
    "small": lambda: stock(10),
}


def main() -> None:
    figures: dict[str, float] = {}
    for name in sys.argv[1:] or LOADS:
        with tempfile.TemporaryDirectory() as lake:
            figures |= measure(name, LOADS[name](), lake)
    print_figures(figures)


def measure(name: str, pushes: list[Landing], lake: str) -> dict[str, float]:
    """Run tasks over the pushes and print the stages of one; returns the load's figure."""
    (stored,) = StoreTask(lake)(landing_rows(pushes_rows(pushes, 0, 1)).to_batches())
    paths = tuple(DataFile.from_json(text).path for text in stored["file"].to_pylist())
    points = sum(push.points for push in pushes)
    tasks = max(1, SMALLEST_ROUND // points)
    _cpu_s(lake, paths, 1)
    seconds = statistics.median(_cpu_s(lake, paths, tasks) for _ in range(ROUNDS))
    profile = cProfile.Profile(time.process_time)
    profile.runcall(_cpu_s, lake, paths, tasks)
    print(f"{name}: {len(pushes)} pushes, {points} points, {seconds:.4f} CPU-s, us per point or ms per task:")
    unit = 1e6 / points if name != "small" else 1e3
    for stage, spent in spent_in(STAGES, profile).items():
        print(f"  {stage:22}{spent / tasks * unit:8.3f}")
    print(f"  {'total of the task':22}{seconds * unit:8.3f}")
    if name == "small":
        return {"task_small_cpu_ms": seconds * 1e3}
    return {f"task_{name}_points_per_cpu_s": points / seconds}


def _cpu_s(lake: str, paths: tuple[str, ...], tasks: int) -> float:
    """The mean of so many tasks with empty state. Files are left in the lake, but no table has them."""
    Path(lake, "_state").mkdir(exist_ok=True)
    began = time.process_time()
    for number in range(tasks):
        for _ in ShardTask(lake, number, paths, 1, f"{lake}/_state")([pa.RecordBatch.from_pydict({"id": [0]})]):
            pass
    return (time.process_time() - began) / tasks


def spent_in(stages: Mapping[str, Sequence[tuple[str, str]]], profile: cProfile.Profile) -> dict[str, float]:
    """Seconds in each stage's functions, given as file and name."""
    functions = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]  # its stubs lack it
    spent = {(Path(file).name, name): cumulative for (file, _, name), (_, _, _, cumulative, _) in functions}
    return {stage: sum(spent.get(each, 0.0) for each in of_stage) for stage, of_stage in stages.items()}


if __name__ == "__main__":
    main()
