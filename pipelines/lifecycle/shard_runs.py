"""Where the work on clients is done: in the job's own process, or in tasks of Spark once there are many clients."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import ShardsTask, Work, take_changes
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER

RunTask = Callable[[ShardsTask], Sequence[Any]]  # returns rows of `TASK_RESULT`


class ShardRuns(Protocol):
    """Does work on all clients of a lake."""

    @property
    def shards(self) -> int:
        """Into which the clients are divided."""

    @property
    def deadline(self) -> int:
        """The first deadline of a client before any work, µs; 0: not known."""

    def __call__(self, work: Work, step: int) -> list[Any]:
        """The result of each shard. After it the state is that of the step."""


class InProcess:
    """All clients in the memory of this process, as one shard.

    Args:
        table: `client_changes`, which is as of a step.
    """

    shards = 1

    def __init__(self, lake: Lake, table: DeltaTable, step: int) -> None:
        self._lake, self.clients = lake, Clients()
        take_changes(table, {0: (self.clients, -1)}, 1, step)

    @property
    def deadline(self) -> int:
        return int(self.clients["deadline"].min(initial=int(NEVER)))

    def __call__(self, work: Work, step: int) -> list[Any]:
        return list(work.run(self._lake, step, 1, {0: self.clients}).values())


class InTasks:
    """Clients divided into shards by their ids, each in the files of the machine that ran its last task.

    Args:
        run: runs the task for each shard.
    """

    deadline = 0

    def __init__(self, lake: Lake, shards: int, run: RunTask) -> None:
        self._lake, self.shards, self._run = lake, shards, run
        self._job = uuid.uuid4().hex

    def __call__(self, work: Work, step: int) -> list[Any]:
        rows = self._run(ShardsTask(Lake(self._lake.uri), self._job, self.shards, step, work))
        return [pickle.loads(row["result"]) for row in rows]  # of our own task
