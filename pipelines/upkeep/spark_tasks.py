"""Upkeep by Spark's tasks: groups of files are compacted, and files deleted, on all executors at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.upkeep.compaction import FileGroup, delete_files
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

WAVES_PER_COMMIT = 2  # groups for each core between two commits: what a kill costs
DELETED_BY_TASK = 2_000  # files, about a second's work
Part = TypeVar("Part")
RESULT = "id long, files array<string>"
_RESULT = pa.schema([("id", pa.int64()), ("files", pa.list_(pa.string()))])


class UpkeepFailedError(TelemetryLakeError):
    """A task failed as often as Spark tries it; the message is its cause."""


@dataclass(frozen=True)
class CompactionTask(WorkerTask):
    """Compacts groups. Each row of its input is a number of a group."""

    lake: str
    groups: Sequence[FileGroup]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                try:
                    files = [file.to_json() for file in self.groups[number].compact(self.lake)]
                except Exception as error:  # of a library, whose name may not say that it is an error
                    raise UpkeepFailedError(f"{type(error).__name__}: {error}") from error
                yield pa.RecordBatch.from_pylist([{"id": number, "files": files}], _RESULT)


@dataclass(frozen=True)
class DeletionTask(WorkerTask):
    """Deletes files. Each row of its input is a number of a chunk."""

    uri: str
    chunks: Sequence[Sequence[str]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                delete_files(self.uri, self.chunks[number])
            yield pa.RecordBatch.from_pylist([], _RESULT)


class InSpark:
    """The tasks of a session. A task that fails is tried again as often as Spark's settings say."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def compact(self, lake: str, groups: Sequence[FileGroup]) -> Iterator[tuple[FileGroup, list[DataFile]]]:
        cores = self._spark.sparkContext.defaultParallelism
        # The largest first, so that none of them runs alone at the end.
        ordered = sorted(groups, key=lambda group: -sum(file["size_bytes"] for file in group.files))
        for wave in _parts(ordered, WAVES_PER_COMMIT * cores):
            name = f"compact {len(wave)} groups of files of {wave[0].table}"
            for row in self._run(name, CompactionTask(lake, wave), len(wave)):
                yield wave[row["id"]], [DataFile.from_json(text) for text in row["files"]]

    def delete(self, uri: str, paths: Sequence[str]) -> None:
        chunks = list(_parts(paths, DELETED_BY_TASK))
        if chunks:
            self._run(f"delete {len(paths)} files of {uri}", DeletionTask(uri, chunks), len(chunks))

    def _run(self, name: str, task: CompactionTask | DeletionTask, tasks: int) -> list[Any]:
        try:
            with named(self._spark, f"maintain: {name}"):
                return self._spark.range(0, tasks, 1, tasks).mapInArrow(task, RESULT).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise UpkeepFailedError(cause(str(error)).rpartition("UpkeepFailedError: ")[2]) from error


def _parts(whole: Sequence[Part], length: int) -> Iterator[Sequence[Part]]:
    for first in range(0, len(whole), length):
        yield whole[first : first + length]
