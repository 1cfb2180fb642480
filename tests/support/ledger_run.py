"""The job as a process into a lake of its own, beside a fleet whose ledger knows what must come out.

What the tests of single faults and ``make soak`` share.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil
from confluent_kafka import Producer
from deltalake import DeltaTable

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.landing_records import write
from tests.support.ledger import Fleet, Landed, Ledger
from tests.support.ledger_check import Verdict, check
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.s3_server import BUCKET, S3Server

ROOT = Path(__file__).parents[2]


class Job(Protocol):
    """What is used of a process: ``Popen``, or `forked_job`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


class Run:
    """``telemetry-lake ingest`` over <folder>/in."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder, self.lake, self.log = folder, folder / "lake", folder / "job.log"
        self.environment: dict[str, str] = {}  # of the job, beside this process's own
        self.fleet = Fleet(seed=seed)
        self.running: list[Job] = []
        self.recoveries_s: list[float] = []
        self.files = 0
        self.look_s = 0.02  # between two looks at the lake

    @property
    def ledger(self) -> Ledger:
        """What has landed, and what it must add up to."""
        return self.fleet.ledger

    @property
    def uri(self) -> str:
        """The lake, as the job names it."""
        return str(self.lake)

    def source(self) -> tuple[str, ...]:
        return ("--source", f"files:{self.folder / 'in'}")

    def land(self) -> None:
        """A round of the fleet's pushes."""
        write(self.folder / "in", f"{self.files:03d}.parquet", self.fleet.round())
        self.files += 1

    def start(
        self,
        *flags: str,
        command: tuple[str, ...] = (),
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        argv = command or (sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest",
                           *self.source(), "--lake", self.uri, "--driver-memory", "1g", *flags)  # fmt: skip
        with (log or self.log).open("ab") as output:
            known = {**os.environ, **self.environment, **(environment or {})}
            job = subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, env=known)
        self.running.append(job)
        return job

    def judged(self) -> int:
        there = (self.lake / "push_outcomes" / "_delta_log").is_dir()
        return DeltaTable(str(self.lake / "push_outcomes")).count() if there else 0

    def wait(self, there: Callable[[], object], job: Job) -> None:
        wait_until(there, process=job, said=self.said, every_s=self.look_s)

    def said(self) -> str:
        """The last words of the jobs, the latest last."""
        logs = sorted(self.folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-3000:]}" for log in logs[-2:])

    def wait_for_all(self, job: Job) -> None:
        """Until every landed push has an outcome."""
        self.wait(lambda: self.judged() == len(self.ledger.landed), job)

    def recover(self, job: Job) -> None:
        """After a fault: wait until the job judges pushes again, and note how long that took."""
        begun, before = time.monotonic(), self.judged()
        self.wait(lambda: self.judged() > before, job)
        self.recoveries_s.append(time.monotonic() - begun)

    def end(self, job: Job) -> None:
        job.send_signal(signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 0, self.said()

    def verdict(self) -> Verdict:
        """What the ledger says of the lake; a running job gets a moment for the last of its tables."""
        deadline = time.monotonic() + (PATIENCE_S if any(job.poll() is None for job in self.running) else 0)
        while not (found := check(self.lake, self.ledger)).right and time.monotonic() < deadline:
            time.sleep(1)
        return found

    def close(self) -> None:
        """End whatever still runs."""
        for job in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()


class StoreRun(Run):
    """The same into an S3 store, whose objects are files that the ledger's check reads.

    Args:
        server: VersityGW.
        endpoint: a proxy before it.
    """

    def __init__(self, folder: Path, server: S3Server, endpoint: str, seed: int = 1) -> None:
        super().__init__(folder, seed)
        self.lake = server.folder / BUCKET / folder.name
        self.environment = {**server.environment, "AWS_ENDPOINT_URL": endpoint}

    @property
    def uri(self) -> str:
        return f"s3a://{BUCKET}/{self.lake.name}"


class KafkaRun(Run):
    """The same over a topic; the ledger holds what the brokers said where the pushes were put."""

    def __init__(self, folder: Path, cluster: LocalCluster, seed: int = 1) -> None:
        super().__init__(folder, seed)
        self.cluster = cluster
        self.placed: list[Landed] = []

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.placed, self.fleet.ledger.increments)

    def source(self) -> tuple[str, ...]:
        return ("--source", "kafka", "--bootstrap-servers", self.cluster.bootstrap_servers)

    def land(self, receivers: int = 1) -> None:
        """A round of pushes, each landed by one of so many receivers: two overtake each other."""
        known = len(self.fleet.ledger.landed)
        records = self.fleet.round()
        self.placed += land(self.cluster, records, self.fleet.ledger.landed[known:], receivers)


def land(cluster: LocalCluster, records: list[dict[str, Any]], kinds: list[Landed], receivers: int = 1) -> list[Landed]:
    """Produce, and tell where the brokers put them."""
    # Idempotent: retries after a broker's restart would else turn round a push and the same one landed again.
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producers = [
        Producer({**servers, "enable.metrics.push": False, "enable.idempotence": True, "linger.ms": 20 * number})
        for number in range(receivers)
    ]
    placed: dict[bytes, list[Landed]] = {}
    planned = {(kind.partition, kind.offset): kind for kind in kinds}
    chance = random.Random(len(records))
    for record in records:  # which overtake each other, so aren't in the ledger's order
        kind = planned[record["partition"], record["offset"]]
        receiver = chance.randrange(receivers)
        headers = [(header["key"], header["value"]) for header in record["headers"]]
        headers.append(("broker_id", str(receiver + 1).encode()))
        one = record["key"] + (record["value"] or str(record["offset"]).encode())  # a push, however often it lands

        def done(error: object, message: Any, kind: Landed = kind, one: bytes = one) -> None:
            assert error is None
            where = Landed(message.partition(), message.offset(), kind.client, kind.kind, kind.points)
            placed.setdefault(one, []).append(where)

        producers[receiver].produce(
            "client-telemetry", record["value"], record["key"], record["partition"],
            timestamp=round(record["timestamp"].timestamp() * 1000), headers=headers, on_delivery=done,
        )  # fmt: skip
    for producer in producers:
        assert producer.flush(PATIENCE_S) == 0
    return [each for same in placed.values() for each in _first_counts(same)]


def _first_counts(same: list[Landed]) -> Iterator[Landed]:
    """Of one push that landed twice the first counts, whichever receiver was faster."""
    kinds = sorted((each.kind for each in same), key=lambda kind: kind == "again")
    for kind, each in zip(kinds, sorted(same, key=lambda each: each.offset), strict=True):
        yield Landed(each.partition, each.offset, each.client, kind, each.points)


def below(pid: int, *words: str) -> list[psutil.Process]:
    """Descendants whose command line has all the words."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if all(word in line for word in words):
            found.append(process)
    return found
