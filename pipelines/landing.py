"""Landing records to rows: the headers of a landed push become the columns of table `pushes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.tables import PUSHES

# The columns of Spark's Kafka source with includeHeaders; a files source holds the same.
RECORD = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
INSTANCE_ID = r"^[A-Za-z0-9_-]{22}$"  # Kafka's Uuid.toString: URL-safe base64 of 16 bytes, no padding
ZERO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
MAX_QUOTED = 100  # characters of hostile text that a detail repeats
MAX_HEADER = 1024  # characters of a header that are stored; Kafka's own limit is a record's size


@dataclass(frozen=True)
class Privacy:
    """What is stored of `principal` and `client_address`: ``keep``, ``hash`` (keyed, 32 hex digits) or ``drop``.

    Without the key nobody can try all addresses; the same key gives the same hashes, so they still group and join.
    """

    how: Literal["keep", "hash", "drop"] = "keep"
    key: str = field(default="", repr=False)

    def column(self, value: Column) -> Column:
        if self.how == "keep":
            return value
        if self.how == "drop":
            return F.lit(None).cast("string")
        return F.substring(F.sha2(F.concat(F.lit(self.key), F.lit("\0"), value), 256), 1, 32)


def to_pushes(
    records: DataFrame,
    source: str,
    cluster_id: str | None = None,
    privacy: Privacy | None = None,
) -> DataFrame:
    """Records of the landing topic as rows of `pushes`; a record that breaks the contract gets a `reject_reason`.

    Args:
        records: columns of `RECORD`; no header is without a name.
        source: name of the source, part of a push's identity.
        cluster_id: used where the record has no `cluster_id` header.
        privacy: what to store of who sent it; all of it unless given.
    """
    personal = privacy or Privacy()
    told_id, reject = _told_id(), _reject()
    received_at = F.timestamp_millis(_number("received_at_ms", "bigint"))
    landed_at = F.coalesce("timestamp", received_at, F.timestamp_seconds(F.lit(0)))
    # One projection that names an expression many times: Spark computes it once, but would copy every payload once
    # more for each projection in between.
    return (
        records.select(
            F.lit(source).alias("source"),
            F.coalesce(_text("cluster_id"), F.lit(cluster_id)).alias("cluster_id"),
            "topic",
            "partition",
            "offset",
            landed_at.alias("landed_at"),
            received_at.alias("received_at"),
            F.when(~F.coalesce(reject["reason"], F.lit("")).eqNullSafe("INVALID_REQUEST"), told_id)
            .alias("client_instance_id"),
            _text("client_id").alias("client_id"),
            F.lower(_text("terminating")).eqNullSafe("true").alias("terminating"),
            _text("content_type").alias("content_type"),
            _text("compression_type").alias("compression_type"),
            _number("push_interval_ms", "int").alias("push_interval_ms"),
            _number("subscription_id", "int").alias("subscription_id"),
            personal.column(_text("principal")).alias("principal"),
            _text("listener").alias("listener"),
            _text("security_protocol").alias("security_protocol"),
            personal.column(_text("client_address")).alias("client_address"),
            _number("client_port", "int").alias("client_port"),
            _text("client_software_name").alias("client_software_name"),
            _text("client_software_version").alias("client_software_version"),
            _number("broker_id", "int").alias("broker_id"),
            _number("correlation_id", "int").alias("correlation_id"),
            _number("record_version", "int").alias("record_version"),
            _text("dropped").alias("dropped"),
            F.col("value").alias("payload"),
            F.coalesce(_number("payload_bytes", "bigint"), F.length("value").cast("bigint")).alias("payload_bytes"),
            reject["reason"].alias("reject_reason"),
            reject["detail"].alias("reject_detail"),
            F.to_date(landed_at).alias("landed_date"),
        )
        .select(*PUSHES.stored.names)
    )  # fmt: skip


def _headers() -> Column:
    """Header name to value; of a repeated header the last wins (the session's map key policy)."""
    return F.map_from_entries("headers")


def _told_id() -> Column:
    return F.coalesce(_text("client_instance_id"), F.make_valid_utf8(F.col("key").cast("string")))


def _text(header: str) -> Column:
    return F.substring(_whole(header), 1, MAX_HEADER)


def _number(header: str, kind: str) -> Column:
    return _whole(header).try_cast(kind)


def _whole(header: str) -> Column:
    return F.make_valid_utf8(F.try_element_at(_headers(), F.lit(header)).cast("string"))


def _reject() -> Column:
    header, key = _text("client_instance_id"), F.make_valid_utf8(F.col("key").cast("string"))
    told = _told_id()
    content_type = _text("content_type")
    plain = F.lower(F.regexp_replace(content_type, r"\s", ""))
    is_metrics = plain.startswith("application/x-protobuf;type=otlp+metrics")
    # Nearly all say OTLP: only others are looked at closely.
    is_other = F.when(content_type == "OTLP", F.lit(False)).otherwise(~((plain == "otlp") | is_metrics))
    version = _text("record_version")

    def problem(reason: str, *detail: Column) -> Column:
        return F.struct(F.lit(reason).alias("reason"), F.concat(*detail).alias("detail"))

    def quoted(text: Column) -> Column:
        return F.concat(F.lit("'"), F.substring(text, 1, MAX_QUOTED), F.lit("'"))

    return (
        F.when(told.isNull(), problem("INVALID_REQUEST", F.lit("no client instance id in header or key")))
        .when(
            header != key,
            problem("INVALID_REQUEST", F.lit("client instance id differs: header "), quoted(header), F.lit(", key "),
                    quoted(key)),
        )
        .when(told == ZERO_UUID, problem("INVALID_REQUEST", F.lit("the client instance id is the zero UUID")))
        .when(
            ~told.rlike(INSTANCE_ID),
            problem("INVALID_REQUEST", F.lit("not a client instance id of 22 base64 characters: "), quoted(told)),
        )
        .when(
            version.isNotNull() & (version != "1"),
            problem("INVALID_RECORD", F.lit("landing record of unknown version "), quoted(version)),
        )
        .when(
            content_type.isNotNull() & is_other,
            problem("INVALID_RECORD", F.lit("content type "), quoted(content_type)),
        )
        .when(
            F.col("value").isNull() & _text("dropped").isNull(), problem("INVALID_RECORD", F.lit("null value"))
        )
    )  # fmt: skip
