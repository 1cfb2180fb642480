"""Landing records of all topics as rows with the same columns, so that one query reads and stores them.

A row of a push has the columns of `pushes`. A row of another record has only those that identify it, and a struct with
its row of another table. The two kinds come from two readers of the source. A batch without new statuses and quota
samples is planned without them.

Statuses (`with_receiver_health`) and quota samples (`with_quota_sample`, Q6) are JSON; what isn't valid becomes a row
that says so.
"""

from __future__ import annotations

from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landed_pushes import MAX_QUOTED, landed, time_of, to_pushes
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets, Topics
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, RECEIVER_HEALTH
from kafka_telemetry_lake.udfs.landing.contract import MAX_HEADER

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


STATUS_FIELDS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, started_ms bigint, received bigint, "
    "landed bigint, dropped map<string, bigint>, queue_depth bigint, "
    "quota_samples_landed bigint, quota_samples_lost bigint, malformed string"
)
STATUS_VERSION = 1
COUNTS = ("received", "landed", "queue_depth", "quota_samples_landed", "quota_samples_lost")
MAX_COUNT = 10**15  # a million pushes a second for thirty years; sums of such counts fit a bigint


def with_receiver_health(records: DataFrame, source: str, is_status: Column) -> DataFrame:
    """Add column `receiver_health` to records (columns of `landed_pushes.RECORD`): a row of that table, as a struct.

    If a record is not JSON of version 1, or one of its numbers or times is out of range, its row has the text in
    `problem` and NULL in the other columns. So no record is lost silently.

    Args:
        is_status: whether a record is a status; the column of another is NULL.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(text, STATUS_FIELDS, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
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
    known = (F.col("status.version") == STATUS_VERSION) & F.col("status.received").isNotNull()
    return reduce(Column.__and__, whole, known & F.col("status.malformed").isNull())


def _dropped_total() -> Column:
    """The sum over all reasons; NULL if it overflows a bigint."""
    return F.aggregate(F.map_values("status.dropped"), F.lit(0).cast("bigint"), F.try_add)


SAMPLE_FIELDS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, quota_type string, user string, client_id string, "
    "observed_rate double, quota_limit double, throttle_time_ms double, malformed string"
)
SAMPLE_VERSION = 1


def with_quota_sample(records: DataFrame, source: str, cluster_id: str | None, is_sample: Column) -> DataFrame:
    """Add column `quota_sample` to records (columns of `landed_pushes.RECORD`), a struct, by the JSON of a sample (Q6).

    It has the columns of `QUOTA_SAMPLES`, and `reason`, `detail`, `scope` and `payload` for quarantine. `reason` is
    NULL for a valid sample.

    Args:
        source: name of the source, part of a record's identity.
        cluster_id: used for records without a cluster id.
        is_sample: whether a record is a quota sample; the column of another is NULL.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(text, SAMPLE_FIELDS, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
    row = F.struct(
        F.lit(source).alias("source"),
        F.coalesce(_cut("s.cluster_id"), F.lit(cluster_id)).alias("cluster_id"),
        "topic",
        "partition",
        "offset",
        landed().alias("landed_at"),
        F.col("s.broker_id").alias("broker_id"),
        time_of(F.col("s.time_ms")).alias("time"),
        _cut("s.quota_type").alias("quota_type"),
        _user(F.col("s.user")).alias("user"),
        F.coalesce(_cut("s.client_id"), F.lit("")).alias("client_id"),
        _finite("observed_rate").alias("observed_rate"),
        _finite("quota_limit").alias("quota_limit"),
        _finite("throttle_time_ms").alias("throttle_time_ms"),
        F.col("reject.reason").alias("reason"),
        F.col("reject.detail").alias("detail"),
        F.lit("quota_sample").alias("scope"),
        F.col("value").alias("payload"),
    )
    return (
        records.withColumn("s", F.when(is_sample, parsed))
        .withColumn("reject", F.when(is_sample, _sample_reject(text)))
        .select(*records.columns, F.when(is_sample, row).alias("quota_sample"))
    )


def _user(tag: Column) -> Column:
    """Decode the user name in a broker's tag, which Sanitizer.sanitize URL-encodes. Other text is unchanged."""
    name = F.make_valid_utf8(F.coalesce(F.try_url_decode(tag), tag, F.lit("")))
    return F.substring(name, 1, MAX_HEADER)


def _cut(name: str) -> Column:
    """Truncate text like the headers of a push, so that a client id is the same text in both tables."""
    return F.substring(F.col(name), 1, MAX_HEADER)


def _finite(name: str) -> Column:
    """A number; NULL for NaN and infinity, which mean no sample and no limit."""
    value = F.col(f"s.{name}")
    return F.when(F.abs(value) < F.lit(float("inf")), value)


def _sample_reject(text: Column) -> Column:
    def problem(reason: str, *detail: Column | str) -> Column:
        parts = [F.lit(part) if isinstance(part, str) else part for part in detail]
        return F.struct(F.lit(reason).alias("reason"), F.concat(*parts).alias("detail"))

    def quoted(column: Column) -> Column:
        return F.concat(F.lit("'"), F.substring(column, 1, MAX_QUOTED), F.lit("'"))

    version, kind = F.col("s.version"), F.col("s.quota_type")
    missing = F.concat_ws(
        ", ", *(F.when(F.col(f"s.{name}").isNull(), name) for name in ("broker_id", "time_ms", "quota_type"))
    )
    return (
        F.when(F.col("value").isNull(), problem("INVALID_RECORD", "null value"))
        .when(
            version != SAMPLE_VERSION,
            problem("UNSUPPORTED_VERSION", "quota sample of version ", version.cast("string")),
        )
        .when(
            F.col("s.malformed").isNotNull(),
            problem("INVALID_RECORD", "not the JSON of a quota sample: ", quoted(text)),
        )
        .when(version.isNull(), problem("INVALID_RECORD", "no version: ", quoted(text)))
        .when(missing != "", problem("INVALID_RECORD", "missing ", missing))
        .when(~kind.isin("produce", "fetch", "request"), problem("INVALID_RECORD", "quota type ", quoted(kind)))
        .when(
            time_of(F.col("s.time_ms")).isNull(),
            problem("INVALID_RECORD", "time_ms ", F.col("s.time_ms").cast("string")),
        )
        .when(
            (F.col("s.quota_limit") < 0) | (F.col("s.throttle_time_ms") < 0),
            problem("INVALID_RECORD", "negative quota_limit or throttle_time_ms"),
        )
        .when(
            F.coalesce(_finite("observed_rate"), _finite("throttle_time_ms")).isNull(),
            problem("INVALID_RECORD", "neither observed_rate nor throttle_time_ms"),
        )
    )
