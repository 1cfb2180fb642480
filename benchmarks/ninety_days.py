"""What stands in each table after 90 days of a million clients: files, log entries and bytes, calculated.

Bytes of a push in each table are measured, on batches of the fleet through the job's own code without Spark. The rest
is arithmetic: pushes a day, days that are kept (`conf/maintain.yml`), files of the target size that `maintain` leaves
of a past day, most live files of today (as `benchmarks.aged` counts them), and log entries of the last day: one for
each batch, and one for each merge of the smallest files.

    python -m benchmarks.ninety_days    prints the table, stores bytes of a push in benchmarks/results.json
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import yaml

from benchmarks.aged import SHARDS, Job, live_files_after_a_day
from benchmarks.figures import store_figures
from benchmarks.fleet import Fleet
from kafka_telemetry_lake.pipelines.upkeep.small_files import MANY

CLIENTS, INTERVAL_S, DAYS = 1_000_000, 300, 90
PUSHES_A_BATCH, BATCHES = 4_000, 5
BATCH_S = 5.0  # about that of `benchmarks.sustained --clients 1000000`
TARGET = 128 << 20
PUSHES_A_DAY = CLIENTS * 86_400 // INTERVAL_S
RETENTION = yaml.safe_load((Path(__file__).parents[1] / "conf" / "maintain.yml").read_text("utf-8"))["retention_days"]


def sizes_of(folder: Path) -> dict[str, list[int]]:
    """Sizes of the files that each table gets in batches of `PUSHES_A_BATCH` pushes."""
    job = Job(folder, pushes=PUSHES_A_BATCH)
    job.fleet = Fleet(20_000, int(job.clock().timestamp() * 1000), INTERVAL_S)
    for _ in range(BATCHES):
        job.batch()
    return {name: sizes for name, sizes in job.sizes.items() if sizes}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        measured = sizes_of(Path(folder))
    print("| table | bytes a push | days | GB | files | log entries |\n|---|---|---|---|---|---|")
    in_a_batch = PUSHES_A_DAY / (86_400 / BATCH_S)
    for name, sizes in measured.items():
        a_push = sum(sizes) / (BATCHES * PUSHES_A_BATCH)
        days = min(DAYS, RETENTION.get(name, DAYS))
        a_day = a_push * PUSHES_A_DAY
        today = live_files_after_a_day([int(a_push * in_a_batch / SHARDS)], BATCH_S)
        files = (days - 1) * math.ceil(a_day / TARGET) + today
        entries = 86_400 / BATCH_S * (1 + SHARDS / MANY)
        print(f"| `{name}` | {a_push:,.0f} | {days} | {days * a_day / 1e9:,.0f} | {files:,} | {entries:,.0f} |")
        store_figures({f"bytes_a_push_{name}": a_push})


if __name__ == "__main__":
    main()
