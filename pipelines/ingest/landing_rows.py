"""Landing records of all topics as rows with the same columns, so that one query reads and stores them.

A row of a push has the columns of `pushes`; the headers of its record become columns. A row of another record
(`broker_records`) has only those that identify it, and a struct with its row of another table. The two kinds come from
two readers of the source. A batch without new statuses and quota samples is planned without them.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.broker_records import (
    MAX_QUOTED,
    landed,
    time_of,
    with_quota_sample,
    with_receiver_health,
    within,
)
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets, Topics
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.landing.contract import (
    INSTANCE_ID,
    MAX_BYTES,
    MAX_HEADER,
    MAX_INTERVAL_MS,
    MAX_PORT,
    VERSION,
    ZERO_UUID,
)

STATUS, SAMPLE = "receiver_health", "quota_sample"  # columns with structs
CONNECTIONS = "connections"  # field of a status: a list of structs
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


def to_pushes(
    records: DataFrame,
    source: str,
    cluster_id: str | None = None,
    privacy: Privacy | None = None,
) -> DataFrame:
    """Convert records of the landing topic to rows of `pushes`. An invalid record gets a `reject_reason`.

    Args:
        records: columns of `sources.RECORD`; every header has a name.
        source: name of the source, part of a push's identity.
        cluster_id: used for records without a `cluster_id` header.
        privacy: how principals and addresses are stored; None stores them unchanged.
    """
    personal = privacy or Privacy()
    instance_id, reject = _instance_id(), _reject()
    received_at = time_of(_number("received_at_ms", "bigint"))
    landed_at = landed(received_at)
    payload_bytes = within(_number("payload_bytes", "bigint"), 0, MAX_BYTES)
    # A single projection that repeats expressions: Spark computes each once, whereas every additional projection would
    # copy all payloads.
    return records.select(
        F.lit(source).alias("source"),
        F.coalesce(_text("cluster_id"), F.lit(cluster_id)).alias("cluster_id"),
        "topic",
        "partition",
        "offset",
        landed_at.alias("landed_at"),
        received_at.alias("received_at"),
        F.when(~F.coalesce(reject["reason"], F.lit("")).eqNullSafe("INVALID_REQUEST"), instance_id).alias(
            "client_instance_id"
        ),
        _text("client_id").alias("client_id"),
        F.lower(_text("terminating")).eqNullSafe("true").alias("terminating"),
        _text("content_type").alias("content_type"),
        _text("compression_type").alias("compression_type"),
        within(_number("push_interval_ms", "int"), 1, MAX_INTERVAL_MS).alias("push_interval_ms"),
        _number("subscription_id", "int").alias("subscription_id"),
        personal.column(_text("principal"), records.sparkSession).alias("principal"),
        _text("listener").alias("listener"),
        _text("security_protocol").alias("security_protocol"),
        personal.column(_text("client_address"), records.sparkSession).alias("client_address"),
        within(_number("client_port", "int"), 0, MAX_PORT).alias("client_port"),
        _text("client_software_name").alias("client_software_name"),
        _text("client_software_version").alias("client_software_version"),
        _number("broker_id", "int").alias("broker_id"),
        _number("correlation_id", "int").alias("correlation_id"),
        _number("record_version", "int").alias("record_version"),
        _text("dropped").alias("dropped"),
        F.col("value").alias("payload"),
        F.coalesce(payload_bytes, F.length("value").cast("bigint")).alias("payload_bytes"),
        reject["reason"].alias("reject_reason"),
        reject["detail"].alias("reject_detail"),
        F.to_date(landed_at).alias("landed_date"),
    ).select(*PUSHES.stored.names)


def _headers() -> Column:
    """Map from header name to value. The last of repeated headers wins (the session's map key policy)."""
    return F.map_from_entries("headers")


def _instance_id() -> Column:
    """The client instance id as the record states it: the header, else the key."""
    return F.coalesce(_text("client_instance_id"), F.make_valid_utf8(F.col("key").cast("string")))


def _text(header: str) -> Column:
    return F.substring(_whole(header), 1, MAX_HEADER)


def _number(header: str, kind: str) -> Column:
    return _whole(header).try_cast(kind)


def _whole(header: str) -> Column:
    return F.make_valid_utf8(F.try_element_at(_headers(), F.lit(header)).cast("string"))


def _reject() -> Column:
    header, key = _text("client_instance_id"), F.make_valid_utf8(F.col("key").cast("string"))
    instance_id = _instance_id()
    content_type = _text("content_type")
    plain = F.lower(F.regexp_replace(content_type, r"\s", ""))
    is_metrics = plain.startswith("application/x-protobuf;type=otlp+metrics")
    # Nearly all headers are "OTLP"; only others are parsed.
    is_other = F.when(content_type == "OTLP", F.lit(False)).otherwise(~((plain == "otlp") | is_metrics))
    version = _text("record_version")

    def problem(reason: str, *detail: Column) -> Column:
        return F.struct(F.lit(reason).alias("reason"), F.concat(*detail).alias("detail"))

    def quoted(text: Column) -> Column:
        return F.concat(F.lit("'"), F.substring(text, 1, MAX_QUOTED), F.lit("'"))

    return (
        F.when(instance_id.isNull(), problem("INVALID_REQUEST", F.lit("no client instance id in header or key")))
        .when(
            header != key,
            problem(
                "INVALID_REQUEST",
                F.lit("client instance id differs: header "),
                quoted(header),
                F.lit(", key "),
                quoted(key),
            ),
        )
        .when(instance_id == ZERO_UUID, problem("INVALID_REQUEST", F.lit("the client instance id is the zero UUID")))
        .when(
            ~instance_id.rlike(INSTANCE_ID),
            problem(
                "INVALID_REQUEST", F.lit("not a client instance id of 22 base64 characters: "), quoted(instance_id)
            ),
        )
        .when(
            version.isNotNull() & (version != VERSION),
            problem("INVALID_RECORD", F.lit("landing record of unknown version "), quoted(version)),
        )
        .when(
            content_type.isNotNull() & is_other,
            problem("INVALID_RECORD", F.lit("content type "), quoted(content_type)),
        )
        .when(F.col("value").isNull() & _text("dropped").isNull(), problem("INVALID_RECORD", F.lit("null value")))
    )
