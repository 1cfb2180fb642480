"""Converts quota samples (Q6), the JSON records of the quotas topic, to rows of `quota_samples` or `quarantine`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing import MAX_QUOTED, landed, time_of
from kafka_telemetry_lake.udfs.landing.contract import MAX_HEADER

SAMPLE = (
    "version int, cluster_id string, broker_id int, time_ms bigint, quota_type string, user string, client_id string, "
    "observed_rate double, quota_limit double, throttle_time_ms double, malformed string"
)
VERSION = 1


def with_quota_sample(records: DataFrame, source: str, cluster_id: str | None, is_sample: Column) -> DataFrame:
    """Add column `quota_sample` to records (columns of ``landing.RECORD``), a struct.

    It has the columns of `QUOTA_SAMPLES`, and `reason`, `detail`, `scope` and `payload` for quarantine. `reason` is
    NULL for a valid sample.

    Args:
        source: name of the source, part of a record's identity.
        cluster_id: used for records without a cluster id.
        is_sample: whether a record is a quota sample; the column of another is NULL.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(text, SAMPLE, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
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
        .withColumn("reject", F.when(is_sample, _reject(text)))
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


def _reject(text: Column) -> Column:
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
        .when(version != VERSION, problem("UNSUPPORTED_VERSION", "quota sample of version ", version.cast("string")))
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
