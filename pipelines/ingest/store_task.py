"""The first task of a micro-batch: landing records become files of `pushes` and of the other tables they belong to.

The files are written with Arrow, like those of the operator, and the driver only commits their names. The row groups of
a file of `pushes` follow the landing partitions, so a shard's task reads only those that contain its clients
(`push_files`).

If the pushes are few, the task judges them too, which saves a Spark job: nearly all that such a batch costs is fixed.
The results count once the pushes are committed. A push may make this fail. So a task that is tried again only stores,
says so, and the operator judges the stored pushes as those of a larger batch. The task alone decides which it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kafka_telemetry_lake.pipelines.ingest.landing_rows import CONNECTIONS, OTHERS, SAMPLE, STATUS, to_pushes
from kafka_telemetry_lake.pipelines.ingest.operator_task import (
    TASK_RESULT,
    TASK_RESULT_TYPE,
    ProcessedBatch,
    ShardTask,
    is_death,
    was_tried_before,
)
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES
from kafka_telemetry_lake.pipelines.ingest.row_order import sorted_by_client
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED, Privacy
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.tables.operator import (
    BROKER_CONNECTIONS,
    PUSHES,
    QUARANTINE,
    QUOTA_SAMPLES,
    RECEIVER_HEALTH,
)

# A status is stored once its row of `receiver_health` is, so what else it gives comes before.
OTHER_TABLES = (BROKER_CONNECTIONS, RECEIVER_HEALTH, QUOTA_SAMPLES, QUARANTINE)
# In the order of their commits; the last one says that the pushes of a batch are stored.
STORED = (*OTHER_TABLES, PUSHES)
ROWS_PER_GROUP = 1 << 16  # of statuses or samples
# Of push files, whose rows are sorted by client: fewer are not worth a Python worker of their own.
WORKER_BYTES = 1 << 20
# A row has a `DataFile` as JSON, or what the operator's task made of a shard, or `failed`: the pushes are few, and not
# judged, since a process that did it may have died of them.
RESULT = f"file string, judged struct<{TASK_RESULT}>, failed boolean"
_RESULT = pa.schema([("file", pa.string()), ("judged", TASK_RESULT_TYPE), ("failed", pa.bool_())])

log = logging.getLogger(__name__)
# Texts that many pushes share: a dictionary makes them small.
REPEATED = (
    "source", "cluster_id", "topic", "client_id", "content_type", "compression_type", "principal", "listener",
    "security_protocol", "client_software_name", "client_software_version", "dropped",
)  # fmt: skip


@dataclass(frozen=True)
class StoreTask(WorkerTask):
    """Writes its part of a micro-batch; the files count once the driver has committed them.

    Attributes:
        lake: folder or URI of the lake.
        judge: judges the stored pushes if they are few; has no paths yet.
        shards: of the operator. The files of `pushes` note which of them they hold.
        privacy: how principals and addresses are stored.
        tried_before: an earlier task with these records has died.
    """

    lake: str
    judge: ShardTask | None = None
    shards: int = 1
    privacy: Privacy = UNCHANGED
    tried_before: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = {table.name: TableFiles(table, self.lake) for table in OTHER_TABLES}
        files[PUSHES.name] = TableFiles(PUSHES, self.lake, shards=self.shards)
        others: dict[str, list[pa.Table]] = {table.name: [] for table in OTHER_TABLES}

        def pushes() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = other_rows(batch)
                for table, each in rows.items():
                    others[table].append(each)
                    if _is_full(others[table]):
                        files[table].write(pa.concat_tables(others[table]))
                        others[table].clear()
                yield to_pushes(push_records(batch) if rows else batch, self.privacy)

        for rows in _row_groups(pushes()):
            files[PUSHES.name].write(rows)
        for table, parts in others.items():
            if parts:
                files[table].write(pa.concat_tables(parts))
        written = [file for each in files.values() for file in each.close()]
        pa.default_memory_pool().release_unused()
        forget_archives()
        yield _results("file", [file.to_json() for file in written])
        task = None if self.judge is None else of_few_pushes(self.judge, written)
        if task is None:
            return
        if self.tried_before or was_tried_before():
            yield _results("failed", [True])
            return
        for rows in task([pa.RecordBatch.from_pydict({"id": range(task.shards)})]):
            yield _results("judged", rows.to_struct_array())


@dataclass(frozen=True)
class Stored:
    """What was made of landing records; nothing of it is committed yet.

    Attributes:
        files: files of the tables `STORED`.
        judged: what the pushes give, if the task has judged them.
        failed: whether a process may have died of judging them.
    """

    files: list[DataFile]
    judged: ProcessedBatch | None
    failed: bool


def store(
    rows: DataFrame,
    lake: str,
    workers: int,
    judge: ShardTask | None = None,
    shards: int = 1,
    privacy: Privacy = UNCHANGED,
) -> Stored:
    """Write landing records to files of the tables `STORED`.

    Args:
        rows: columns of `landing_rows`, in the order of the source. A batch of pushes alone may lack `OTHERS`.
        workers: number of Python workers to use, if the session has as many cores.
        judge: judges the pushes if they are few; needs one worker.
        shards: of the operator.
        privacy: how principals and addresses are stored.
    """
    began = time.monotonic()
    # A task has fixed costs: no more of them than can run at once.
    chosen = rows.coalesce(min(workers, rows.sparkSession.sparkContext.defaultParallelism))
    task = StoreTask(lake, judge, shards, privacy)
    try:
        results = chosen.mapInArrow(task, RESULT).collect()
    except (Py4JJavaError, PySparkException) as error:
        if judge is None or not is_death(error):
            raise
        log.warning("pushes: a task's process died, storing the pushes before they are judged")
        results = chosen.mapInArrow(replace(task, tried_before=True), RESULT).collect()
    files = [DataFile.from_json(row["file"]) for row in results if row["file"] is not None]
    made, judged = [row["judged"] for row in results if row["judged"] is not None], None
    if judge is not None and made:
        paths = tuple(file.path for file in files if file.table == PUSHES.name)
        judged = ProcessedBatch(replace(judge, paths=paths), made, began)
    return Stored(files, judged, failed=any(row["failed"] for row in results))


def workers_for(size: int) -> int:
    """How many Python workers so many bytes of push files are worth."""
    return 1 + size // WORKER_BYTES


def of_few_pushes(task: ShardTask, files: Iterable[DataFile]) -> ShardTask | None:
    """The task with the paths of these files of `pushes`; None: there are none, or they are too large."""
    own = [file for file in files if file.table == PUSHES.name]
    if not own or workers_for(sum(file.size for file in own)) > 1:
        return None
    held = {file.path: HeldShards.from_json(file.held) for file in own if file.held is not None}
    return replace(task, paths=tuple(file.path for file in own), held=held)


def _results(name: str, values: Sequence[Any] | pa.Array) -> pa.RecordBatch:
    """Rows of `_RESULT` of which only one column isn't NULL."""
    arrays = [values if field.name == name else pa.nulls(len(values), field.type) for field in _RESULT]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT)


def _is_full(parts: Sequence[pa.Table]) -> bool:
    """Whether these rows are written as a row group; a rejected sample may have a payload of any size."""
    size: int = sum(part.nbytes for part in parts)
    return size >= SLICE_BYTES or sum(part.num_rows for part in parts) >= ROWS_PER_GROUP


def push_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records that are pushes."""
    return batch.filter(pc.and_(batch[STATUS].is_null(), batch[SAMPLE].is_null()))


def other_rows(batch: pa.RecordBatch) -> dict[str, pa.Table]:
    """The rows of other tables than `pushes`, by table; empty if a batch has only pushes."""
    rows: dict[str, pa.Table] = {}
    if set(OTHERS).isdisjoint(batch.schema.names):
        return rows
    if batch[STATUS].null_count < len(batch):
        rows[RECEIVER_HEALTH.name] = _fields(batch[STATUS], RECEIVER_HEALTH.schema)
        rows[BROKER_CONNECTIONS.name] = _fields(_connections(batch[STATUS].drop_null()), BROKER_CONNECTIONS.schema)
    if batch[SAMPLE].null_count < len(batch):
        samples = batch[SAMPLE].drop_null()
        is_valid = samples.field("reason").is_null()
        rows[QUOTA_SAMPLES.name] = _fields(samples.filter(is_valid), QUOTA_SAMPLES.schema)
        rows[QUARANTINE.name] = _fields(samples.filter(pc.invert(is_valid)), QUARANTINE.schema)
    return rows


def _connections(statuses: pa.StructArray) -> pa.StructArray:
    """Each entry of the statuses' lists of connections, with the status' own fields."""
    lists = statuses.field(CONNECTIONS)
    rows = pa.Table.from_struct_array(statuses).drop_columns(CONNECTIONS).take(pc.list_parent_indices(lists))
    entries = pa.Table.from_struct_array(pc.list_flatten(lists))
    for name in entries.column_names:
        rows = rows.append_column(name, entries[name])
    return rows.to_struct_array().combine_chunks()


def _fields(structs: pa.Array, schema: pa.Schema) -> pa.Table:
    """The structs that aren't NULL, as rows; a column without a field is NULL."""
    rows = pa.Table.from_struct_array(structs.drop_null())
    columns = [
        rows[name] if name in rows.column_names else pa.nulls(len(rows), kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.table(columns, schema.names).cast(schema)


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
    return sorted_by_client(rows)


_TEXT = pa.dictionary(pa.int32(), pa.string())
