"""The records that brokers send beside pushes, as structs of their tables' rows: statuses and quota samples.

A status has a list, too: the rows of `broker_connections` that it gives.

Both (`with_receiver_health`, `with_quota_sample`, Q6) are JSON; what isn't valid becomes a row that says so. At the end
are the times of a landing record, which those of pushes have too.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.tables.operator import RECEIVER_HEALTH
from kafka_telemetry_lake.udfs.landing.contract import LATEST_MS, MAX_HEADER
from kafka_telemetry_lake.udfs.landing.rejects import MAX_QUOTED

STATUS_FIELDS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, started_ms bigint, received bigint, "
    "landed bigint, dropped map<string, bigint>, queue_depth bigint, "
    "quota_samples_landed bigint, quota_samples_lost bigint, "
    "connections array<struct<listener string, client_software_name string, client_software_version string, "
    "connections bigint>>, malformed string"
)
STATUS_VERSION = 1
COUNTS = ("received", "landed", "queue_depth", "quota_samples_landed", "quota_samples_lost")
MAX_COUNT = 10**15  # a million pushes a second for thirty years; sums of such counts fit a bigint


def with_receiver_health(records: DataFrame, source: str, is_status: Column) -> DataFrame:
    """Add column `receiver_health` to records (columns of `sources.RECORD`): a row of that table, as a struct.

    If a record is not JSON of version 1, or one of its numbers or times is out of range, its row has the text in
    `problem` and NULL in the other columns. So no record is lost silently. Field `connections` is a list: of each entry
    the columns of `BROKER_CONNECTIONS` that the status itself lacks.

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
        _connections().alias("connections"),
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


def _connections() -> Column:
    """The entries of a status that count the connections of a listener; others are left out."""
    counted = F.filter(
        "status.connections", lambda each: each["listener"].isNotNull() & each["connections"].between(0, MAX_COUNT)
    )

    def cut(each: Column) -> Column:
        texts = ("listener", "client_software_name", "client_software_version")
        return F.struct(
            *(F.substring(each[name], 1, MAX_HEADER).alias(name) for name in texts),
            each["connections"].alias("connections"),
        )

    return F.transform(counted, cut)


def _dropped_total() -> Column:
    """The sum over all reasons; NULL if it overflows a bigint."""
    return F.aggregate(F.map_values("status.dropped"), F.lit(0).cast("bigint"), F.try_add)


SAMPLE_FIELDS = (
    "version int, cluster_id string, broker_id int, time_ms bigint, quota_type string, user string, client_id string, "
    "observed_rate double, quota_limit double, throttle_time_ms double, malformed string"
)
SAMPLE_VERSION = 1


def with_quota_sample(records: DataFrame, source: str, cluster_id: str | None, is_sample: Column) -> DataFrame:
    """Add column `quota_sample` to records (columns of `sources.RECORD`), a struct, by the JSON of a sample (Q6).

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


def time_of(epoch_ms: Column) -> Column:
    """Convert milliseconds since 1970 to a timestamp; NULL if negative, or `LATEST_MS` or later."""
    return F.timestamp_millis(within(epoch_ms, 0, LATEST_MS - 1))


def landed(otherwise: Column | None = None) -> Column:
    """The record's Kafka timestamp if it is between 1970 and `LATEST_MS`, else `otherwise`, else the start of 1970."""
    zero = F.timestamp_millis(F.lit(0))
    is_valid = F.col("timestamp").between(zero, F.timestamp_millis(F.lit(LATEST_MS - 1)))
    others = [] if otherwise is None else [otherwise]
    return F.coalesce(F.when(is_valid, F.col("timestamp")), *others, zero)


def within(number: Column, least: int, most: int) -> Column:
    """A number; NULL if it is less or more."""
    return F.when(number.between(least, most), number)
