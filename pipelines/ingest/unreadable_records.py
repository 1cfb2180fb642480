"""Batches with a record that Spark's Kafka source can't read, because its timestamp is no time in milliseconds.

Spark converts each timestamp to microseconds, and a number of nanoseconds overflows (SPARK-56243). The whole batch
fails, at each start again. Such a batch is read by a consumer of this process into a Parquet file with the columns of
Spark's Kafka source, in which these timestamps are NULL. It is stored as if they were merely out of range.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog
from kafka_telemetry_lake.pipelines.ingest.sources import RECORD, RECORDS_AT_HAND, KafkaSource, Offsets, Topics
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of, literal
from kafka_telemetry_lake.pipelines.runtime.kafka_records import KafkaRecord, records_between
from kafka_telemetry_lake.udfs.errors import CannotRunError

log = logging.getLogger("telemetry-lake")

OVERFLOW = re.compile(r"ArithmeticException\W+long overflow|KAFKA_MALFORMED_RECORD_TIMESTAMP")
MOST_MS = (2**63 - 1) // 1000  # a greater number overflows as microseconds
GROUP_BYTES = 32 << 20  # of values that are in memory at once
NAME = "unreadable-timestamps.parquet"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class UnreadableRecordError(CannotRunError):
    """A landing record has a timestamp that Spark can't read; the message names it."""


@dataclass(frozen=True)
class ReadRecords:
    """Records that were read from a Kafka source, as `landing_rows` takes a source."""

    name: str
    topics: Topics
    records: DataFrame

    def pushes(self, spark: SparkSession, start: Offsets) -> DataFrame:  # noqa: ARG002  # as a Source has it
        return self.records.where(F.col("topic") == self.topics.telemetry)

    def others(self, spark: SparkSession, start: Offsets) -> DataFrame:  # noqa: ARG002  # the same
        return self.records.where(F.col("topic") != self.topics.telemetry)


def is_overflow(error: Exception) -> bool:
    """Whether a batch may have failed because of a timestamp."""
    return OVERFLOW.search(str(error)) is not None


def first_unreadable(spark: SparkSession, source: KafkaSource, begin: Offsets, end: Offsets) -> KafkaRecord | None:
    """The first record of a batch whose timestamp overflows; None: there is none, so something else did."""
    return next((record for record in _records(spark, source, begin, end) if _overflows(record)), None)


@contextmanager
def read_records(
    spark: SparkSession, source: KafkaSource, begin: Offsets, end: Offsets, folder: str
) -> Iterator[ReadRecords]:
    """Read a batch's records into a file, which is deleted at the end of the block.

    Args:
        begin, end: the batch's offsets.
        folder: folder or URI for the file, which Spark's workers reach.

    Raises:
        KafkaUnavailableError: the records can't be read.
    """
    filesystem, root = filesystem_of(folder)
    path = f"{root}/{NAME}"
    bad = 0
    with pq.ParquetWriter(path, SCHEMA, filesystem=filesystem, compression="zstd") as writer:
        rows: list[dict[str, object]] = []
        size = 0
        for record in _records(spark, source, begin, end):
            if _overflows(record):
                if not bad:
                    log.warning("%s", about(record))
                bad += 1
            rows.append(_row(record))
            size += len(record.value or b"")
            if size > GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows, size = [], 0
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    log.warning("pushes: %d records of this batch have such a timestamp; they are stored without it", bad)
    try:
        records = spark.read.schema(RECORD).parquet(literal(f"{folder}/{NAME}"))
        yield ReadRecords(source.name, source.topics, records)
    finally:
        filesystem.delete_file(path)


def naming(
    spark: SparkSession, source: object, offsets: OffsetLog, run: Callable[[DataFrame, int], None]
) -> Callable[[DataFrame, int], None]:
    """The function of a batch, which names a record that Spark can't read. It raises ``UnreadableRecordError``."""

    def named(batch: DataFrame, batch_id: int) -> None:
        try:
            run(batch, batch_id)
        except Exception as error:
            if not isinstance(source, KafkaSource) or not is_overflow(error):
                raise
            record = first_unreadable(spark, source, *offsets.of_batch(batch_id))
            if record is None:
                raise
            raise UnreadableRecordError(
                f"{about(record)}. To go on, delete the records of this partition up to it (kafka-delete-records.sh), "
                "and run once with --no-fail-on-data-loss"
            ) from error

    return named


def about(record: KafkaRecord) -> str:
    """A sentence about a record whose timestamp overflows."""
    return (
        f"{record.topic}/{record.partition}: offset {record.offset}: its timestamp {record.timestamp} is no time in "
        "milliseconds, and Spark can't read it: correct its producer, or let the topic refuse such records "
        "(message.timestamp.after.max.ms)"
    )


def _records(spark: SparkSession, source: KafkaSource, begin: Offsets, end: Offsets) -> Iterator[KafkaRecord]:
    reset = "none" if source.fail_on_data_loss else "earliest"
    options = {"kafka.max.poll.records": str(RECORDS_AT_HAND), **source.options, "kafka.auto.offset.reset": reset}
    for topic, partitions in sorted(end.items()):
        for partition, last in sorted(partitions.items()):
            first = begin.get(topic, {}).get(partition, 0)
            if first < last:
                yield from records_between(spark, source.bootstrap_servers, options, topic, partition, first, last)


def _overflows(record: KafkaRecord) -> bool:
    return not -MOST_MS - 1 < record.timestamp <= MOST_MS


def _row(record: KafkaRecord) -> dict[str, object]:
    is_time = 0 <= record.timestamp <= LAST_MS  # another one isn't stored either
    return {
        **record._asdict(),
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp) if is_time else None,
        "timestampType": record.timestamp_type,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }
