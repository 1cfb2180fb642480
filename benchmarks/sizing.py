"""What fleets from a thousand to a hundred million clients need: calculated from the figures of `results.json`.

A client pushes 100 points every five minutes. Up to a million clients, cores and memory are measured. Beyond, a task's
cost grows with the points and with that of more shards. A money unit is a dollar; the prices are assumptions, to be
replaced by your own.

    python -m benchmarks.sizing     prints the table of docs/sizing.md
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from benchmarks.figures import RESULTS
from benchmarks.ninety_days import DAYS, INTERVAL_S, RETENTION

FLEETS = (1_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
MEASURED = {1_000: "small_1k", 100_000: "sustained_100k", 1_000_000: "sustained_1000k"}
LARGEST = 1_000_000
POINTS_A_PUSH = 100
HEADROOM = 2  # to catch up after a pause
MACHINE_CORES, MACHINE_GB = 8, 32
BATCH_S, TABLES = 5.0, 5
CORE_HOUR, GB_MONTH, MILLION_WRITES = 0.05, 0.023, 5.0
HOURS = 730


class Need(NamedTuple):
    """What a fleet needs.

    Attributes:
        cores: the job's use; twice as many should be there.
        machines: of `MACHINE_CORES` cores and `MACHINE_GB` GB.
        driver_gb: what the driver remembers of clients.
        lake_tb: after 90 days.
    """

    points_s: float
    cores: float
    machines: int
    driver_gb: float
    lake_tb: float
    money: float


def need(clients: int, figures: dict[str, float]) -> Need:
    pushes_s = clients / INTERVAL_S
    measured = MEASURED.get(min(clients, LARGEST))
    cores = figures[f"{measured}_cores" if measured == "small_1k" else f"{measured}_cores_used"]
    if clients > LARGEST:
        cores *= clients / LARGEST * figures["scale_efficiency_8_shards"]
    driver_gb = clients / 1e6 * figures["driver_mb_per_million_clients"] / 1e3
    machines = max(1, math.ceil(HEADROOM * cores / MACHINE_CORES), math.ceil(driver_gb / MACHINE_GB))
    names = [name.removeprefix("bytes_a_push_") for name in figures if name.startswith("bytes_a_push_")]
    stored = sum(figures[f"bytes_a_push_{name}"] * min(DAYS, RETENTION.get(name, DAYS)) for name in names)
    lake_tb = stored * pushes_s * 86_400 / 1e12
    tasks = max(1, round(HEADROOM * cores))
    writes = HOURS * 3600 / BATCH_S * (TABLES * tasks + TABLES + tasks)
    bought = MACHINE_CORES * machines if clients > LARGEST else max(1, math.ceil(HEADROOM * cores))
    money = bought * HOURS * CORE_HOUR + lake_tb * 1e3 * GB_MONTH + writes / 1e6 * MILLION_WRITES
    return Need(pushes_s * POINTS_A_PUSH, cores, machines, driver_gb, lake_tb, money)


def main() -> None:
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    print("| clients | points/s | cores used | machines | driver's memory of clients, GB "
          "| lake after 90 days, TB | money a month |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for clients in FLEETS:
        each = need(clients, figures)
        print(
            f"| {clients:,} | {each.points_s:,.0f} | {_short(each.cores)} | {each.machines} | {_short(each.driver_gb)} "
            f"| {_short(each.lake_tb)} | {each.money:,.0f} |"
        )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}" if value >= 0.01 else "0"


if __name__ == "__main__":
    main()
