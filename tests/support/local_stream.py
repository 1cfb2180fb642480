"""The two streams of the job in this process, batch by batch, without Spark: for tests of what comes after them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.ingest.landing_rows import to_pushes
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from tests.support.landed import landed
from tests.support.ledger import Fleet

SHARDS = 2


def run_tasks(task: ShardTask, cores: int = 1) -> Iterator[Mapping[str, Any]]:
    """What Spark's `mapInArrow` does, in this process, with so many tasks for the shards."""
    for part in np.array_split(range(task.shards), cores):
        for batch in task([pa.record_batch({"id": part})]):
            yield from batch.to_pylist(maps_as_pydicts="strict")


def push_rows(records: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows of `pushes` that landing records give: columns of ``PUSHES.schema``."""
    return pa.Table.from_batches([to_pushes(landed(records), UNCHANGED)])


class LocalStream:
    """A lake below a folder, with the checkpoint folder where the job has it."""

    def __init__(self, folder: Path) -> None:
        self.lake = folder / "lake"
        self.checkpoints = self.lake / "_checkpoints"
        self.state = StateFolder(str(self.checkpoints / "points-state"), SHARDS, SHARDS)
        self.batch_id = 0
        for table in TABLES:
            table.create(str(self.lake))

    def copied(self, folder: Path) -> LocalStream:
        """The same lake below another folder."""
        shutil.copytree(self.lake, folder / "lake")
        other = LocalStream(folder)
        other.batch_id = self.batch_id
        return other

    def land(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Landing records into `pushes`, as one batch of the job does."""
        pushes = PUSHES.with_partition(push_rows(records))
        pushes = pushes.sort_by([("partition", "ascending"), ("offset", "ascending")])
        write_deltalake(PUSHES.uri(str(self.lake)), pushes, mode="append", partition_by=[LANDED_DATE.name])

    def judge(
        self, paths: Iterable[str], guarded: bool = False, held: Mapping[str, HeldShards] | None = None,
        cores: int = SHARDS,
    ) -> None:  # fmt: skip
        """One batch of the operator over files of `pushes`; `held` as a commit has it."""
        manifest = self.state.before(self.batch_id)
        task = ShardTask(
            str(self.lake), self.batch_id, tuple(paths), manifest.shards, self.state.uri, manifest.states,
            guarded=guarded, held=dict(held or {}),
        )  # fmt: skip
        results = list(run_tasks(task, cores))
        self.counts = sum((Counter(row["counts"]) for row in results), Counter[str]())
        self.set_aside = [line for row in results for line in row["set_aside"]]
        self.state.write(manifest.after(self.batch_id, {row["shard"]: row["state"] for row in results}))
        files = [DataFile.from_json(text) for row in results for text in row["files"]]
        for table in OPERATOR_TABLES:
            own = [file for file in files if file.table == table.name]
            TableLog(table, str(self.lake)).commit(own, "kafka-telemetry-lake:points:test", self.batch_id)
        self.batch_id += 1

    def batch(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Land and judge."""
        before = set(self.paths())
        self.land(records)
        self.judge(sorted(set(self.paths()) - before))

    def paths(self) -> list[str]:
        paths: list[str] = pa.table(DeltaTable(PUSHES.uri(str(self.lake))).get_add_actions())["path"].to_pylist()
        return paths

    def snapshot(self) -> None:
        """As the job takes one, after a batch."""
        at = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(hours=self.batch_id)
        self.state.snapshots.take(at, self.state.before(self.batch_id), str(self.lake))


@cache
def _made(clients: int, pushes: tuple[int, ...]) -> tuple[TemporaryDirectory[str], LocalStream, Fleet]:
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    stream, fleet = LocalStream(Path(folder.name)), Fleet(clients=clients)
    for number in pushes:
        stream.batch(fleet.round(number))
    return folder, stream, fleet


def stream_of(folder: Path, clients: int, batches: int | tuple[int, ...]) -> tuple[LocalStream, Fleet]:
    """A copy of a fleet's lake, and the fleet, which goes on.

    Args:
        batches: how many pushes each client has in each; a number: so many batches of two pushes.
    """
    _, stream, fleet = _made(clients, (2,) * batches if isinstance(batches, int) else batches)
    return stream.copied(folder), deepcopy(fleet)
