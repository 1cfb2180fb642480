"""Pushes on their way from Spark to the tasks that store them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing_rows import to_landed
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES
from kafka_telemetry_lake.pipelines.ingest.store_task import store

MIB = 1 << 20


def test_payloads_of_a_mebibyte_reach_the_tasks_in_bounded_batches(spark: SparkSession, tmp_path: Path) -> None:
    """By default 10,000 rows are a batch: 10 GiB of such payloads, and a column of Arrow can't exceed two."""
    given = {
        "value": F.repeat(F.lit("x"), MIB).cast("binary"), "topic": F.lit("t"), "partition": F.lit(0),
        "offset": F.col("id"), "timestamp": F.timestamp_millis(F.col("id")),
        "key": F.lit(None).cast("binary"), "headers": F.array().cast("array<struct<key: string, value: binary>>"),
    }  # fmt: skip
    records = spark.range(0, 100, 1, 1).select(*(value.alias(name) for name, value in given.items()))
    (file,) = store(to_landed(records, "s"), str(tmp_path), workers=1).files
    read = pq.ParquetFile(tmp_path / "pushes" / file.path).metadata
    rows = [read.row_group(number).num_rows for number in range(read.num_row_groups)]
    assert sum(rows) == 100
    assert max(rows) <= 2 * SLICE_BYTES // MIB  # a table of less than a slice, and a batch
