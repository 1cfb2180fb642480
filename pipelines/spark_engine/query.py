"""The streaming query of the Spark engine: landing records, converted by shard against Spark's state, to the tables.

    records --pack--> blobs by shard --shuffle--> transformWithStateInPandas --foreachBatch--> Spark's Delta writer

What is converted, and how, is the fast engine's (`operator_task.PushConversion`). What differs is who keeps state
(Spark's state store: one value a shard, committed with the batch) and who writes (Spark; no task writes a file). A
batch that is cut off runs again from the same records and the same state, so it has the same rows, and a table that has
its number (Delta's ``txn``) skips it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.pipelines.ingest.batch_report import Report
from kafka_telemetry_lake.pipelines.ingest.checkpoint import begun_batch, query_id
from kafka_telemetry_lake.pipelines.ingest.landing_rows import landing_rows
from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog
from kafka_telemetry_lake.pipelines.ingest.sources import Source
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, Trigger, start_batches
from kafka_telemetry_lake.pipelines.ingest.unreadable_records import naming
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.errors import ShardCountError, StateMissingError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.spark_engine.lifecycle import BatchLifecycle
from kafka_telemetry_lake.pipelines.spark_engine.output import BatchWriter
from kafka_telemetry_lake.pipelines.spark_engine.packing import PACKED, PackTask
from kafka_telemetry_lake.pipelines.spark_engine.shard_processor import OUTPUT, ShardProcessor
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.udfs.limits import Limits

SPARK_ENGINE = "spark"  # checkpoint of the query, with its state
NOTE = "spark-engine.json"  # in the folder of checkpoints: the number of shards
SETTINGS = {
    # The only state store with what `transformWithStateInPandas` needs.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Spark's default, INT96, has nanoseconds, no statistics and twelve bytes.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Spark describes each plan, and looks for secrets in the text: with this many columns, a CPU second a batch.
    "spark.sql.maxPlanStringLength": "1000",
    "parquet.size.statistics.enabled": "false",
    # Numbers and times rarely repeat: Parquet would build a dictionary and then discard it.
    **{
        f"parquet.enable.dictionary#{field.name}": "false"
        for table in (PUSHES, *OPERATOR_TABLES)
        for field in table.schema
        if pa.types.is_primitive(field.type)
    },
}


def start_spark_engine(
    spark: SparkSession, lake: JobLake, tables: TablesByName, source: Source, trigger: Trigger, limits: Limits,
    shards: int, report: Report, lifecycle: BatchLifecycle,
) -> StreamingQuery:  # fmt: skip
    """Start the query.

    Args:
        tables: those of the lake.
        shards: as `shards_of` returned it.
        report: called after each batch.
        lifecycle: processes the clients of each batch.
    """
    checkpoint = lake.checkpoint(SPARK_ENGINE)
    records = landing_rows(spark, source, lake.cluster_id, {})
    if source.may_repeat:
        records = records.dropDuplicates(list(IDENTITY))
    packed = records.mapInArrow(PackTask(keys_of(spark, shards), lake.privacy), PACKED)
    processor = ShardProcessor(limits, shards, begun_batch(checkpoint))
    converted = packed.groupBy("key").transformWithStateInPandas(processor, OUTPUT, "append", "None")
    writer = BatchWriter(tables, lambda: app_id_of(checkpoint), report, lifecycle, lake.fence)
    with _settings(spark, {**SETTINGS, "spark.sql.shuffle.partitions": str(shards)}):  # the query takes a copy
        run = naming(spark, source, OffsetLog(checkpoint), writer.write)
        return start_batches(converted, PUSHES.name, lake, trigger and source.poll_s(trigger), run, SPARK_ENGINE)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def shards_of(lake: JobLake, tables: TablesByName, asked: int | None, cores: int) -> int:
    """The number of shards of the lake's state; that of a new lake is noted.

    Args:
        tables: those of the lake.
        asked: the number that it must be; None: as it is, else `cores`.

    Raises:
        ShardCountError: it is another one.
        StateMissingError: the lake has pushes, but there is no state.
    """
    filesystem, root = filesystem_of(lake.checkpoints)
    note = read_json(filesystem, f"{root}/{NOTE}")
    if note is None:
        if tables.has_pushes():
            raise StateMissingError(
                f"{tables.lake} has pushes, and the Spark engine's state of them is not below {lake.checkpoints}: name "
                "the folder of the lake's checkpoints with --checkpoints, or write to a new schema"
            )
        filesystem.create_dir(root, recursive=True)
        note = {"shards": asked or cores}
        write_json(filesystem, f"{root}/{NOTE}", note)
    if asked is not None and asked != note["shards"]:
        raise ShardCountError(
            f"the state of {tables.lake} is in {note['shards']} shards, not {asked}, and the Spark engine can't change "
            "that: leave out --shards, or write to a new schema"
        )
    return int(note["shards"])


def keys_of(spark: SparkSession, shards: int) -> tuple[int, ...]:
    """For each shard a key that Spark's shuffle takes to the partition of that number, so that none has two shards."""
    ids = spark.range(0, 64 * shards, 1, 1).select(F.col("id").cast("int").alias("key"))
    rows = ids.select("key", F.pmod(F.hash("key"), F.lit(shards)).alias("place")).collect()
    keys = {row["place"]: row["key"] for row in reversed(rows)}
    return tuple(keys[shard] for shard in range(shards))


def app_id_of(checkpoint: str) -> str:
    """The application of the commits: every checkpoint numbers its batches from 0."""
    return f"kafka-telemetry-lake:{SPARK_ENGINE}:{query_id(*filesystem_of(checkpoint))}"
