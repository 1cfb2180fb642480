"""Appends what a micro-batch has converted to the lake's tables, by Spark's own Delta writer."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_telemetry_lake.pipelines.ingest.batch_report import Report, facts_of, log_batch, progress_of
from kafka_telemetry_lake.pipelines.ingest.operator_task import log_set_aside
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER
from kafka_telemetry_lake.pipelines.quality.batch import broken_rules, describe
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.pipelines.spark_engine.lifecycle import BatchLifecycle
from kafka_telemetry_lake.pipelines.spark_engine.packing import from_blob
from kafka_telemetry_lake.pipelines.spark_engine.shard_processor import FACTS
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.operator import (
    BROKER_CONNECTIONS,
    PUSH_OUTCOMES,
    PUSHES,
    QUOTA_SAMPLES,
    RECEIVER_HEALTH,
)
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN
from kafka_telemetry_lake.udfs.lifecycle.step import OUTCOMES_IN

log = logging.getLogger(__name__)

WRITTEN = (PUSHES, BROKER_CONNECTIONS, RECEIVER_HEALTH, QUOTA_SAMPLES, *COMMIT_ORDER)  # in this order
ROWS_PER_FILE = 500_000  # at least, where a table gets several files


@dataclass(frozen=True)
class UnpackTask(WorkerTask):
    """Rows of `shard_processor.OUTPUT` to rows of a table, in a task of Spark.

    Attributes:
        schema: columns of the rows; a blob may lack some.
    """

    table: Table
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["rows"]:
                yield from self._rows(from_blob(blob.as_buffer())).to_batches()
        forget_archives()

    def _rows(self, rows: pa.Table) -> pa.Table:
        if LANDED_DATE.name in self.schema.names:
            rows = rows.append_column(LANDED_DATE, pc.cast(rows[self.table.dated_by], LANDED_DATE.type))
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return pa.table(columns, self.schema)


class BatchWriter:
    """Writes the micro-batches of one run of the query.

    Args:
        app_id: returns the application of the commits; there is none before the first batch.
        lifecycle: processes the clients of each batch, once its rows are written.
        fence: the lease under which the job runs; None: none excludes others. Spark's commits don't carry it: it is
            looked at before each.
    """

    def __init__(
        self,
        tables: TablesByName,
        app_id: Callable[[], str],
        report: Report,
        lifecycle: BatchLifecycle,
        fence: Fence | None,
    ) -> None:
        self._tables, self._app_id, self._report, self._lifecycle, self._fence = (
            tables,
            app_id,
            report,
            lifecycle,
            fence,
        )
        self._run_id = uuid.uuid4().hex

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Append a batch's rows to each table that has some, `push_outcomes` last.

        Args:
            batch: rows of ``shard_processor.OUTPUT``.
        """
        began, app_id = time.monotonic(), self._app_id()
        batch.persist()  # it is converted once, however many tables there are
        try:
            with named(batch.sparkSession, f"points: batch {batch_id}: read and judge pushes"):
                parts = batch.select("name", "number", "columns").collect()
            for table in WRITTEN:
                if own := [row for row in parts if row["name"] == table.name]:
                    if self._fence is not None:
                        self._fence.check()
                    rows = rows_of(batch, table, own)
                    with named(batch.sparkSession, f"{table.name}: batch {batch_id}: write rows"):
                        self._tables.append(table, rows, app_id, batch_id)
            if any(row["name"] == PUSHES.name for row in parts):
                pushes, outcomes = (
                    columns_of(batch, PUSHES, LIFECYCLE_IN),
                    columns_of(batch, PUSH_OUTCOMES, OUTCOMES_IN),
                )
                self._lifecycle.step(app_id, batch_id, pushes, outcomes)
        finally:
            batch.unpersist()
        self._tell(batch_id, [json.loads(row["columns"]) for row in parts if row["name"] == FACTS], began)

    def _tell(self, batch_id: int, facts: Sequence[dict[str, Any]], began: float) -> None:
        counts: Counter[str] = Counter()
        for each in facts:
            counts.update(each["counts"])
        log_set_aside(f"points: batch {batch_id}", facts)
        broken = broken_rules(counts)
        for line in describe(broken):
            log.error("points: batch %d breaks quality rule %s", batch_id, line)
        seconds = time.monotonic() - began
        landed = max((each["landed_us"] for each in facts), default=0)
        latest = datetime.fromtimestamp(landed / 1e6, UTC) if landed else None
        if counts["judged"]:
            progress = progress_of(self._run_id, batch_id, datetime.now(UTC), seconds, counts["push_outcomes"])
            self._report(progress, facts_of(counts, latest, sum(each["state_bytes"] for each in facts), broken))
            log_batch(batch_id, counts, seconds)


def columns_of(batch: DataFrame, table: Table, columns: pa.Schema) -> pa.Table:
    """Some columns of a table's rows in a batch, in this process."""
    blobs = batch.where(F.col("name") == table.name).select("rows")
    return blobs.mapInArrow(UnpackTask(table, columns), from_arrow_schema(columns)).toArrow().cast(columns)


def rows_of(batch: DataFrame, table: Table, parts: Sequence[Row]) -> DataFrame:
    """The rows of a table.

    Args:
        batch: rows of ``shard_processor.OUTPUT``, persisted.
        parts: those of this table, without their blobs. Columns that none of them names have no value, and stay out of
            the files: readers of Delta tables read them as NULL.
    """
    names = {name for row in parts for name in row["columns"].split(",")} | {LANDED_DATE.name}
    schema = pa.schema([field for field in table.stored if field.name in names])
    cores = batch.sparkSession.sparkContext.defaultParallelism
    files = min(cores, 1 + sum(row["number"] for row in parts) // ROWS_PER_FILE)
    blobs = batch.where(F.col("name") == table.name).select("rows").coalesce(files)
    return blobs.mapInArrow(UnpackTask(table, schema), from_arrow_schema(schema))
