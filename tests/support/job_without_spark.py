"""``telemetry-lake ingest`` without Spark, as a process that has begun within seconds.

Only Spark is replaced: its query by `Query`, which notes its batches in folders ``offsets`` and ``commits`` as Spark
does; its workers by this process, which runs the job's own tasks. All else is the command, and its store is a real one.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.jobs import ingest
from kafka_telemetry_lake.pipelines.ingest import streams
from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, batches_of, begun_batch, query_id
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource
from kafka_telemetry_lake.pipelines.ingest.store_task import store
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, LandingBatches
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from tests.support.landed import landed
from tests.support.local_stream import SHARDS

POLL_S = 0.2
MOST_FILES = 2  # of a batch


def replace_spark() -> None:
    """Let the command `ingest` of this process run without Spark."""
    vars(ingest).update(spark_session=lambda *_, **__: _SESSION, kill_java=_nothing, start_landing=_start_landing)


class Rows:
    """What the job uses of a `DataFrame`: rows that go through a task."""

    def __init__(self, rows: pa.RecordBatch, task: Callable[..., Any] | None = None) -> None:
        self._rows, self._task = rows, task
        self.sparkSession = _SESSION

    def coalesce(self, _: int) -> Rows:
        return self

    def mapInArrow(self, task: Callable[..., Any], _: str) -> Rows:  # noqa: N802  # Spark's name
        return Rows(self._rows, task)

    def collect(self) -> list[dict[str, Any]]:
        assert self._task is not None
        return [row for batch in self._task([self._rows]) for row in batch.to_pylist(maps_as_pydicts="strict")]


def _nothing(*_: object) -> None:
    """Spark's end, and its listeners."""


_SESSION: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(
        master=f"local[{SHARDS}]",
        defaultParallelism=SHARDS,
        getLocalProperty=_nothing,
        setLocalProperty=_nothing,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: SimpleNamespace(waitUntilEmpty=_nothing))),
    ),
    streams=SimpleNamespace(addListener=_nothing, removeListener=_nothing),
    range=lambda first, end, *_: Rows(pa.record_batch({"id": range(first, end)})),
    stop=_nothing,
)


class Query:
    """A query over the files of a folder, in a thread. Its interface is that of Spark's ``StreamingQuery``."""

    name = "pushes"

    def __init__(self, lake: JobLake, folder: Path, trigger: float | None, operator: Operator) -> None:
        self._filesystem, self._root = filesystem_of(lake.landing)
        self._lake, self._folder, self._trigger = lake, folder, trigger
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._is_busy = True
        self._app_id = f"kafka-telemetry-lake:{LANDING}:{self._id()}"
        self._batches = LandingBatches(lake.path, lake.fence, operator, begun_batch(lake.landing))
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        return self._thread.is_alive()

    @property
    def status(self) -> Mapping[str, Any]:
        message = "Processing new data" if self._is_busy else "Waiting for data to arrive"
        return {"isTriggerActive": self._is_busy, "isDataAvailable": self._is_busy, "message": message}

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # the job reports it, whatever it is
            self._error = error

    def _follow(self) -> None:
        number = max(batches_of(self._filesystem, self._root, "offsets"), default=-1)
        done = max(batches_of(self._filesystem, self._root, "commits"), default=-1)
        entry = self._read(number) if number >= 0 else {"first": 0, "end": 0}
        if done < number:
            self._batch(number, entry)
        while not self._stop.is_set():
            first, there = entry["end"], len(self._files())
            if first < there:
                number, entry = number + 1, {"first": first, "end": min(first + MOST_FILES, there)}
                self._add("offsets", number, entry)
                self._batch(number, entry)
            elif self._trigger is None:
                return
            else:
                self._is_busy = False
                time.sleep(POLL_S)
                self._is_busy = True

    def _batch(self, number: int, entry: Mapping[str, int]) -> None:
        sync(self._filesystem, streams.entries(self._root, number))  # type: ignore[attr-defined]  # a step of `stopped_job`
        rows = pa.Table.from_batches(
            landed(pq.read_table(file).to_pylist()) for file in self._files()[entry["first"] : entry["end"]]
        ).sort_by([("partition", "ascending"), ("offset", "ascending")])

        plan, stored = self._batches.begin(self._app_id, number), None
        if plan is not None:
            [batch] = rows.combine_chunks().to_batches()
            stored = store(Rows(batch), self._lake.path, *plan)  # type: ignore[arg-type]  # what it uses of it
        self._batches.finish(self._app_id, number, stored)
        self._add("commits", number, {})

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("[!_]*.parquet"))

    def _id(self) -> str:
        if (known := query_id(self._filesystem, self._root)) is None:
            known = str(uuid.uuid4())
            self._write("metadata", json.dumps({"id": known}))
        return known

    def _read(self, number: int) -> dict[str, int]:
        with self._filesystem.open_input_file(f"{self._root}/offsets/{number}") as stream:
            entry: dict[str, int] = json.loads(stream.read().splitlines()[1])
        return entry

    def _add(self, log: str, number: int, entry: Mapping[str, int]) -> None:
        """A look whether the entry exists, then a rename that replaces (``FileSystemBasedCheckpointFileManager``)."""
        if self._filesystem.get_file_info(f"{self._root}/{log}/{number}").type != pafs.FileType.NotFound:
            raise RuntimeError(f"{log}/{number}: multiple streaming jobs detected")
        self._write(f"{log}/{number}", f"v1\n{json.dumps(entry)}")

    def _write(self, name: str, text: str) -> None:
        path = f"{self._root}/{name}"
        self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with self._filesystem.open_output_stream(f"{path}.tmp") as stream:
            stream.write(text.encode())
        self._filesystem.move(f"{path}.tmp", path)


def _start_landing(_: object, lake: JobLake, source: FilesSource, trigger: float | None, operator: Operator) -> Query:
    return Query(lake, Path(source.path), trigger, operator)
