"""The jobs of a lake whose interleavings are explored: the project's code, without Spark and with small tasks.

A record of the source is a number. A batch's tasks judge its pushes by a state that contains all numbers judged so far:
the row of a push has them too. So a push that is lost, doubled or judged from a wrong state is seen in every later row.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from deltalake.exceptions import DeltaError
from filelock import Timeout

from kafka_telemetry_lake.jobs import reshard as reshard_command
from kafka_telemetry_lake.jobs.settings.reshard import ReshardSettings
from kafka_telemetry_lake.jobs.support import judging, locks
from kafka_telemetry_lake.pipelines.ingest import checkpoint, operator, streams
from kafka_telemetry_lake.pipelines.ingest import reshard as pipelines_reshard
from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, begun_batch, check_checkpoints
from kafka_telemetry_lake.pipelines.ingest.operator_task import ProcessedBatch, ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import Stored
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, LandingBatches
from kafka_telemetry_lake.pipelines.lake import checkpoint_folders, delta_log, fence
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.state import manifest
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.redistribute import Redistributed
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.model_store import LOG, MISSING, Delta, Disk, ask, in_memory, path_in, process_name

LAKE, FOLDER = "s3a://lake", "/lake"  # at a URI, and in a folder, which has a lock
ROOT = "lake"
LOCK = f"{ROOT}/{locks.LOCK}"
TABLES = (PUSHES, METRIC_POINTS, PUSH_OUTCOMES)
QUERY = "query"
DAY = "2026-11-24"


class ModelError(Exception):
    """An error that Spark raises; the job ends with it."""


def empty_lake() -> Disk:
    """The tables, without rows, and the ids of the queries."""
    about = json.dumps({"metaData": {"id": "lake"}}).encode()
    files = {f"{ROOT}/{table.name}{LOG}{0:020d}.json": about for table in TABLES}
    files |= {
        f"{ROOT}/_checkpoints/{name}/metadata": json.dumps({"id": QUERY}).encode() for name in ("landing", "points")
    }
    return Disk().changed(dict(files))


def ingest(
    records: int, per_batch: int, *, take_over: bool = False, lake: str = LAKE, shards: int | None = None
) -> str:
    """A run of the job over the records that a source has; returns how it ended.

    Args:
        records: of the source.
        per_batch: the most that a batch takes.
        lake: its URI, or its folder.
        shards: as the flag has it.
    """
    return ending(lambda: _ingest(records, per_batch, lake, shards, take_over=take_over))


def ending(code: Any) -> str:
    """Run a process's code; returns how it ended."""
    try:
        code()
    except (TelemetryLakeError, ModelError, OSError, DeltaError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _ingest(records: int, per_batch: int, uri: str, shards: int | None, *, take_over: bool) -> None:
    with locks.only_job(uri, "ingest", "busy", take_over=take_over) as lease:
        lake = JobLake(uri, checkpoint_folders.own_checkpoints(uri, None, lease), fence=lease)
        check_checkpoints(uri, lake.checkpoints)
        replay.finish_swap(uri, lake.checkpoints, lease)
        judge = judging.caught_up_operator(_SPARK, lake, Limits(), 1 << 30, threading.Event(), shards)
        batches = LandingBatches(uri, lease, judge, begun_batch(lake.landing))
        app_id = f"kafka-telemetry-lake:{LANDING}:{QUERY}"
        for number, first, last in Query(lake.landing, records, per_batch):
            plan = batches.begin(app_id, number)
            batches.finish(app_id, number, None if plan is None else _stored(range(first, last), plan.judge))


def _stored(pushes: Sequence[int], judge: ShardTask | None) -> Stored:
    file = _written(PUSHES, [[push] for push in pushes])
    if judge is None:
        return Stored([file], None, failed=False)
    task = replace(judge, paths=(file.path,))
    return Stored([file], ProcessedBatch(task, judged(None, task), 0.0), failed=False)  # type: ignore[arg-type]  # its rows are dicts


def swap() -> str:
    """A replay of all pushes: the same rows in new files, swapped in by the project's code."""
    return ending(_swap)


def _swap() -> None:
    with locks.only_job(LAKE, "replay", "busy") as lease:
        lake = JobLake(LAKE, checkpoint_folders.own_checkpoints(LAKE, None, lease), fence=lease)
        check_checkpoints(LAKE, lake.checkpoints)
        replay.finish_swap(LAKE, lake.checkpoints, lease)
        judging.caught_up_operator(_SPARK, lake, Limits(), 1 << 30, threading.Event())
        state = StateFolder(lake.checkpoint(checkpoint.STATE), None, 1)
        last = state.last()
        assert last is not None
        paths = tuple(file["path"] for file in files_of(Delta(PUSHES.uri(LAKE))))  # type: ignore[arg-type]  # what it uses of it
        [row] = judged(None, ShardTask(LAKE, last.batch_id, paths, 1, state.uri))
        files = [DataFile.from_json(text) for text in row["files"]]
        replay._write_swap(lake.checkpoints, uuid.uuid4().hex, last, {0: tuple(row["state"])}, None, files, ())
        replay.finish_swap(LAKE, lake.checkpoints, lease)


def reshard(shards: int) -> str:
    """The command `reshard`."""
    return ending(lambda: reshard_command.run_job(ReshardSettings(lake=LAKE, shards=shards)))


def maintain() -> str:
    """Merges the files of each table, while a job runs and without a lease, as ``telemetry-lake maintain`` does."""
    return ending(_maintain)


def _maintain() -> None:
    for table in TABLES:
        files = files_of(Delta(table.uri(LAKE)))  # type: ignore[arg-type]  # what it uses of it
        rows = [row for file in files for row in json.loads(ask("read", f"{ROOT}/{table.name}/{file['path']}"))]
        if len(files) > 1:
            TableLog(table, LAKE).rearrange(files, [_written(table, rows)])


def follow(pushes: int, per_step: int, *, take_over: bool = False) -> str:
    """What follows a table by steps, with its notes in a table's folder, in the order of `Lifecycle`."""
    return ending(lambda: _follow(pushes, per_step, take_over=take_over))


def _follow(pushes: int, per_step: int, *, take_over: bool) -> None:
    with locks.only_job(LAKE, "ingest", "busy", take_over=take_over) as lease:
        checkpoint_folders.own_checkpoints(LAKE, None, lease)
        log = TableLog(METRIC_POINTS, LAKE, lease)
        file = FencedNote(METRIC_POINTS.uri(LAKE), "_follower", ("step", "done", "until"), "delete it", lease)
        note = file.read() or {"step": 0, "done": 0, "until": None}
        while note["until"] is not None or note["done"] < pushes:
            if note["until"] is None:
                note["until"] = min(note["done"] + per_step, pushes)
                file.write(note)
            rows = [[push] for push in range(note["done"], note["until"])]
            note = {"step": note["step"] + 1, "done": note["until"], "until": None}
            log.commit([_written(METRIC_POINTS, rows)], "follower", note["step"])
            file.write(note)


_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


class Query:
    """Batches as Spark's query has them: (number, first record, record after the last).

    Spark notes a batch in folder `offsets` before it runs, and in `commits` after that. An entry is written as
    `FileSystemBasedCheckpointFileManager` does: a look whether it exists, then a rename that replaces.
    """

    def __init__(self, checkpoint: str, records: int, per_batch: int) -> None:
        self._root, self._records, self._per_batch = path_in(checkpoint), records, per_batch

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        number, done = self._latest("offsets"), self._latest("commits")
        first = 0
        if number >= 0:
            data = ask("read", f"{self._root}/offsets/{number}")
            if data == MISSING:
                raise ModelError(f"offsets/{number} does not exist")
            entry = json.loads(data)
            first = entry["last"]
            if done < number:
                yield number, entry["first"], entry["last"]
                self._add("commits", number, {})
        while first < self._records:
            number, last = number + 1, min(first + self._per_batch, self._records)
            self._add("offsets", number, {"first": first, "last": last})
            yield number, first, last
            self._add("commits", number, {})
            first = last

    def _latest(self, log: str) -> int:
        names = [path.rpartition("/")[2] for path, _ in ask("list", f"{self._root}/{log}", False)]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _add(self, log: str, number: int, entry: Mapping[str, int]) -> None:
        path = f"{self._root}/{log}/{number}"
        if ask("read", path) != MISSING:
            raise ModelError(f"{log}/{number}: multiple streaming jobs detected")
        ask("put", path, json.dumps(entry).encode())


def judged(_: Any, task: ShardTask, *__: Any) -> list[dict[str, Any]]:
    """What the operator's tasks make of a batch."""
    shard = task.batch_id % task.shards
    folder = path_in(task.state_folder)
    before = _pushes_of(folder, task.states)
    pushes = sorted(push for path in task.paths for (push,) in json.loads(ask("read", f"{ROOT}/{PUSHES.name}/{path}")))
    rows = [[push, [*before, *pushes[:index]]] for index, push in enumerate(pushes)]
    state = _new_state(folder, shard, task.batch_id, pushes)
    files = [_written(table, rows) for table in (METRIC_POINTS, PUSH_OUTCOMES)]
    texts = [file.to_json() for file in files]
    chain = (*task.states.get(shard, ()), state)
    return [{"shard": shard, "state": chain, "files": texts, "counts": {}, "set_aside": []}]


def _pushes_of(folder: str, states: Mapping[int, Sequence[str]]) -> list[int]:
    """The pushes in the state of all shards."""
    pushes: list[int] = []
    for name in itertools.chain(*states.values()):
        if (data := ask("read", f"{folder}/{name}")) == MISSING:
            raise FileNotFoundError(name)
        pushes += json.loads(data)
    return sorted(pushes)


def _new_state(folder: str, shard: int, batch: int, pushes: Sequence[int]) -> str:
    name = f"{shard}-{batch:010d}-{uuid.uuid4()}.state"
    ask("put", f"{folder}/{name}", json.dumps(pushes).encode())
    return name


def redistributed(uri: str, states: Mapping[int, Sequence[str]], shards: int, batch: int) -> Redistributed:
    """Instead of `redistribute`: each push to another shard, modulo their number."""
    folder = path_in(uri)
    pushes = _pushes_of(folder, states)
    return Redistributed(
        {shard: (_new_state(folder, shard, batch, pushes[shard::shards]),) for shard in range(shards)}, len(pushes)
    )


def _written(table: Table, rows: Sequence[Any]) -> DataFile:
    path, data = f"landed_date={DAY}/part-{uuid.uuid4()}.parquet", json.dumps(rows).encode()
    ask("put", f"{ROOT}/{table.name}/{path}", data)
    stats = json.dumps({"numRecords": len(rows), "maxValues": {"landed_at": f"{DAY}T00:00:00.000Z"}})
    return DataFile(table.name, path, len(data), len(rows), DAY, stats)


class InOrder:
    """Instead of a thread pool: runs each call at once."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> InOrder:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, code: Any, *values: Any) -> Iterator[Any]:
        return map(code, *values)

    def submit(self, code: Any, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(code(*args))
        return done


class _Folder(PurePosixPath):
    """A folder in memory: it is in the paths of its files."""

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        pass


class _FileLock:
    """Instead of that of the operating system, which each machine has: a file that names the process."""

    def __init__(self, path: PurePosixPath, timeout: float) -> None:  # noqa: ARG002  # as the library has it
        self._path = f"{path_in(str(path))}-{fence.this_process('').machine}"

    def acquire(self) -> None:
        if not ask("create", self._path, process_name().encode()):
            raise Timeout(self._path)

    def release(self) -> None:
        ask("delete", self._path)


def unlocked(name: str, disk: Disk) -> Disk:
    """The disk after a process was killed: its lock is free."""
    own = [path for path, data in disk.files.items() if path.startswith(LOCK) and data == name.encode()]
    return disk.changed(dict.fromkeys(own))


@contextmanager
def model() -> Iterator[None]:
    """Let the project's code run as jobs of this module do: in memory, without Spark, threads, clocks and logs."""
    no_time = SimpleNamespace(time=lambda: 0.0, clock_gettime=lambda _: 0.0)
    guard = OffsetGuard("", (), -1)
    changes = [
        (operator, "run_tasks", judged),
        (operator, "ThreadPoolExecutor", InOrder),
        (manifest, "Snapshots", lambda _: SimpleNamespace(due=lambda *_: False, all=tuple)),
        (operator, "COMMIT_ORDER", (METRIC_POINTS, PUSH_OUTCOMES)),
        (checkpoint, "STREAMS", {LANDING: (PUSHES,), checkpoint.POINTS: (METRIC_POINTS, PUSH_OUTCOMES)}),
        (OffsetGuard, "load", staticmethod(lambda *_: guard)),
        (streams, "STORED", (PUSHES,)),
        (replay, "OPERATOR_TABLES", (METRIC_POINTS, PUSH_OUTCOMES)),
        (replay, "Snapshots", lambda _: SimpleNamespace(all=tuple)),
        (replay, "update_followers", lambda *_: None),
        (replay, "drop_copies", lambda _: None),
        (reshard_command, "is_lake", lambda _: True),
        (pipelines_reshard, "OPERATOR_TABLES", (METRIC_POINTS, PUSH_OUTCOMES)),
        (pipelines_reshard, "redistribute", redistributed),
        (checkpoint_folders, "CATALOG", {table.name: table for table in TABLES}),
        (locks, "Path", _Folder),
        (locks, "FileLock", _FileLock),
        (Table, "create", lambda *_: None),
        (Fence, "keep_alive", lambda *_: None),
        (fence, "_machine", lambda: "a machine"),
        (fence, "PATIENCE_S", 0.0),  # a sign of life never comes in time
        (delta_log, "time", no_time),
    ]
    with ExitStack() as stack:
        stack.enter_context(in_memory())
        for owner, name, replacement in changes:
            stack.enter_context(patch.object(owner, name, replacement))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield
