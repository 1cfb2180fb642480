"""Hostile clients at full rate beside good ones: ``python -m benchmarks.soak_hostile --minutes 2`` runs them alone.

Each kind of attack has its own client instance. They land pushes as fast as the job processes them: at most `AHEAD`
bytes wait. The good clients' numbers are checked against their ledger. Memory, and the bytes stored per hostile byte,
are measured. Quarantine must name every client whose pushes must be rejected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from deltalake import DeltaTable

from benchmarks.peers.cpu import TreeCpu
from benchmarks.soak_attacks import MIB, WAYS, now_ns
from benchmarks.soak_extremes import LANDING
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.ledger import HOSTILE_ID, Landed, Ledger, instance_id
from tests.support.ledger_run import KafkaRun

AHEAD = 48 * MIB
GOOD_EVERY_S = 5.0
LEAST = 600  # pushes, however short the time, so that each attack has sent its worst push
DRIVER_MEMORY = "768m"
MOST_MB, MOST_BYTES_STORED = 3_000, 3.0  # memory: proportional set size
# A reason that quarantine must have for a client; it may have others too.
REASONS = {
    "random bytes": "INVALID_RECORD",
    "labels of 1 MiB": "TELEMETRY_TOO_LARGE",
    "a million metric names": "TOO_MANY_SERIES",
    "gzip bomb": "TELEMETRY_TOO_LARGE",
    "snappy bomb": "TELEMETRY_TOO_LARGE",
    "lz4 bomb": "TELEMETRY_TOO_LARGE",
    "zstd bomb": "TELEMETRY_TOO_LARGE",
    "texts of 1 MiB": "TEXT_TOO_LONG",
}


@dataclass
class Attack:
    """The hostile clients' producer and its landed pushes."""

    bootstrap_servers: str
    seed: int
    bytes_landed: int = 0
    landed: list[Landed] = field(default_factory=list)
    pushes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = random.Random(f"hostile {self.seed}")  # not the ids of the good clients
        self.clients = {way: instance_id(chance) for way in WAYS}
        self._sources = {way: make(random.Random(chance.random())) for way, (make, _) in WAYS.items()}
        self._cycle = itertools.cycle([way for way, (_, often) in WAYS.items() for _ in range(often)])
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "message.max.bytes": 4 * MIB,
             "partitioner": "murmur2_random", "enable.metrics.push": False}
        )  # fmt: skip

    def land_next(self) -> None:
        way = next(self._cycle)
        client, push = self.clients[way], next(self._sources[way])
        headers: list[tuple[str, str | bytes | None]] = [
            ("client_instance_id", client.encode()), ("client_id", HOSTILE_ID.encode()),
            ("compression_type", push.codec.encode()), ("terminating", b"false"), *push.headers,
        ]  # fmt: skip

        def done(error: object, message: Any) -> None:
            if error is not None:
                raise RuntimeError(f"a hostile push was not landed: {error}")
            if push.topic == LANDING:
                self.landed.append(Landed(message.partition(), message.offset(), client, "hostile", 0))

        self._producer.produce(
            push.topic, push.payload, client.encode(), headers=headers, on_delivery=done,
            timestamp=now_ns() // 1_000_000,
        )  # fmt: skip
        self.bytes_landed += len(push.payload) + sum(len(name) + len(value or "") for name, value in headers)
        self.pushes[way] += 1
        self._producer.poll(0)

    def flush(self) -> None:
        if self._producer.flush(120):
            raise RuntimeError("hostile pushes were not landed")


class HostileRun(KafkaRun):
    """The good clients' run, whose ledger includes the hostile pushes."""

    attack: Attack

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.placed + self.attack.landed, self.fleet.ledger.increments)


def hostile(folder: Path, minutes: float, seed: int = 1) -> dict[str, Any]:
    """Run the attack. The row of soak.json has rates, rejected pushes, exactness of good points, memory and storage."""
    with LocalCluster(landing_partitions=4, heap_mb=512) as cluster:
        run = HostileRun(folder, cluster, seed)
        run.attack = attack = Attack(cluster.bootstrap_servers, seed)
        try:
            run.land()
            job = run.start("--driver-memory", DRIVER_MEMORY)  # else the shipped defaults
            run.wait(lambda: run.judged() == len(run.ledger.landed), job)  # its kernels compiled
            with TreeCpu(job.pid, proportional=True) as tree, ThreadPoolExecutor(1) as beside:
                begun = time.monotonic()
                good = begun
                landing = beside.submit(lambda: None)
                sizes: list[tuple[int, int]] = []  # pushes and bytes landed by then
                while (now := time.monotonic()) - begun < minutes * 60 or len(attack.landed) < LEAST:
                    if now - good > GOOD_EVERY_S and landing.done():
                        landing.result()
                        landing, good = beside.submit(run.land), now
                    if _waiting(run, sizes) < AHEAD:
                        for _ in range(50):
                            attack.land_next()
                        attack.flush()
                        sizes.append((len(attack.landed), attack.bytes_landed))
                    else:
                        time.sleep(0.2)
                    if job.poll() is not None:
                        raise RuntimeError(f"the job has ended: {run.log.read_text()[-3000:]}")
                seconds = time.monotonic() - begun
                landing.result()
                run.land()
                run.wait(lambda: run.judged() == len(run.ledger.landed), job)
                peak_mb, peak_rss_mb = (round(peak / MIB) for peak in (tree.peak_pss_bytes, tree.peak_rss_bytes))
            verdict = run.verdict()
            run.end(job)
            problems = [*verdict.problems, *_unnamed(run)]
        finally:
            run.close()
        stored = sum(file.stat().st_size for file in run.lake.rglob("*") if file.is_file())
        ratio = stored / attack.bytes_landed
        if peak_mb > MOST_MB:
            problems.append(f"the job took {peak_mb} MB, more than {MOST_MB}")
        if ratio > MOST_BYTES_STORED:
            problems.append(f"{ratio:.2f} bytes are stored for each hostile byte, more than {MOST_BYTES_STORED}")
        for problem in problems:
            print(f"hostile: {problem}", file=sys.stderr)
        rejected = DeltaTable(str(run.lake / "quarantine")).to_pyarrow_dataset().count_rows()
        return {
            "minutes": round(seconds / 60, 1),
            "pushes": len(attack.landed),
            "pushes_per_s": round(len(attack.landed) / seconds),
            "mb_per_s": round(attack.bytes_landed / seconds / 1e6, 1),
            "rejected": rejected,
            "good_pushes": len(run.placed),
            "good_points": sum(each.points for each in run.placed),
            "good_points_exact": verdict.right,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
            "problems": len(problems),
            "peak_mb": peak_mb,
            "peak_rss_mb": peak_rss_mb,  # counts pages that processes share several times
            "bytes_stored_per_hostile_byte": round(ratio, 2),
            "ways": dict(attack.pushes),
        }


def _waiting(run: HostileRun, sizes: list[tuple[int, int]]) -> int:
    """Approximate number of hostile bytes that the job hasn't processed yet."""
    judged = max(0, run.judged() - len(run.placed))
    while len(sizes) > 1 and sizes[0][0] <= judged:
        sizes.pop(0)
    return run.attack.bytes_landed - sizes[0][1] if sizes else 0


def _unnamed(run: HostileRun) -> list[str]:
    """A line for each hostile client that quarantine lacks the expected reason for."""
    rows = run_query(str(run.lake), "SELECT client_instance_id, reason FROM quarantine_offenders").read_all()
    quarantined = {(row["client_instance_id"], row["reason"]) for row in rows.to_pylist()}
    return [
        f"quarantine has no {reason} for the client with {way}"
        for way, reason in REASONS.items()
        if (run.attack.clients[way], reason) not in quarantined
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-hostile-", ignore_cleanup_errors=True) as scratch:
        row = hostile(Path(scratch), args.minutes)
    print(json.dumps(row, indent=2))
    return int(bool(row["problems"]))


if __name__ == "__main__":
    sys.exit(main())
