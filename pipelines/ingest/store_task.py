"""The first task of a micro-batch: landing records, as rows of `pushes`, become files of that table.

The files are written with Arrow, like those of the operator, and the driver only commits their names. A file's row
groups follow the landing partitions, so a shard's task reads only those that contain its clients (`push_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

STORED_FILE = "file string"  # a `DataFile` as JSON
_RESULT = pa.schema([("file", pa.string())])
# Texts that many pushes share: a dictionary makes them small.
REPEATED = (
    "source", "cluster_id", "topic", "client_id", "content_type", "compression_type", "principal", "listener",
    "security_protocol", "client_software_name", "client_software_version", "dropped",
)  # fmt: skip


@dataclass(frozen=True)
class StoreTask:
    """Writes its part of a micro-batch; the files count once the driver has committed them.

    Attributes:
        lake: folder or URI of the lake.
    """

    lake: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = TableFiles(PUSHES, self.lake)
        for rows in _row_groups(batches):
            files.write(rows)
        texts = [file.to_json() for file in files.close()]
        pa.default_memory_pool().release_unused()
        forget_archives()
        yield pa.RecordBatch.from_pydict({"file": texts}, _RESULT)


def store(rows: DataFrame, lake: str, processes: int | None = None) -> list[DataFile]:
    """Write rows of `pushes` to files of the table, which no commit names yet.

    Args:
        rows: columns of ``PUSHES.schema``, in the order of the source.
        processes: number of Python workers to use at once; None: as many as the session has cores.
    """
    # A task has fixed costs: no more of them than can run at once.
    parallelism = processes or rows.sparkSession.sparkContext.defaultParallelism
    chosen = rows.select(*PUSHES.schema.names).coalesce(parallelism)
    return [DataFile.from_json(row["file"]) for row in chosen.mapInArrow(StoreTask(lake), STORED_FILE).collect()]


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of one landing partition each, of about `SLICE_BYTES` or fewer."""
    waiting: list[pa.RecordBatch] = []
    size, partition = 0, None
    for batch in batches:
        for part in _by_partition(batch):
            own = part["partition"][0]
            if waiting and (own != partition or size >= SLICE_BYTES):
                yield _table(waiting)
                waiting, size = [], 0
            waiting.append(part)
            size, partition = size + part.nbytes, own
    if waiting:
        yield _table(waiting)


def _by_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    changes = np.flatnonzero(np.diff(batch["partition"].to_numpy())) + 1
    bounds = [0, *changes.tolist(), batch.num_rows]
    for first, last in pairwise(bounds):
        if last > first:
            yield batch.slice(first, last - first)


def _table(parts: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(parts).cast(PUSHES.schema)
    for name in REPEATED:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place).with_type(_TEXT), rows[name].dictionary_encode())
    return rows


_TEXT = pa.dictionary(pa.int32(), pa.string())
