"""Converts receiver statuses, the JSON records of the status topic, to rows of table `receiver_health`."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing import landed, time_of
from kafka_telemetry_lake.pipelines.tables.operator import RECEIVER_HEALTH
from kafka_telemetry_lake.udfs.landing.contract import MAX_HEADER

STATUS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, started_ms bigint, received bigint, "
    "landed bigint, dropped map<string, bigint>, queue_depth bigint, "
    "quota_samples_landed bigint, quota_samples_lost bigint, malformed string"
)
VERSION = 1
COUNTS = ("received", "landed", "queue_depth", "quota_samples_landed", "quota_samples_lost")
MAX_COUNT = 10**15  # a million pushes a second for thirty years; sums of such counts fit a bigint


def with_receiver_health(records: DataFrame, source: str, is_status: Column) -> DataFrame:
    """Add column `receiver_health` to records (columns of ``landing.RECORD``): a row of that table, as a struct.

    If a record is not JSON of version 1, or one of its numbers or times is out of range, its row has the text in
    `problem` and NULL in the other columns. So no record is lost silently.

    Args:
        is_status: whether a record is a status; the column of another is NULL.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(text, STATUS, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
    row = F.struct(
        F.lit(source).alias("source"),
        F.substring("status.cluster_id", 1, MAX_HEADER).alias("cluster_id"),
        "topic",
        "partition",
        "offset",
        landed().alias("landed_at"),
        F.col("status.broker_id").alias("broker_id"),
        time_of(F.col("status.time_ms")).alias("reported_at"),
        time_of(F.col("status.started_ms")).alias("started_at"),
        F.col("status.received").alias("received"),
        F.col("status.landed").alias("landed"),
        F.col("status.dropped").alias("dropped"),
        _dropped_total().alias("dropped_total"),
        F.col("status.queue_depth").alias("queue_depth"),
        F.col("status.quota_samples_landed").alias("quota_samples_landed"),
        F.col("status.quota_samples_lost").alias("quota_samples_lost"),
        F.when(F.col("status").isNull(), F.substring(F.coalesce(text, F.lit("null value")), 1, 1000)).alias("problem"),
    )
    return (
        records.withColumn("status", F.when(is_status, parsed))
        .withColumn("status", F.when(_is_sound(), F.col("status")))
        .select(*records.columns, F.when(is_status, row).alias(RECEIVER_HEALTH.name))
    )


def _is_sound() -> Column:
    """Whether the fields of a status have the right types and are within bounds. Absent fields are valid."""
    counts = [F.col(f"status.{name}").between(0, MAX_COUNT) for name in COUNTS]
    times = [F.col(f"status.{name}") for name in ("time_ms", "started_ms")]
    dropped = F.forall(F.map_values("status.dropped"), lambda n: n.isNotNull() & n.between(0, MAX_COUNT))
    whole = [F.coalesce(each, F.lit(True)) for each in (*counts, dropped)]
    whole += [each.isNull() | time_of(each).isNotNull() for each in times]
    whole += [F.col("status.dropped").isNull() | (F.coalesce(_dropped_total(), F.lit(-1)) >= 0)]
    known = (F.col("status.version") == VERSION) & F.col("status.received").isNotNull()
    return reduce(Column.__and__, whole, known & F.col("status.malformed").isNull())


def _dropped_total() -> Column:
    """The sum over all reasons; NULL if it overflows a bigint."""
    return F.aggregate(F.map_values("status.dropped"), F.lit(0).cast("bigint"), F.try_add)
