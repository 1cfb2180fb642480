"""The job under measurement: `telemetry-lake ingest` as shipped, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.peers.cpu import TreeCpu
from benchmarks.suspension import suspended

ROOT = Path(__file__).parent.parent
LOOK_S = 0.5


class JobEndedError(RuntimeError):
    """The job exited during the measurement; the message is the end of its log."""


class Job:
    """A context manager in which the job runs and follows a topic, with its default settings."""

    def __init__(self, bootstrap_servers: str, lake: Path, *flags: str) -> None:
        self.lake = lake
        self._argv = [
            *[sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", "--source", "kafka"],
            *["--bootstrap-servers", bootstrap_servers, "--lake", str(lake), *flags],
        ]
        self.log = lake.with_suffix(".log")

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self._argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        self.tree = TreeCpu(self._process.pid).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.tree.__exit__(kind, error, trace)

    def paused(self) -> AbstractContextManager[None]:
        """Suspend all its processes while the block runs."""
        return suspended(self._process.pid)

    def check(self) -> None:
        """Raise `JobEndedError` if it no longer runs."""
        if self._process.poll() is not None:
            raise JobEndedError(self.log.read_text(errors="replace")[-3000:])

    def wait_for(self, pushes: int) -> None:
        """Wait until this many pushes have an outcome."""
        while self.pushes() < pushes:
            self.check()
            time.sleep(LOOK_S)

    def pushes(self) -> int:
        """Pushes that have an outcome."""
        table = self.lake / "push_outcomes"
        return DeltaTable(table).count() if (table / "_delta_log").exists() else 0

    def points(self) -> int:
        """Rows of metric_points."""
        table = self.lake / "metric_points"
        return DeltaTable(table).count() if (table / "_delta_log").exists() else 0


@dataclass(frozen=True)
class Commit:
    """One batch as a reader sees it: when its outcomes became visible, and when its pushes landed."""

    committed_ms: int
    landed_ms: pa.Array


def commits(lake: Path) -> Iterator[Commit]:
    """The batches of a lake in order, from `push_outcomes`, which is committed last of the tables that queries need.

    Compaction beside the job adds files too, whose rows were visible before.
    """
    folder = lake / "push_outcomes"
    for log in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        paths = [action["add"]["path"] for action in actions if "add" in action and action["add"]["dataChange"]]
        commit_info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        if paths:
            parts = [pq.read_table(folder / path, columns=["landed_at"], partitioning=None) for path in paths]
            landed = pa.concat_tables(parts)["landed_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            yield Commit(int(commit_info["timestamp"]), landed.combine_chunks())


def stored_bytes(lake: Path, table: str) -> int:
    """Bytes of the table's live files."""
    return sum(pa.table(DeltaTable(lake / table).get_add_actions())["size_bytes"].to_pylist())
