"""Writes the rows of a micro-batch to a lake's tables by Spark's own Delta writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.spark_engine.blobs import from_blob
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table

ROWS_PER_TASK = 500_000  # a file for so many rows, at least


@dataclass(frozen=True)
class UnpackTask:
    """Rows of a table from their blobs.

    Attributes:
        schema: columns that a row has; a blob may lack some.
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


def rows_of(output: DataFrame, table: Table, names: set[str], rows: int, most: int) -> DataFrame:
    """The rows of a table.

    Args:
        output: rows of ``shard_processor.OUTPUT``.
        names: the columns that have a value in some row. Others stay out of the files; readers of Delta tables read
            them as NULL.
        rows: how many there are.
        most: files to write at once.
    """
    schema = pa.schema([field for field in table.stored if field.name in names or field.name == LANDED_DATE.name])
    blobs = output.where(F.col("name") == table.name).select("rows")
    blobs = blobs.coalesce(min(most, 1 + rows // ROWS_PER_TASK))
    return blobs.mapInArrow(UnpackTask(table, schema), from_arrow_schema(schema))


def append(rows: DataFrame, uri: str, app_id: str, batch_id: int) -> None:
    """Append rows to a table, unless the application has already committed this batch."""
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app_id)
        .option("txnVersion", batch_id)
        .save(uri)
    )
