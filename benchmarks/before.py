"""The job's CPU time beside that of an earlier commit, in turns on one machine, with the shapes of `end_to_end`.

    python -m benchmarks.before a4b7bc6
    python -m benchmarks.before a4b7bc6 --shapes stock --sizes 500k 2m --turns 3

Each turn starts a broker and a warm job of one build, which reads a round of each shape and size. Both builds have the
packages and jars of this checkout. A figure, ``end_to_end_SHAPE_SIZE_vs_before``, is this build's CPU-seconds a point
in all turns over those of the earlier one: below 1 this build is cheaper.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import print_figures, store_runs
from benchmarks.shapes import SHAPES, SIZES

ROOT = Path(__file__).parents[1]
WARM_ROUNDS = 3
# Both builds' `end_to_end`, without peers.
PROGRAM = f"import benchmarks.end_to_end as e; e.PEERS.clear(); e.WARM_ROUNDS = {WARM_ROUNDS}; e.main()"
SHAPE = re.compile(r"(\w+): ")
ROUND = re.compile(r"  (\w+), job: (\d+) points, ([\d.]+) CPU-s")


def main() -> None:
    parser = argparse.ArgumentParser(description="The job beside an earlier commit.")
    parser.add_argument("commit")
    parser.add_argument("--shapes", nargs="+", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--turns", type=int, default=2, help="of each build")
    options = parser.parse_args()
    shapes = options.shapes or [shape.name for shape in SHAPES]
    flags = ["--shapes", *shapes, "--sizes", *options.sizes]
    points: Counter[tuple[str, str, str]] = Counter()
    cpu_s: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    runs: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="before-") as folder:
        builds = {"before": checkout(options.commit, Path(folder)), "now": ROOT}
        for turn in range(options.turns):
            for build, root in builds.items():
                for shape, size, read, took in job_rounds(root, flags):
                    print(f"turn {turn}, {build}: {shape} {size}: {read} points, {took:.2f} CPU-s", flush=True)
                    runs.append({"build": build, "shape": shape, "size": size, "points": read, "cpu_s": took})
                    points[build, shape, size] += read
                    cpu_s[build, shape, size] += took
    cost = {key: cpu_s[key] / points[key] for key in points}
    store_runs("before", {"commit_before": options.commit, "rounds": runs})
    print_figures(
        {
            f"end_to_end_{shape}_{size}_vs_before": cost["now", shape, size] / cost["before", shape, size]
            for shape in shapes
            for size in options.sizes
        }
    )


def checkout(commit: str, folder: Path) -> Path:
    """A clone of this checkout at a commit, with this checkout's packages and jars."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, clone], check=True)
    subprocess.run(["git", "-C", clone, "checkout", "--quiet", commit], check=True)
    for name in (".venv", ".jars"):
        (clone / name).symlink_to(ROOT / name)
    return clone


def job_rounds(
    root: Path, flags: Sequence[str], variables: Mapping[str, str] | None = None
) -> list[tuple[str, str, int, float]]:
    """Shape, size, points and CPU-s of each round of one turn of a build.

    Args:
        variables: of the environment, besides those of this process.
    """
    environment = os.environ | {"PYTHONPATH": str(root)} | dict(variables or {})
    argv = [sys.executable, "-c", PROGRAM, *flags]
    run = subprocess.run(argv, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"the benchmark of {root} ended with {run.returncode}")
    rounds, shape = [], ""
    for line in run.stdout.splitlines():
        if named := SHAPE.match(line):
            shape = named[1]
        elif found := ROUND.match(line):
            rounds.append((shape, found[1], int(found[2]), float(found[3])))
    return rounds


if __name__ == "__main__":
    main()
