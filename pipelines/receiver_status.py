"""Receiver statuses to rows: the JSON records of the status topic become table `receiver_health`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.tables import RECEIVER_HEALTH

STATUS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, started_ms bigint, received bigint, "
    "landed bigint, dropped map<string, bigint>, queue_depth bigint, "
    "quota_samples_landed bigint, quota_samples_lost bigint"
)
VERSION = 1


def to_receiver_health(records: DataFrame, source: str) -> DataFrame:
    """Status records (columns of ``landing.RECORD``) as rows of `receiver_health`.

    A record that is not JSON of version 1 keeps its text in `problem`, with the counts NULL: nothing goes unseen.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    known = F.col("status.version") == VERSION
    return (
        records.withColumn("status", F.from_json(text, STATUS, {"mode": "PERMISSIVE"}))
        .withColumn("status", F.when(known & F.col("status.received").isNotNull(), F.col("status")))
        .withColumn("landed_at", F.coalesce("timestamp", F.timestamp_seconds(F.lit(0))))
        .select(
            F.lit(source).alias("source"),
            F.col("status.cluster_id").alias("cluster_id"),
            "topic",
            "partition",
            "offset",
            "landed_at",
            F.col("status.broker_id").alias("broker_id"),
            F.timestamp_millis("status.time_ms").alias("reported_at"),
            F.timestamp_millis("status.started_ms").alias("started_at"),
            F.col("status.received").alias("received"),
            F.col("status.landed").alias("landed"),
            F.col("status.dropped").alias("dropped"),
            F.aggregate(F.map_values("status.dropped"), F.lit(0).cast("bigint"), lambda total, n: total + n).alias(
                "dropped_total"
            ),
            F.col("status.queue_depth").alias("queue_depth"),
            F.col("status.quota_samples_landed").alias("quota_samples_landed"),
            F.col("status.quota_samples_lost").alias("quota_samples_lost"),
            F.when(F.col("status").isNull(), F.substring(F.coalesce(text, F.lit("null value")), 1, 1000)).alias(
                "problem"
            ),
            F.to_date("landed_at").alias("landed_date"),
        )
        .select(*RECEIVER_HEALTH.stored.names)
    )
