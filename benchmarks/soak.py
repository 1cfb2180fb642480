"""Kill the job at random moments and look whether anything is lost or doubled: ``make soak``.

The captured pushes go into a folder file by file while ``telemetry-lake ingest`` follows it and is killed (-9) again
and again. What must come out is known from the captures' index; nothing of the project's code judges it.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

ROOT = Path(__file__).parent.parent
CAPTURED = ROOT / "jobs" / "data" / "captured" / "landed.parquet"
INDEX = ROOT / "tests" / "data" / "captured_index.jsonl"
RESULTS = Path(__file__).parent / "soak.json"
Key = tuple[int, int]


def start(folder: Path, lake: Path, *flags: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "jobs.cli", "ingest", "--source", f"files:{folder}", "--lake", str(lake), *flags]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def counted(lake: Path, table: str) -> collections.Counter[Key]:
    rows = DeltaTable(str(lake / table)).to_pyarrow_table(columns=["partition", "offset"])
    return collections.Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def difference(found: collections.Counter[Key], truth: collections.Counter[Key]) -> tuple[int, int]:
    return (truth - found).total(), (found - truth).total()


def soak(kills: int, seed: int) -> dict[str, float]:
    landed = pq.read_table(CAPTURED)
    index = [json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines()]
    keys = list(zip(landed["partition"].to_pylist(), landed["offset"].to_pylist(), strict=True))
    pushes = collections.Counter(keys)
    points = collections.Counter(
        {key: truth["points"] for key, truth in zip(keys, index, strict=True) if truth["points"]}
    )
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-soak-") as scratch:
        folder, lake = Path(scratch) / "in", Path(scratch) / "lake"
        folder.mkdir()
        step = -(-landed.num_rows // (kills + 1))
        for kill in range(kills):
            hidden = folder / f"_{kill}"
            pq.write_table(landed.slice(kill * step, step), hidden)
            hidden.rename(folder / f"{kill:03d}.parquet")
            job = start(folder, lake, "--trigger-seconds", "0.5")
            time.sleep(moments.uniform(4, 20))
            job.kill()
            job.wait()
            print(f"kill {kill + 1} of {kills}: {_progress(lake)}", flush=True)
        pq.write_table(landed.slice(kills * step), folder / "last.parquet")
        began = time.monotonic()
        code = start(folder, lake, "--once").wait()
        recovery = time.monotonic() - began
        lost_pushes, doubled_pushes = difference(counted(lake, "pushes"), pushes)
        lost_points, doubled_points = difference(counted(lake, "metric_points"), points)
        quarantined = counted(lake, "quarantine").total()
    return {
        "kills": kills,
        "exit_code_of_last_run": code,
        "lost": lost_pushes + lost_points,
        "doubled": doubled_pushes + doubled_points,
        "quarantined": quarantined,
        "recovery_s": round(recovery, 1),
    }


def _progress(lake: Path) -> str:
    done = dict.fromkeys(("pushes", "push_outcomes"), 0)
    for name in done:
        if (lake / name / "_delta_log").is_dir():
            done[name] = DeltaTable(str(lake / name)).count()
    return f"{done['pushes']} pushes stored, {done['push_outcomes']} judged"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = soak(asked.kills, asked.seed)
    RESULTS.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for name, value in found.items():
        print(f"{name}: {value}")
    return int(bool(found["lost"] or found["doubled"] or found["exit_code_of_last_run"]))


if __name__ == "__main__":
    sys.exit(main())
