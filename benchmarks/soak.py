"""Injects every fault repeatedly and checks the result: ``make soak``, into soak.json.

Each fault gets its own lake. A synthetic fleet lands records while ``telemetry-lake ingest`` follows them, the fault
occurs, and the job continues or is restarted. The fleet's own ledger has the expected result, computed without the
project's code. At the end hostile clients push at full rate beside good ones (`soak_hostile`).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.push_search import search_row
from benchmarks.soak_hostile import hostile
from benchmarks.soak_kills import FAULTS, Trial
from benchmarks.soak_writers import FAULTS_OF_WRITERS, fail_requests, take_over
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support import spark_cluster
from tests.support.ledger_check import Verdict
from tests.support.ledger_faults import (
    add_partitions,
    fill_disk,
    following,
    kill_brokers,
    kill_executors,
    land_by_two_brokers,
    lose_workers,
    refuse_second_job,
    small_disk,
    suspend_job,
)
from tests.support.ledger_run import KafkaRun, Run, StoreRun
from tests.support.s3_proxy import proxied
from tests.support.s3_server import S3Server

RESULTS = Path(__file__).parent / "soak.json"
EXECUTORS, BROKERS = 4, 4  # numbers of kills
WORKERS, FAULTS_OF_WORKERS = "workers of a cluster of four lost, added, cut off, refused by the store", 7
PARTS = ("kills", "faults", "writers", "hostile", "search")
WRITERS = (*FAULTS_OF_WRITERS, "store faults")  # faults of the part `writers` begin with one of these
SHARES = (0.4, 0.6)  # of the disk space that a lake needs
Row = dict[str, Any]


def soak(
    kills: int, seed: int, minutes: float, search_minutes: float, parts: Sequence[str], interleavings: int
) -> Iterator[dict[str, list[Row]]]:
    """Run the parts, and yield each part's rows, as far as there are any."""
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-soak-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for part in parts:
            if part == "kills":
                rows = list(_killed_jobs(scratch, kills - EXECUTORS - BROKERS, random.Random(seed)))
            elif part == "faults":
                rows = [*_faults_over_files(scratch), *_faults_of_the_topic(scratch)]
            elif part == "writers":
                rows = []
                for row in _two_writers(scratch, interleavings, random.Random(seed)):
                    rows.append(row)
                    yield {part: rows}  # it takes an hour
            elif part == "search":
                rows = [search_row(search_minutes, seed)]
            else:
                rows = [hostile(_folder(scratch, "hostile"), minutes, seed)]
            yield {part: rows}


def summary(rows: Mapping[str, list[Row]], seed: int) -> dict[str, Any]:
    """The content of soak.json, from the rows of the parts."""
    faults = [*rows.get("kills", ()), *rows.get("faults", ()), *rows.get("writers", ())]
    judged = [*faults, *rows.get("hostile", ())]
    return {
        "kills": sum(row["times"] for row in faults if row["kill"]),
        **{name: sum(row[name] for row in judged) for name in ("lost", "doubled", "problems", "pushes")},
        "seed": seed,
        "faults": faults,
        **{part: next(iter(rows.get(part, ())), None) for part in PARTS[3:]},
    }


def _killed_jobs(scratch: Path, kills: int, chance: random.Random) -> Iterator[Row]:
    """Kill the driver, its JVM and its workers during batches, commits and checkpoints."""
    trials = []
    for number, fault in enumerate(FAULTS):
        trials.append(Trial(fault, _folder(scratch, str(number)), random.Random(chance.randrange(1 << 30))))
    while sum(trial.times for trial in trials) < kills:
        min(trials, key=lambda trial: trial.times).strike()
    for trial in trials:
        verdict = trial.judge()
        yield _row(trial.fault, trial.times, verdict, len(trial.fleet.ledger.landed), trial.recoveries_s, kill=True)


def _faults_over_files(scratch: Path) -> Iterator[Row]:
    def tried(fault: str, times: int, strike: Callable[[Run], None], *, kill: bool = False) -> Row:
        run = Run(_folder(scratch, fault.replace(" ", "-")))
        return _tried(run, fault, times, lambda: strike(run), kill=kill)

    yield tried(
        "executor of a standalone cluster killed", EXECUTORS, lambda run: kill_executors(run, EXECUTORS), kill=True
    )
    yield from _workers_of_a_cluster(scratch)
    yield tried("second job on the lake refused", 2, lambda run: refuse_second_job(run, 2))
    yield tried("machine suspended", 4, lambda run: suspend_job(run, 4))
    run = Run(_folder(scratch, "disk"))
    with small_disk(run.lake) as problem:
        if problem:
            print(f"disk full on the lake: not tried, {problem}", file=sys.stderr)
        else:
            yield _tried(run, "disk full on the lake", len(SHARES), lambda: fill_disk(run, SHARES))


def _workers_of_a_cluster(scratch: Path) -> Iterator[Row]:
    if (problem := spark_cluster.missing()) is not None:
        print(f"{WORKERS}: not tried, {problem}", file=sys.stderr)
        return
    server = S3Server.start(scratch / "objects-of-workers")
    try:
        run = StoreRun(_folder(scratch, "workers"), server, "")
        strike = partial(lose_workers, run, server.environment["AWS_ENDPOINT_URL"])
        yield _tried(run, WORKERS, FAULTS_OF_WORKERS, strike)
    finally:
        server.stop()


def _faults_of_the_topic(scratch: Path) -> Iterator[Row]:
    with LocalCluster(brokers=2, landing_partitions=3) as cluster:
        run = KafkaRun(_folder(scratch, "topic"), cluster)
        try:
            with following(run) as job:
                yield _tried(run, "broker killed", BROKERS, lambda: kill_brokers(run, job, BROKERS), kill=True)
                yield _tried(run, "partitions added", 2, lambda: add_partitions(run, job, 4, 6))
                yield _tried(
                    run, "landed by two brokers, out of order and twice", 4, lambda: land_by_two_brokers(run, job, 4)
                )
        finally:
            run.close()


def _two_writers(scratch: Path, times: int, chance: random.Random) -> Iterator[Row]:
    """A store whose requests fail; then jobs that take over from one another, in a folder and in the store.

    Args:
        times: takeovers altogether; a quarter as many requests fail.
    """

    def tried(run: Run, fault: str, times: int, strike: Callable[[], Counter[str]]) -> Row:
        exits: Counter[str] = Counter()
        row = _tried(run, fault, times, lambda: exits.update(strike()), kill=False)
        for line, count in exits.items():
            print(f"{fault}: {count} times {line}", flush=True)
        return row | {"seen": dict(exits)}

    server = S3Server.start(scratch / "objects")
    try:
        with proxied(server.environment["AWS_ENDPOINT_URL"]) as store:
            run = StoreRun(_folder(scratch, "store-faults"), server, store.endpoint)
            requests = times // 4
            yield tried(run, "store faults", requests, lambda: fail_requests(run, store, requests, chance))
            share = times // (2 * len(FAULTS_OF_WRITERS))
            for fault, then in FAULTS_OF_WRITERS.items():
                local = Run(_folder(scratch, f"{fault.replace(' ', '-')}-local"))
                in_s3 = StoreRun(_folder(scratch, f"{fault.replace(' ', '-')}-s3"), server, store.endpoint)
                for where, each in (("in a folder", local), ("in S3", in_s3)):
                    yield tried(each, f"{fault}, {where}", share, partial(take_over, each, share, chance, then))
    finally:
        server.stop()


def _tried(run: Run, fault: str, times: int, strike: Callable[[], None], *, kill: bool = False) -> Row:
    """Cause a fault and check the result; a job that doesn't recover is a problem of this row, and the soak goes on."""
    before, failure = len(run.ledger.landed), ""
    run.recoveries_s = []
    try:
        strike()
    except AssertionError as error:
        failure = f"the job didn't recover: {error}"
        if not isinstance(run, KafkaRun):
            run.close()
    verdict = run.verdict()
    if failure:
        verdict.problems.append(failure)
    if not isinstance(run, KafkaRun):
        run.close()
    print(f"{fault}: {times} times, {[round(each, 1) for each in run.recoveries_s]} s", flush=True)
    return _row(fault, times, verdict, len(run.ledger.landed) - before, run.recoveries_s, kill=kill)


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir()
    return folder


def _row(fault: str, times: int, verdict: Verdict, pushes: int, recoveries_s: list[float], *, kill: bool) -> Row:
    for problem in verdict.problems:
        print(f"{fault}: {problem}", file=sys.stderr)
    return {
        "fault": fault,
        "times": times,
        "kill": kill,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "problems": len(verdict.problems),
        "pushes": pushes,
        "recoveries": len(recoveries_s),
        "recovery_s_median": round(statistics.median(recoveries_s), 1) if recoveries_s else None,
        "recovery_s_max": round(max(recoveries_s), 1) if recoveries_s else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=52, help="in total, including those of executors and brokers")
    parser.add_argument(
        "--hostile", type=float, default=10, metavar="MINUTES", help="duration of hostile clients; 0: none"
    )
    parser.add_argument(
        "--search",
        type=float,
        default=20,
        metavar="MINUTES",
        help="duration of the search for the costliest push; 0: none",
    )
    parser.add_argument(
        "--interleavings", type=int, default=200, help="jobs that take over; a quarter as many requests to a store fail"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="run only this part; the file's other rows stay")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    parts = args.only or [part for part in PARTS if getattr(args, part, 1)]
    rows, build = _stored_rows() if args.only else {}, _build()
    for part_rows in soak(args.kills, args.seed, args.hostile, args.search, parts, args.interleavings):
        rows |= {part: [row | {"build": build} for row in each] for part, each in part_rows.items()}
        RESULTS.write_text(json.dumps(summary(rows, args.seed), indent=2) + "\n", encoding="utf-8")
    result = summary(rows, args.seed)
    print(json.dumps(result, indent=2))
    costly = (result["search"] or {}).get("problems", 0)
    return int(bool(result["lost"] or result["doubled"] or result["problems"] or costly))


def _build() -> str:
    """The commit of the code that runs, with `-dirty` if files other than the results were changed since."""
    git = ("git", "-C", str(RESULTS.parent))
    changed = ("diff", "--name-only", "HEAD", "--", ":/", f":!{RESULTS.name}")
    commit, files = (
        subprocess.run([*git, *argv], capture_output=True, text=True, check=True).stdout.strip()
        for argv in (("rev-parse", "--short=10", "HEAD"), changed)
    )
    return f"{commit}-dirty" if files else commit


def _stored_rows() -> dict[str, list[Row]]:
    """The rows of an earlier run, by part."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = {
        "kills": [row for row in stored["faults"] if row["fault"] in FAULTS],
        "writers": [row for row in stored["faults"] if row["fault"].startswith(WRITERS)],
    }
    rows["faults"] = [row for row in stored["faults"] if row not in [*rows["kills"], *rows["writers"]]]
    return rows | {part: [stored[part]] for part in PARTS[3:] if stored.get(part)}


if __name__ == "__main__":
    sys.exit(main())
