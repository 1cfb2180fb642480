"""What a step of the lifecycle does with the clients of some shards, in a task of Spark or in the job's own process.

A task reads the pushes of the step, applies those of its clients, and writes the rows of table `client_changes`. The
driver gets what it commits and what needs the whole fleet: files, events, and counts of these.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.lifecycle.client_files import ClientFiles, client_files
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import StoredRows
from kafka_telemetry_lake.pipelines.runtime.python_worker import after_task
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import LimitedEvents
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN, Clocks, clocks_until, with_clocks
from kafka_telemetry_lake.udfs.lifecycle.step import OUTCOMES_IN, gone, step_shard
from kafka_telemetry_lake.udfs.lifecycle.waves import CountedEvents

log = logging.getLogger(__name__)

ROWS_AT_A_TIME = 65_536
# What a task returns to the driver, a row for each shard, pickled: what the work has returned for it.
TASK_RESULT = "shard int, result binary"
_RESULT = pa.schema([("shard", pa.int32()), ("result", pa.binary())])


class Work(Protocol):
    """What is done with the clients of some shards. It is shipped to a task."""

    @property
    def is_step(self) -> bool:
        """Whether it leads from the state of the step before to that of its step."""

    def run(self, lake: Lake, step: int, shards: int, clients: Mapping[int, Clients]) -> dict[int, Any]:
        """Do the work for some of the shards, and return what the driver needs of each.

        Args:
            step: number of the step.
            shards: into how many the clients are divided.
            clients: the state of each shard, by its number; changed in place.
        """


@dataclass(frozen=True)
class ShardResult:
    """What a step has made of a shard.

    Attributes:
        files: of table `client_changes`, not committed yet.
        clients, changed: how many there are, and how many of them have changed.
        deadline: the first one of a client of the shard, µs.
        clocks, pushes: of the whole step: clocks after it, and how many pushes it has read.
    """

    files: tuple[DataFile, ...]
    clients: int
    changed: int
    events: LimitedEvents
    counts: Counter[CountedEvents]
    deadline: int
    clocks: Clocks
    pushes: int


@dataclass(frozen=True)
class ApplyPushes:
    """Takes a step's pushes into the clients' state, and writes the rows of those that changed.

    Attributes:
        pushes, outcomes: files of both tables, as paths below them.
        stored: they are parts of this; None: they are those of commits.
        versions: rows of table `subscriptions`.
        clocks: those after the step before.
        now: µs; all pushes until then are known to have been read from a live source; None: not known.
    """

    pushes: tuple[str, ...]
    outcomes: tuple[str, ...]
    stored: StoredRows | None
    versions: pa.Table
    clocks: Clocks
    now: int | None
    is_step = True

    def run(self, lake: Lake, step: int, shards: int, clients: Mapping[int, Clients]) -> dict[int, ShardResult]:
        read = self._rows(PUSHES.uri(lake.uri), self.pushes, LIFECYCLE_IN)
        outcomes, clocks = self._rows(PUSH_OUTCOMES.uri(lake.uri), self.outcomes, OUTCOMES_IN), Clocks(self.clocks)
        pushes = with_clocks(read, clocks)
        until = clocks_until(clocks, self.now)
        of_push, of_outcome = (shards_of(_ids(rows), shards) for rows in (pushes, outcomes))
        results = {}
        for shard, state in clients.items():
            own = (pushes.filter(pa.array(of_push == shard)), outcomes.filter(pa.array(of_outcome == shard)))
            done = step_shard(state, until, *own, self.versions, step)
            files = lake.files(CLIENT_CHANGES)
            files.write(state.rows(done.changed))
            results[shard] = ShardResult(
                tuple(files.close()), state.size, len(done.changed), done.events, done.counts, done.deadline, clocks,
                read.num_rows,
            )  # fmt: skip
        return results

    def _rows(self, uri: str, files: Sequence[str], schema: pa.Schema) -> pa.Table:
        rows = FollowedTable(uri).read(list(files), schema)
        return rows if self.stored is None else self.stored.unread(rows)


@dataclass(frozen=True)
class MergeResult:
    """What a merge has written of a shard: files that aren't committed yet, and of how many clients."""

    files: tuple[DataFile, ...]
    clients: int


@dataclass(frozen=True)
class Merge:
    """Forgets the clients that are gone (L18), and writes one row of each of the others."""

    clocks: Clocks
    is_step = False

    def run(self, lake: Lake, step: int, shards: int, clients: Mapping[int, Clients]) -> dict[int, MergeResult]:  # noqa: ARG002  # it is the same for any step and number of shards
        return {shard: self._merge(lake, state) for shard, state in clients.items()}

    def _merge(self, lake: Lake, clients: Clients) -> MergeResult:
        files = lake.files(CLIENT_CHANGES)
        if len(lost := gone(clients, self.clocks)):
            clients.keep(np.setdiff1d(np.arange(clients.size), lost, assume_unique=True))
        for first in range(0, clients.size, ROWS_AT_A_TIME):  # a million rows at once took 1.5 GB
            files.write(clients.rows(np.arange(first, min(first + ROWS_AT_A_TIME, clients.size))))
        return MergeResult(tuple(files.close()), clients.size)


@dataclass(frozen=True)
class ShardsTask(WorkerTask):
    """Does a work in a task of Spark, as plain values that it can ship. Each row of its input is a shard's number.

    Attributes:
        job: a name that no other job has.
        step: number of the step whose state there is after it.
    """

    lake: Lake
    job: str
    shards: int
    step: int
    work: Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            shards = batch["id"].to_pylist()
            results = self.run(shards)
            rows = {"shard": shards, "result": [pickle.dumps(results[shard]) for shard in shards]}
            yield pa.RecordBatch.from_pydict(rows, schema=_RESULT)
            after_task()

    def run(self, shards: Sequence[int]) -> dict[int, Any]:
        """The results of some shards. Without room on the machine's disk, their state is read into memory."""
        try:
            with ExitStack() as stack:
                places = [(self.lake, self.job, shard, self.shards) for shard in sorted(shards)]
                files = {place[2]: stack.enter_context(client_files(*place)) for place in places}
                return self._run(files)
        except OSError as error:
            log.warning("lifecycle: clients are read from %s for each step: %s", CLIENT_CHANGES.name, error)
            return self._run(dict.fromkeys(shards))

    def _run(self, files: Mapping[int, ClientFiles | None]) -> dict[int, Any]:
        before = self.step - self.work.is_step
        for file in files.values():
            if file is not None and file.step > before:  # of an attempt that is made again
                file.clear()
        known = {shard: (Clients(), -1) if file is None else (file.clients, file.step) for shard, file in files.items()}
        if any(step < before for _, step in known.values()):
            take_changes(self.lake.table(CLIENT_CHANGES), known, self.shards, before)
        results = self.work.run(
            self.lake, self.step, self.shards, {shard: state for shard, (state, _) in known.items()}
        )
        for file in files.values():
            if file is not None:
                file.done(self.step)
        return results


def take_changes(table: DeltaTable, clients: Mapping[int, tuple[Clients, int]], shards: int, until: int) -> None:
    """Take rows into the state of shards.

    Args:
        table: `client_changes`.
        clients: the state of each shard, and the step that it is as of; -1: it is empty.
        until: step of the newest rows.
    """
    behind = {shard: each for shard, each in clients.items() if each[1] < until}
    of_steps = (pads.field("step") > min(step for _, step in behind.values())) & (pads.field("step") <= until)
    rows_of_table = table.to_pyarrow_dataset()
    for batch in rows_of_table.to_batches(CLIENT_CHANGES.schema.names, filter=of_steps, batch_size=ROWS_AT_A_TIME):
        rows = pa.Table.from_batches([batch])
        of_row, steps = shards_of(_ids(rows), shards), rows["step"].to_numpy()
        for shard, (state, step) in behind.items():
            own = (of_row == shard) & (steps > step)
            if own.any():
                state.put(rows.filter(pa.array(own)))


def _ids(rows: pa.Table) -> pa.Array:
    return rows["client_instance_id"].combine_chunks()
