"""The stateful processor: converts a shard's pushes against the state that Spark's state store has of the shard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from kafka_telemetry_lake.pipelines.ingest.operator_task import PushConversion, TaskResults, attempted
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_ROWS, joined, sorted_slices
from kafka_telemetry_lake.pipelines.ingest.store_task import OTHER_TABLES, other_rows, push_records
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.spark_engine.packing import from_blob, to_blob
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

# Rows of a table: its name, their number, the columns that have a value, and a blob. A shard's last row is of no table
# and says as JSON what was counted.
OUTPUT = "name string, number bigint, columns string, rows binary"
FACTS = "facts"
ROWS_PER_BLOB = 1 << 16
STATE_LEVEL = 1  # of zstd. The JVM copies a state several times on its way to the store and back
BATCH = "streaming.sql.batchId"  # Spark's name of a task's local property


class OutputRow(NamedTuple):
    """A row of `OUTPUT`."""

    name: str
    number: int
    columns: str
    rows: bytes


class Output(NamedTuple):
    """What a shard's records give: rows, and the shard's next state."""

    rows: list[OutputRow]
    state: bytes


class TableBlobs:
    """Collects rows of one table as rows of `OUTPUT`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.rows: list[OutputRow] = []

    def write(self, rows: pa.Table) -> None:
        for first in range(0, rows.num_rows, ROWS_PER_BLOB):
            part = rows.slice(first, ROWS_PER_BLOB)
            names = [name for name in part.column_names if part[name].null_count < part.num_rows]
            self.rows.append(OutputRow(self._name, part.num_rows, ",".join(names), to_blob(part.select(names))))


class ShardProcessor(WorkerTask, StatefulProcessor):
    """Processes the records of a shard in a micro-batch.

    Args:
        begun: the batch that an earlier run has begun and not ended: one of its pushes may have ended that run.
    """

    def __init__(self, limits: Limits, shards: int, begun: int | None) -> None:
        self._limits, self._shards, self._begun = limits, shards, begun

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("shard", "blob binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ARG002  # Spark's
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803  # Spark's names
    ) -> Iterator[pd.DataFrame]:
        records = [batch for frame in rows for blob in frame["records"] for batch in from_blob(blob).to_batches()]
        stored = self._state.get()
        before = ShardState.empty() if stored is None else ShardState.from_bytes(zstandard.decompress(stored[0]))
        guarded = self._begun is not None and _batch() == self._begun
        output = attempted(lambda guard: self._attempt(records, before, guard), guarded=guarded)
        self._state.update((zstandard.compress(output.state, STATE_LEVEL),))
        for row in output.rows:
            yield pd.DataFrame([row], columns=OutputRow._fields)

    def close(self) -> None:
        pass

    def _attempt(self, records: Sequence[pa.RecordBatch], before: ShardState, guarded: bool) -> Output:
        writers = {table.name: TableBlobs(table.name) for table in (PUSHES, *OTHER_TABLES, *OPERATOR_TABLES)}
        for batch in records:
            for name, rows in other_rows(batch).items():
                writers[name].write(rows)
        pushes = pa.Table.from_batches(map(push_records, records)).select(PUSHES.schema.names)
        slices = list(sorted_slices(pushes.cast(PUSHES.schema)))
        for part in slices:
            writers[PUSHES.name].write(part)
        results = TaskResults(writers)
        results.counts["in_files"] += sum(part.num_rows for part in slices)
        conversion = PushConversion(before, results, self._limits, self._shards)
        conversion.run(joined((part.select(PUSHES_IN.names) for part in slices), SLICE_ROWS), guarded=guarded)
        results.close()
        state = conversion.state.to_bytes()
        facts = {
            "counts": results.counts,
            "set_aside": conversion.isolation.lines,
            "state_bytes": len(state),
            "landed_us": max((_latest_us(part) for part in slices), default=0),
        }
        output = [row for writer in writers.values() for row in writer.rows]
        return Output([*output, OutputRow(FACTS, 0, json.dumps(facts), b"")], state)


def _latest_us(pushes: pa.Table) -> int:
    return int(pc.max(pushes["landed_at"].cast(pa.int64())).as_py())


def _batch() -> int | None:
    """The number of the micro-batch that this task is of."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty(BATCH)
    return None if number is None else int(number)
