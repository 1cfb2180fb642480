"""Pushes on their way from Spark to the tasks that store them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing_rows import SAMPLE, STATUS
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES
from kafka_telemetry_lake.pipelines.ingest.store_task import store
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

MIB = 1 << 20


def test_payloads_of_a_mebibyte_reach_the_tasks_in_bounded_batches(spark: SparkSession, tmp_path: Path) -> None:
    """By default 10,000 rows are a batch: 10 GiB of such payloads, and a column of Arrow can't exceed two."""
    given = {
        "partition": F.lit(0), "offset": F.col("id"), "landed_at": F.timestamp_millis(F.col("id")),
        "payload": F.repeat(F.lit("x"), MIB).cast("binary"),
    }  # fmt: skip
    kinds = {"bool": "boolean", "string": "string", "int32": "int", "int64": "bigint", "binary": "binary"}
    columns = [
        given.get(field.name, F.lit(None).cast(kinds.get(str(field.type), "timestamp"))).alias(field.name)
        for field in PUSHES.schema
    ]
    others = [F.lit(None).cast("struct<source: string>").alias(name) for name in (STATUS, SAMPLE)]
    landed = spark.range(0, 100, 1, 1).select(*columns, *others)
    (file,) = store(landed, str(tmp_path), workers=1).files
    read = pq.ParquetFile(tmp_path / "pushes" / file.path).metadata
    rows = [read.row_group(number).num_rows for number in range(read.num_row_groups)]
    assert sum(rows) == 100
    assert max(rows) <= 2 * SLICE_BYTES // MIB  # a table of less than a slice, and a batch
