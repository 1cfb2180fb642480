"""Quota samples to rows: the JSON records of the quotas topic become `quota_samples`, bad ones go to quarantine."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.tables import QUARANTINE, QUOTA_SAMPLES

SAMPLE = (
    "version int, cluster_id string, broker_id int, time_ms bigint, quota_type string, user string, client_id string, "
    "observed_rate double, quota_limit double, throttle_time_ms double, malformed string"
)
VERSION = 1
MAX_QUOTED = 100  # characters of hostile text that a detail repeats
LATEST_MS = 4_102_444_800_000  # year 2100: a time beyond it is no clock's


def to_quota_samples(records: DataFrame, source: str, cluster_id: str | None = None) -> DataFrame:
    """Records of the quotas topic (columns of ``landing.RECORD``), with what is needed of both tables.

    Columns of `QUOTA_SAMPLES`, and `reason`, `detail`, `payload` for quarantine: `reason` is NULL for a good sample.

    Args:
        source: name of the source, part of a record's identity.
        cluster_id: used where the record has no cluster id.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(text, SAMPLE, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
    return (
        records.withColumn("s", parsed)
        .withColumn("landed_at", F.coalesce("timestamp", F.timestamp_seconds(F.lit(0))))
        .withColumn("reject", _reject(text))
        .select(
            F.lit(source).alias("source"),
            F.coalesce("s.cluster_id", F.lit(cluster_id)).alias("cluster_id"),
            "topic",
            "partition",
            "offset",
            "landed_at",
            F.col("s.broker_id").alias("broker_id"),
            F.when(_is_time(F.col("s.time_ms")), F.timestamp_millis("s.time_ms")).alias("time"),
            F.col("s.quota_type").alias("quota_type"),
            _user(F.col("s.user")).alias("user"),
            F.coalesce("s.client_id", F.lit("")).alias("client_id"),
            _finite("observed_rate").alias("observed_rate"),
            _finite("quota_limit").alias("quota_limit"),
            _finite("throttle_time_ms").alias("throttle_time_ms"),
            F.to_date("landed_at").alias("landed_date"),
            F.col("reject.reason").alias("reason"),
            F.col("reject.detail").alias("detail"),
            F.col("value").alias("payload"),
        )
    )


def samples(parsed: DataFrame) -> DataFrame:
    """The good samples, as rows of `quota_samples`."""
    return parsed.where("reason IS NULL").select(*QUOTA_SAMPLES.stored.names)


def rejects(parsed: DataFrame) -> DataFrame:
    """The others, as rows of `quarantine`."""
    no_text = F.lit(None).cast("string")
    nothing = dict.fromkeys(("client_instance_id", "client_id", "metric"), no_text)
    rejected = parsed.where("reason IS NOT NULL").withColumns({**nothing, "scope": F.lit("quota_sample")})
    return rejected.select(*QUARANTINE.stored.names)


def _user(tag: Column) -> Column:
    """The user's name of a broker's tag (Sanitizer.sanitize: URL-encoded); a tag that isn't encoded stays as it is."""
    return F.coalesce(F.try_url_decode(tag), tag, F.lit(""))


def _finite(name: str) -> Column:
    """The number; NULL for NaN and infinity, which stand for no sample and no bound."""
    value = F.col(f"s.{name}")
    return F.when(F.abs(value) < F.lit(float("inf")), value)


def _is_time(time_ms: Column) -> Column:
    return (time_ms >= 0) & (time_ms < LATEST_MS)


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
        .when(~_is_time(F.col("s.time_ms")), problem("INVALID_RECORD", "time_ms ", F.col("s.time_ms").cast("string")))
        .when(
            (F.col("s.quota_limit") < 0) | (F.col("s.throttle_time_ms") < 0),
            problem("INVALID_RECORD", "negative quota_limit or throttle_time_ms"),
        )
        .when(
            F.coalesce(_finite("observed_rate"), _finite("throttle_time_ms")).isNull(),
            problem("INVALID_RECORD", "neither observed_rate nor throttle_time_ms"),
        )
    )
