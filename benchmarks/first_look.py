"""The first look at each page of a time range that nobody has asked for, beside an earlier commit, in turns.

    python -m benchmarks.first_look 7d0fdfe8 --lake DIR

The lake is that of `dashboard_visits`, and is created if it is missing. A server of each build stands on the same lake.
A turn visits each page once on both, one after the other, each visit with a range of its own. The first turn is printed
by itself: it also asks what is the same in all ranges, such as whose the clients are, which nobody asks again before
the next commit.

A figure, ``first_look_SIZE_cpu_vs_before``, is this build's CPU seconds of all pages over those of the earlier one, of
the other turns; ``first_look_SIZE_p95_s`` the 95th percentile of all their visits of this build.
``first_look_SIZE_all_...`` are those of the first turn.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil

from benchmarks.before import ROOT, checkout
from benchmarks.dashboard_visits import cpu_s, prepared, ranges_of, served, subjects_of, visit
from benchmarks.figures import print_figures, store_runs
from benchmarks.million_lake import build_million
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.pages import BY_PATH
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake

BUILDS = ("before", "now")
Looks = defaultdict[tuple[str, str], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description="First looks at pages beside an earlier commit.")
    parser.add_argument("commit")
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--pages", nargs="*", default=[path or "problems" for path in BY_PATH])
    parser.add_argument("--turns", type=int, default=3, help="besides the first")
    parser.add_argument("--alone", action="store_true", help="stores nothing")
    args = parser.parse_args()
    if not is_lake(str(args.lake)):
        print(f"points: {build_million(args.lake, args.points)}", flush=True)
    opened = LakeReader(str(args.lake))
    opened.versions()
    subjects, ranges = subjects_of(opened), ranges_of(opened)
    took, used = Looks(list), Looks(list)

    def look(build: str, page: str, server: tuple[int, psutil.Process]) -> None:
        before_s = cpu_s(server[1])
        took[build, page].append(visit(server[0], page.partition("/")[0], next(ranges) | subjects.get(page, {})))
        used[build, page].append(cpu_s(server[1]) - before_s)
        print(f"{build} {page}: {took[build, page][-1]:.2f} s, {used[build, page][-1]:.2f} CPU-s", flush=True)

    with tempfile.TemporaryDirectory(prefix="first-look-") as folder, ExitStack() as stack:
        roots = {"before": checkout(args.commit, Path(folder)), "now": ROOT}
        servers = {build: stack.enter_context(served(args.lake, roots[build])) for build in BUILDS}
        for build in BUILDS:
            print(f"prepared, {build}: {prepared(*servers[build]):.1f} CPU-s", flush=True)
        for turn in range(args.turns + 1):
            for page in args.pages:
                for build in BUILDS if turn % 2 else reversed(BUILDS):
                    look(build, page, servers[build])
    first, later = slice(0, 1), slice(1, None)
    for turns in (first, later):
        _print(args.pages, _some(took, turns), _some(used, turns))
    if not args.alone:
        kinds = {"took_s": took, "used_cpu_s": used}
        runs = {
            kind: {build: {page: looks[build, page] for page in args.pages} for build in BUILDS}
            for kind, looks in kinds.items()
        }
        store_runs("first_look", {"commit_before": args.commit, "load": os.getloadavg()[0], **runs})
        size = f"1e{len(str(args.points)) - 1}"
        print_figures(_figures(f"first_look_{size}_all", _some(took, first), _some(used, first)))
        print_figures(_figures(f"first_look_{size}", _some(took, later), _some(used, later)))
        print_figures({f"first_look_{size}_load": os.getloadavg()[0]})


def _some(looks: Looks, turns: slice) -> Looks:
    return Looks(list, {key: times[turns] for key, times in looks.items()})


def _figures(name: str, took: Looks, used: Looks) -> dict[str, float]:
    seconds, cpu = defaultdict[str, list[float]](list), defaultdict[str, float](float)
    for (build, page), times in took.items():
        seconds[build] += times
        cpu[build] += sum(used[build, page])
    return {f"{name}_cpu_vs_before": cpu["now"] / cpu["before"]} | {
        f"{name}_{'' if build == 'now' else 'before_'}{label}_s": float(np.quantile(seconds[build], share))
        for build in BUILDS
        for label, share in (("p50", 0.5), ("p95", 0.95))
    }


def _print(pages: list[str], took: Looks, used: Looks) -> None:
    print(f"load {os.getloadavg()[0]:.1f}; median seconds, and CPU seconds of the server")
    print("| page | before | now | CPU now / before |\n|---|---|---|---|")
    for page in pages:
        cells = [f"{np.median(took[build, page]):.2f} ({np.median(used[build, page]):.2f})" for build in BUILDS]
        ratio = sum(used["now", page]) / sum(used["before", page])
        print(f"| {page} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
