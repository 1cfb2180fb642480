"""The streaming query: landing records, judged by shard against Spark's state, appended to the lake's tables."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.pipelines.ingest.checkpoint import begun_batch, query_id
from kafka_telemetry_lake.pipelines.ingest.landing_rows import landing_rows
from kafka_telemetry_lake.pipelines.ingest.sources import Source
from kafka_telemetry_lake.pipelines.ingest.streams import Lake, Trigger, start_batches
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY
from kafka_telemetry_lake.pipelines.spark_engine.delta_rows import append, rows_of
from kafka_telemetry_lake.pipelines.spark_engine.packing import PACKED, PackTask
from kafka_telemetry_lake.pipelines.spark_engine.shard_processor import FACTS, OUTPUT, ShardProcessor
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES, QUOTA_SAMPLES, RECEIVER_HEALTH
from kafka_telemetry_lake.udfs.limits import Limits

log = logging.getLogger(__name__)

CHECKPOINT = "spark"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
WRITTEN = (PUSHES, RECEIVER_HEALTH, QUOTA_SAMPLES, *(t for t in OPERATOR_TABLES if t is not PUSH_OUTCOMES), PUSH_OUTCOMES)


def start_spark_engine(
    spark: SparkSession, lake: Lake, source: Source, trigger: Trigger, limits: Limits, shards: int
) -> StreamingQuery:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    spark.conf.set("spark.sql.shuffle.partitions", shards)
    checkpoint = lake.checkpoint(CHECKPOINT)
    rows = landing_rows(spark, source, lake.cluster_id, lake.privacy, {})
    if source.may_repeat:
        rows = rows.dropDuplicates(list(IDENTITY))
    packed = rows.mapInArrow(PackTask(keys_of(spark, shards)), PACKED)
    processor = ShardProcessor(limits, shards, begun_batch(checkpoint))
    output = packed.groupBy("key").transformWithStateInPandas(processor, OUTPUT, "append", "None")

    def run(batch: DataFrame, batch_id: int) -> None:
        filesystem, root = filesystem_of(checkpoint)
        app_id = f"kafka-telemetry-lake:{CHECKPOINT}:{query_id(filesystem, root)}"
        batch.persist()
        try:
            write(batch, lake, app_id, batch_id)
        finally:
            batch.unpersist()

    return start_batches(output, PUSHES.name, lake, trigger and source.poll_s(trigger), run, CHECKPOINT)


def write(batch: DataFrame, lake: Lake, app_id: str, batch_id: int) -> None:
    began = time.monotonic()
    found = batch.select("name", "count", "columns").collect()
    t1 = time.monotonic()
    cores = batch.sparkSession.sparkContext.defaultParallelism
    for table in WRITTEN:
        own = [row for row in found if row["name"] == table.name]
        if own:
            names = {name for row in own for name in row["columns"].split(",")}
            count = sum(row["count"] for row in own)
            t0 = time.monotonic()
            append(rows_of(batch, table, names, count, cores), table.uri(lake.path), app_id, batch_id)
            log.info("  %s %d %.2f", table.name, count, time.monotonic() - t0)
    counts: Counter[str] = Counter()
    for row in found:
        if row["name"] == FACTS:
            counts.update(json.loads(row["columns"])["counts"])
    log.info("spark: batch %d: %d points, %.1f s judge, %.1f s", batch_id, counts["metric_points"], t1 - began, time.monotonic() - began)


def keys_of(spark: SparkSession, shards: int) -> tuple[int, ...]:
    """For each shard a key that Spark's shuffle takes to the partition of that number."""
    ids = spark.range(0, 64 * shards).select(F.col("id").cast("int").alias("key"))
    placed = ids.select("key", F.pmod(F.hash("key"), F.lit(shards)).alias("place"))
    first = placed.groupBy("place").agg(F.min("key").alias("key")).collect()
    keys = {row["place"]: row["key"] for row in first}
    return tuple(keys[shard] for shard in range(shards))
