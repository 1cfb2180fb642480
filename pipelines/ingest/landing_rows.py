"""Landing records of all topics as rows with the same columns, so that one query reads and stores them.

A row of a push has the columns of `pushes`. A row of another record has only those that identify it, and a struct with
its row of another table. The two kinds come from two readers of the source. A batch without new statuses and quota
samples is planned without them.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing import to_pushes
from kafka_telemetry_lake.pipelines.ingest.quota_sample import with_quota_sample
from kafka_telemetry_lake.pipelines.ingest.receiver_status import with_receiver_health
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets, Topics
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

STATUS, SAMPLE = "receiver_health", "quota_sample"  # columns with structs
OTHERS = (STATUS, SAMPLE)


class Records(Protocol):
    """A source, or a batch of records that was read from one."""

    @property
    def name(self) -> str: ...

    @property
    def topics(self) -> Topics: ...

    def pushes(self, spark: SparkSession, start: Offsets) -> DataFrame: ...

    def others(self, spark: SparkSession, start: Offsets) -> DataFrame:
        """Statuses and quota samples."""


def landing_rows(
    spark: SparkSession, source: Records, cluster_id: str | None, privacy: Privacy | None, start: Offsets
) -> DataFrame:
    """Columns of ``PUSHES.schema``, `STATUS` and `SAMPLE`. One of the structs is not NULL unless a row is a push.

    Args:
        cluster_id: used for records that don't name theirs.
        privacy: how principals and addresses are stored; None stores them unchanged.
        start: where a new checkpoint starts, for topics that earlier checkpoints have read.
    """
    pushes = to_pushes(source.pushes(spark, start), source.name, cluster_id, privacy)
    others = other_rows(source.others(spark, start), source, cluster_id)
    kinds = {field.name: field.dataType for field in pushes.schema} | {
        field.name: field.dataType for field in others.schema if field.name in OTHERS
    }
    names = [*PUSHES.schema.names, *OTHERS]

    def all_columns(rows: DataFrame) -> DataFrame:
        return rows.select(*(F.col(name) if name in rows.columns else F.lit(None).cast(kinds[name]).alias(name)
                             for name in names))  # fmt: skip

    return all_columns(pushes).union(all_columns(others))


def other_rows(records: DataFrame, source: Records, cluster_id: str | None = None) -> DataFrame:
    """Statuses and quota samples: the columns of their identity, `STATUS` and `SAMPLE`."""
    topic = F.col("topic")
    records = with_receiver_health(records, source.name, topic == source.topics.status)
    records = with_quota_sample(records, source.name, cluster_id, topic == source.topics.quotas)
    identity = [F.coalesce(f"{STATUS}.{name}", f"{SAMPLE}.{name}").alias(name) for name in IDENTITY]
    return records.select(*identity, *OTHERS)
