"""Landing records of all topics as rows with the same columns, so that one query reads and stores them.

A record of a push has what identifies it, and its key, value and headers as they are. The task that stores it reads the
other headers (`to_pushes`): Spark would plan and compile a projection of all of them for each batch anew. A row of
another record (`broker_records`) has what identifies it, and as a struct its row of another table. The two kinds come
from two readers of the source. A batch without new statuses and quota samples is planned without them.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.broker_records import (
    landed,
    time_of,
    with_quota_sample,
    with_receiver_health,
)
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets, Topics
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.landing.contract import HEADERS, MAX_HEADER
from kafka_telemetry_lake.udfs.landing.headers import Headers, valid_text
from kafka_telemetry_lake.udfs.landing.rejects import INVALID_REQUEST, rejects

STATUS, SAMPLE = "receiver_health", "quota_sample"  # columns with structs
CONNECTIONS = "connections"  # field of a status: a list of structs
OTHERS = (STATUS, SAMPLE)
PERSONAL = ("principal", "client_address")
RAW = ("key", "value", "headers")
LANDED = (*IDENTITY, "received_at", *RAW)


class Records(Protocol):
    """A source, or a batch of records that was read from one."""

    @property
    def name(self) -> str: ...

    @property
    def topics(self) -> Topics: ...

    def pushes(self, spark: SparkSession, start: Offsets) -> DataFrame: ...

    def others(self, spark: SparkSession, start: Offsets) -> DataFrame:
        """Statuses and quota samples."""


def landing_rows(spark: SparkSession, source: Records, cluster_id: str | None, start: Offsets) -> DataFrame:
    """Columns `LANDED`, `STATUS` and `SAMPLE`. One of the structs is not NULL unless a row is a push.

    Args:
        cluster_id: used for records that don't name theirs.
        start: where a new checkpoint starts, for topics that earlier checkpoints have read.
    """
    pushes = to_landed(source.pushes(spark, start), source.name, cluster_id)
    others = other_rows(source.others(spark, start), source, cluster_id)
    kinds = {field.name: field.dataType for field in pushes.schema} | {
        field.name: field.dataType for field in others.schema if field.name in OTHERS
    }
    names = [*LANDED, *OTHERS]

    def all_columns(rows: DataFrame) -> DataFrame:
        return rows.select(
            *(F.col(name) if name in rows.columns else F.lit(None).cast(kinds[name]).alias(name) for name in names)
        )

    return all_columns(pushes).union(all_columns(others))


def other_rows(records: DataFrame, source: Records, cluster_id: str | None = None) -> DataFrame:
    """Statuses and quota samples: the columns of their identity, `STATUS` and `SAMPLE`."""
    topic = F.col("topic")
    records = with_receiver_health(records, source.name, topic == source.topics.status)
    records = with_quota_sample(records, source.name, cluster_id, topic == source.topics.quotas)
    identity = [F.coalesce(f"{STATUS}.{name}", f"{SAMPLE}.{name}").alias(name) for name in IDENTITY]
    return records.select(*identity, *OTHERS)


def to_landed(records: DataFrame, source: str, cluster_id: str | None = None) -> DataFrame:
    """Records of the landing topic with what identifies a push: columns `LANDED`.

    Args:
        records: columns of `sources.RECORD`; every header has a name.
        source: name of the source, part of a push's identity.
        cluster_id: used for records without a `cluster_id` header.
    """
    received_at = time_of(_header("received_at_ms").try_cast("bigint"))
    named = F.substring(_header("cluster_id"), 1, MAX_HEADER)
    return records.select(
        F.lit(source).alias("source"),
        F.coalesce(named, F.lit(cluster_id)).alias("cluster_id"),
        "topic",
        "partition",
        "offset",
        landed(received_at).alias("landed_at"),
        received_at.alias("received_at"),
        *RAW,
    )


def _header(name: str) -> Column:
    """The text of a header. The last of repeated ones counts (the session's map key policy)."""
    value = F.try_element_at(F.map_from_entries("headers"), F.lit(name))
    return F.make_valid_utf8(value.cast("string"))


def to_pushes(records: pa.RecordBatch, privacy: Privacy) -> pa.RecordBatch:
    """Rows of `pushes` (columns of ``PUSHES.schema``). A record that is no push has a `reject_reason`.

    Args:
        records: columns `LANDED`.
        privacy: how principals and addresses are stored.
    """
    headers, key, value = Headers(records["headers"]), valid_text(records["key"]), records["value"]
    texts = {name: headers.text(name) for name in HEADERS if HEADERS[name].kind != "integer"}
    header, dropped = texts["client_instance_id"], texts["dropped"]
    has_value = pc.or_(value.is_valid(), dropped.is_valid())
    reason, detail = rejects(header, key, texts["record_version"], texts["content_type"], has_value)
    is_unknown = pc.equal(reason, INVALID_REQUEST).fill_null(False)
    columns = {
        "client_instance_id": pc.if_else(is_unknown, None, pc.coalesce(header, key)),
        "terminating": pc.equal(pc.utf8_lower(texts["terminating"]), "true").fill_null(False),
        "record_version": headers.number("record_version", pa.int32()),
        "payload": value,
        "payload_bytes": pc.coalesce(
            headers.number("payload_bytes", pa.int64()), pc.binary_length(value).cast(pa.int64())
        ),
        "reject_reason": reason,
        "reject_detail": detail,
    }
    columns |= {name: privacy.stored(texts[name]) for name in PERSONAL}

    def column(field: pa.Field) -> pa.Array:
        if field.name in columns:
            return columns[field.name].cast(field.type)
        if field.name in records.schema.names:
            return records[field.name].cast(field.type)
        return texts[field.name] if field.name in texts else headers.number(field.name, field.type)

    pushes = pa.RecordBatch.from_arrays([column(field) for field in PUSHES.schema], schema=PUSHES.schema)
    # Columns that are slices of the records would keep their headers, which may be large, in memory.
    return pushes.take(pa.array(range(len(pushes)))) if records.nbytes > 2 * pushes.nbytes else pushes
