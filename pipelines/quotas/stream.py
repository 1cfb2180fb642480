"""The quota stream: samples -> `quota_samples` and the affected windows of `quota_usage`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.pipelines.ingest.sources import Source
from kafka_telemetry_lake.pipelines.ingest.streams import Lake, Trigger, app_id_of, start_batches
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.quotas.samples import rejects, samples, to_quota_samples
from kafka_telemetry_lake.pipelines.quotas.windows import WINDOWS, at, replace_windows
from kafka_telemetry_lake.pipelines.tables.operator import QUARANTINE, QUOTA_SAMPLES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, quota_usage
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

log = logging.getLogger(__name__)

STREAM = "quota_samples"


def start_quota_samples(spark: SparkSession, lake: Lake, source: Source, trigger: Trigger) -> StreamingQuery:
    """Quota samples -> `quota_samples`, `quarantine` for invalid records, and `quota_usage`.

    Each batch appends its samples. Then it recomputes the windows of every minute with a new sample from all stored
    samples of that minute. So late samples correct their window, and a repeated batch gives the same rows.
    """
    for table in (QUOTA_SAMPLES, QUARANTINE, QUOTA_USAGE):
        table.create(lake.path)
    guards = {
        table: OffsetGuard.load(spark, table.uri(lake.path), lake.checkpoint(f"{STREAM}/{table.name}"))
        for table in (QUOTA_SAMPLES, QUARANTINE)
    }

    def append(table: Table, rows: DataFrame, app_id: str, batch_id: int) -> None:
        (
            guards[table]
            .unstored(rows, source.may_repeat)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", app_id)
            .option("txnVersion", batch_id)
            .save(table.uri(lake.path))
        )

    def run(batch: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        app_id = app_id_of(batch, STREAM)
        batch.persist()
        try:
            minute = F.when(F.col("reason").isNull(), F.unix_seconds(F.date_trunc("minute", "time")))
            totals = batch.agg(F.count("reason").alias("bad"), F.collect_set(minute).alias("minutes")).collect()[0]
            if totals["bad"]:
                append(QUARANTINE, rejects(batch), app_id, batch_id)
            append(QUOTA_SAMPLES, samples(batch), app_id, batch_id)
        finally:
            batch.unpersist()
        replace_usage(lake.path, sorted(totals["minutes"]), app_id, batch_id)
        log.info(
            "%s: batch %d stored, %d bad, %d minutes of usage, %.1f s",
            STREAM, batch_id, totals["bad"], len(totals["minutes"]), time.monotonic() - began,
        )  # fmt: skip

    rows = to_quota_samples(source.quotas(spark), source.name, lake.cluster_id)
    return start_batches(rows, STREAM, lake, trigger, run)


def replace_usage(lake: str, minutes: Sequence[int], app_id: str, version: int) -> None:
    """Recompute the windows of these minutes (Unix seconds, ascending) from all stored samples of brokers."""
    stored = DeltaTable(QUOTA_SAMPLES.uri(lake)).to_pyarrow_dataset()

    def usage_of(start: int, end: int) -> Iterator[pa.Table]:
        for hour in range(start, end, 3600):
            low, high = (pa.scalar(at(edge), TIMESTAMP) for edge in (hour, min(hour + 3600, end)))
            within = (ds.field("time") >= low) & (ds.field("time") < high)
            samples_of_hour = stored.to_table(SAMPLES_IN.names, filter=within).cast(SAMPLES_IN)
            for seconds in WINDOWS:
                yield quota_usage(samples_of_hour, seconds)

    replace_windows(lake, ["broker"], minutes, usage_of, app_id, version)
