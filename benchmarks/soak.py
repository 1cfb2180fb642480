"""Every fault again and again, and what came of it: ``make soak``, into soak.json.

Each fault gets a lake of its own. A made-up fleet lands records while ``telemetry-lake ingest`` follows them, the fault
strikes, and the job goes on or is started again. What must come out is known from the fleet's own ledger; nothing of
the project's code judges it. Last, hostile clients push at full rate beside good ones (`soak_hostile`).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.soak_hostile import hostile
from benchmarks.soak_kills import FAULTS, Trial
from jobs.local_cluster import LocalCluster
from tests.ledger_check import Verdict
from tests.ledger_faults import (
    add_partitions,
    fill_disk,
    following,
    kill_brokers,
    kill_executors,
    land_by_two_brokers,
    refuse_second_job,
    small_disk,
    stand_still,
)
from tests.ledger_run import KafkaRun, Run

RESULTS = Path(__file__).parent / "soak.json"
EXECUTORS, BROKERS = 4, 4  # kills of these
PARTS = ("kills", "faults", "hostile")
SHARES = (0.4, 0.6)  # of the room that a lake needs
Row = dict[str, Any]


def soak(kills: int, seed: int, minutes: float, parts: Sequence[str]) -> Iterator[dict[str, list[Row]]]:
    """The rows of one part after the other."""
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-soak-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for part in parts:
            if part == "kills":
                rows = list(_killed_jobs(scratch, kills - EXECUTORS - BROKERS, random.Random(seed)))
            elif part == "faults":
                rows = [*_faults_over_files(scratch), *_faults_of_the_topic(scratch)]
            else:
                rows = [hostile(_folder(scratch, "hostile"), minutes, seed)]
            yield {part: rows}


def summary(rows: Mapping[str, list[Row]], seed: int) -> dict[str, Any]:
    """What soak.json holds, of the rows of the parts."""
    faults = [*rows.get("kills", ()), *rows.get("faults", ())]
    judged = [*faults, *rows.get("hostile", ())]
    return {
        "kills": sum(row["times"] for row in faults if row["kill"]),
        **{name: sum(row[name] for row in judged) for name in ("lost", "doubled", "problems", "pushes")},
        "seed": seed,
        "faults": faults,
        "hostile": next(iter(rows.get("hostile", ())), None),
    }


def _killed_jobs(scratch: Path, kills: int, chance: random.Random) -> Iterator[Row]:
    """The driver, its JVM, its workers, at moments of batch, commit and checkpoint."""
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
    yield tried("second job on the lake refused", 2, lambda run: refuse_second_job(run, 2))
    yield tried("machine stood still", 4, lambda run: stand_still(run, 4))
    run = Run(_folder(scratch, "disk"))
    with small_disk(run.lake) as problem:
        if problem:
            print(f"disk full on the lake: not tried, {problem}", file=sys.stderr)
        else:
            yield _tried(run, "disk full on the lake", len(SHARES), lambda: fill_disk(run, SHARES))


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


def _tried(run: Run, fault: str, times: int, strike: Callable[[], None], *, kill: bool = False) -> Row:
    """Let a fault strike and judge; a job that doesn't go on is a problem of its row, not the end of the table."""
    before, told = len(run.ledger.landed), ""
    run.recoveries_s = []
    try:
        strike()
    except AssertionError as error:
        told = f"the job didn't go on: {error}"
        if not isinstance(run, KafkaRun):
            run.close()
    verdict = run.verdict()
    if told:
        verdict.problems.append(told)
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
    parser.add_argument("--kills", type=int, default=52, help="in all, those of executors and brokers among them")
    parser.add_argument("--hostile", type=float, default=10, metavar="MINUTES", help="of hostile clients; 0: none")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts; the file's other rows stay")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    parts = asked.only or [part for part in PARTS if part != "hostile" or asked.hostile]
    rows = _kept() if asked.only else {}
    for found in soak(asked.kills, asked.seed, asked.hostile, parts):
        rows |= found
        RESULTS.write_text(json.dumps(summary(rows, asked.seed), indent=2) + "\n", encoding="utf-8")
    told = summary(rows, asked.seed)
    print(json.dumps(told, indent=2))
    return int(bool(told["lost"] or told["doubled"] or told["problems"]))


def _kept() -> dict[str, list[Row]]:
    """The rows of an earlier run, by part."""
    told = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = {
        part: [row for row in told["faults"] if (row["fault"] in FAULTS) == (part == "kills")] for part in PARTS[:2]
    }
    return rows | ({"hostile": [told["hostile"]]} if told.get("hostile") else {})


if __name__ == "__main__":
    sys.exit(main())
