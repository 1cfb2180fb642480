"""The stateful processor: judges a shard's pushes against the state that Spark's state store has of the shard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from kafka_telemetry_lake.pipelines.ingest.operator_task import Judging, TaskResults, attempted
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_ROWS, joined, sorted_slices
from kafka_telemetry_lake.pipelines.ingest.store_task import OTHERS, other_rows, push_rows
from kafka_telemetry_lake.pipelines.spark_engine.blobs import from_blob, to_blob
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES, QUARANTINE
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

# Rows of one table; or, without a table, what was counted (JSON).
OUTPUT = "name string, count bigint, columns string, rows binary"
FACTS = "facts"
ROWS_PER_BLOB = 1 << 16
BATCH = "streaming.sql.batchId"  # Spark's name of a task's local property


class TableBlobs:
    """Collects rows of one table as rows of `OUTPUT`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.rows: list[tuple[str, int, str, bytes]] = []

    def write(self, rows: pa.Table) -> None:
        for first in range(0, rows.num_rows, ROWS_PER_BLOB):
            part = rows.slice(first, ROWS_PER_BLOB)
            names = [name for name in part.column_names if part[name].null_count < part.num_rows]
            self.rows.append((self._name, part.num_rows, ",".join(names), to_blob(part.select(names))))


class ShardProcessor(StatefulProcessor):
    """Processes the records of a shard in a micro-batch.

    Args:
        begun: the batch that an earlier run has begun and not ended: one of its pushes may have ended that run.
    """

    def __init__(self, limits: Limits, shards: int, begun: int | None) -> None:
        self._limits, self._shards, self._begun = limits, shards, begun

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("shard", "blob binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any  # noqa: ARG002, N803  # Spark's names
    ) -> Iterator[pd.DataFrame]:
        records = [batch for frame in rows for blob in frame["records"] for batch in from_blob(blob).to_batches()]
        stored = self._state.get()
        before = ShardState.empty() if stored is None else ShardState.from_bytes(stored[0])
        guarded = self._begun is not None and _batch() == self._begun
        output, state = attempted(lambda guard: self._attempt(records, before, guard), guarded=guarded)
        self._state.update((state.to_bytes(),))
        for row in output:
            yield pd.DataFrame([row], columns=["name", "count", "columns", "rows"])

    def close(self) -> None:
        pass

    def _attempt(
        self, records: Sequence[pa.RecordBatch], state: ShardState, guarded: bool
    ) -> tuple[list[tuple[str, int, str, bytes]], ShardState]:
        writers = {table.name: TableBlobs(table.name) for table in (PUSHES, *OTHERS, *OPERATOR_TABLES)}
        for batch in records:
            for name, rows in other_rows(batch).items():
                writers[name].write(rows)
        slices = list(sorted_slices(pa.Table.from_batches(map(push_rows, records)).cast(PUSHES.schema)))
        for part in slices:
            writers[PUSHES.name].write(part)
        results = TaskResults(writers)
        results.counts["in_files"] += sum(part.num_rows for part in slices)
        judging = Judging(state, results, self._limits, self._shards)
        judging.run(joined((part.select(PUSHES_IN.names) for part in slices), SLICE_ROWS), guarded=guarded)
        results.close()
        facts = json.dumps({"counts": results.counts, "set_aside": judging.isolation.lines})
        output = [row for writer in writers.values() for row in writer.rows]
        return [*output, (FACTS, 0, facts, b"")], judging.state


def _batch() -> int | None:
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty(BATCH)
    return None if number is None else int(number)
