"""Sources of landing records: a Kafka topic, or Parquet files with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.landing import RECORD
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import existing_topics
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.udfs.errors import CannotRunError

# Required columns of a files source, with the Arrow types that a Parquet reader may return.
_BINARY = (pa.binary(), pa.large_binary())
FILE_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "key": _BINARY,
    "value": _BINARY,
    "topic": (pa.string(), pa.large_string()),
    "partition": (pa.int32(),),
    "offset": (pa.int64(),),
}


POLL_S = 0.5  # between two looks at a topic


class SourceError(CannotRunError):
    """The source can't be read; the message says what to change."""


@dataclass(frozen=True)
class Topics:
    """The three landing topics. Records of any other topic in a files source are read as pushes."""

    telemetry: str = "client-telemetry"
    status: str = "client-telemetry-status"
    quotas: str = "client-quotas"


@dataclass(frozen=True)
class FilesSource:
    """Parquet files in a folder (or one file). The next batch reads new files; no file is read twice."""

    path: str
    name: str
    topics: Topics = Topics()
    max_files_per_trigger: int = 200

    # Several files may contain the same offset, so every batch is checked for offsets that are already stored.
    may_repeat = True

    def check(self) -> None:
        """Raise ``SourceError`` if the folder is missing or files have other columns. Needs no Spark."""
        path = Path(self.path)
        if not path.exists():
            raise SourceError(f"source folder {self.path} does not exist")
        files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
        for file in files:
            _check_columns(file)

    def reads_statuses(self, spark: SparkSession) -> bool:  # noqa: ARG002  # a Kafka source needs it
        """Always True: any file may contain statuses."""
        return True

    def reads_quotas(self, spark: SparkSession) -> bool:  # noqa: ARG002  # a Kafka source needs it
        """Whether an existing file contains quota samples; usually file statistics are enough to decide."""
        path = Path(self.path)
        files = [path] if path.is_file() else sorted(path.glob("[!._]*.parquet"))
        topics = [pads.dataset(file, format="parquet") for file in files]
        is_quota = pads.field("topic") == self.topics.quotas
        return any(each.head(1, columns=["topic"], filter=is_quota).num_rows for each in topics)

    def poll_s(self, trigger_s: float) -> float:
        """Seconds between two looks for new files."""
        return trigger_s

    def pushes(self, spark: SparkSession) -> DataFrame:
        return self._read(spark).where(~F.col("topic").isin(self.topics.status, self.topics.quotas))

    def statuses(self, spark: SparkSession) -> DataFrame:
        return self._read(spark).where(F.col("topic") == self.topics.status)

    def quotas(self, spark: SparkSession) -> DataFrame:
        return self._read(spark).where(F.col("topic") == self.topics.quotas)

    def _read(self, spark: SparkSession) -> DataFrame:
        path = Path(self.path)
        folder, pattern = (path.parent, path.name) if path.is_file() else (path, "*.parquet")
        return (
            spark.readStream.schema(RECORD)
            .option("maxFilesPerTrigger", self.max_files_per_trigger)
            .option("pathGlobFilter", pattern)
            # By default Spark silently skips files that are a week older than the newest.
            .option("maxFileAge", "36500d")
            .parquet(str(folder.resolve()))
            .withColumn("headers", F.filter("headers", lambda header: header["key"].isNotNull()))  # as in Kafka
        )


@dataclass(frozen=True)
class KafkaSource:
    """The landing topics of a cluster, through Spark's Kafka source.

    Attributes:
        options: passed to the source as they are (``kafka.*`` for the consumer: SASL, SSL); never logged.
        starting_offsets: ``earliest``, ``latest``, or epoch milliseconds; used only by a new checkpoint.
        fail_on_data_loss: fail if offsets were deleted from the topic before they were read.
        max_wait_s: how long pushes may wait for a batch of `max_offsets_per_trigger`; None: it takes what there is.
    """

    bootstrap_servers: str
    name: str = "kafka"
    topics: Topics = Topics()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int = 50_000
    fail_on_data_loss: bool = True
    max_wait_s: float | None = None

    may_repeat = False

    def check(self) -> None:
        """Raise ``KafkaUnavailableError`` if no broker answers. Topics are checked by `reads_statuses`."""
        check_brokers(self.bootstrap_servers, self.options)

    def reads_statuses(self, spark: SparkSession) -> bool:
        """Whether the status topic exists. Raises ``SourceError`` if the landing topic doesn't."""
        topics = existing_topics(spark, self.bootstrap_servers, self.options)
        if self.topics.telemetry not in topics:
            raise SourceError(
                f"topic {self.topics.telemetry} does not exist at {self.bootstrap_servers}, or this user may not see "
                "it: create it, or name another with --topic"
            )
        return self.topics.status in topics

    def reads_quotas(self, spark: SparkSession) -> bool:
        """Whether the topic of quota samples exists."""
        return self.topics.quotas in existing_topics(spark, self.bootstrap_servers, self.options)

    def poll_s(self, trigger_s: float) -> float:
        """Seconds between two looks at the source for enough pushes to start a batch."""
        return trigger_s if self.max_wait_s is None else min(trigger_s, POLL_S)

    def pushes(self, spark: SparkSession) -> DataFrame:
        waits = {} if self.max_wait_s is None else {
            "minOffsetsPerTrigger": str(self.max_offsets_per_trigger),
            "maxTriggerDelay": f"{round(1000 * self.max_wait_s)}ms",
        }  # fmt: skip
        return self._read(spark, self.topics.telemetry, waits)

    def statuses(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.status)

    def quotas(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.quotas)

    def _read(self, spark: SparkSession, topic: str, waits: Mapping[str, str] | None = None) -> DataFrame:
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("kafka.metadata.recovery.strategy", "rebootstrap")  # KIP-899; the default from Kafka 4.0 on
            .option("subscribe", topic)
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", self.max_offsets_per_trigger)
            .option("failOnDataLoss", str(self.fail_on_data_loss).lower())
        )
        if self.starting_offsets.isdigit():
            reader = reader.option("startingTimestamp", self.starting_offsets).option(
                "startingOffsetsByTimestampStrategy", "latest"
            )
        else:
            reader = reader.option("startingOffsets", self.starting_offsets)
        return reader.options(**(waits or {}), **self.options).load()


Source = FilesSource | KafkaSource


def _check_columns(file: Path) -> None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{file} is not a Parquet file: {str(error).splitlines()[0]}") from error
    problems = [
        f"column {name} is {schema.field(name).type if name in schema.names else 'missing'}, expected {allowed[0]}"
        for name, allowed in FILE_COLUMNS.items()
        if name not in schema.names or schema.field(name).type not in allowed
    ]
    time = schema.field("timestamp").type if "timestamp" in schema.names else None
    if time is None or not pa.types.is_timestamp(time) or time.unit == "ns":
        problems.append(f"column timestamp is {time or 'missing'}, expected timestamp[us, tz=UTC]")
    if problems:
        raise SourceError(f"{file} does not have the columns of Spark's Kafka source: {'; '.join(problems)}")
