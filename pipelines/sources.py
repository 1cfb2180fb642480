"""Where landing records come from: a Kafka topic, or Parquet files with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.kafka_admin import existing_topics
from pipelines.landing import RECORD

# What a files source must hold, by Arrow type as Parquet readers see it.
_BINARY = (pa.binary(), pa.large_binary())
FILE_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "key": _BINARY,
    "value": _BINARY,
    "topic": (pa.string(), pa.large_string()),
    "partition": (pa.int32(),),
    "offset": (pa.int64(),),
}


class SourceError(ValueError):
    """The source can't be read as it is; the message says what to change."""


@dataclass(frozen=True)
class Topics:
    """The three landing topics. Records of any other topic in a files source are read as pushes."""

    telemetry: str = "client-telemetry"
    status: str = "client-telemetry-status"
    quotas: str = "client-quotas"


@dataclass(frozen=True)
class FilesSource:
    """Parquet files in a folder (or one file). New files are picked up by the next batch; a file is never re-read."""

    path: str
    name: str
    topics: Topics = Topics()
    max_files_per_trigger: int = 200

    # Offsets may stand in several files of a folder, so every batch is checked for offsets already stored.
    may_repeat = True

    def check(self) -> None:
        """Raise ``SourceError`` for a missing folder or files of other columns; before Spark starts."""
        path = Path(self.path)
        if not path.exists():
            raise SourceError(f"source folder {self.path} does not exist")
        files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
        for file in files:
            _check_columns(file)

    def reads_statuses(self, spark: SparkSession) -> bool:  # noqa: ARG002  # a Kafka source has to ask
        """Statuses may stand in any file."""
        return True

    def reads_quotas(self, spark: SparkSession) -> bool:  # noqa: ARG002  # a Kafka source has to ask
        """Whether a file that is there now holds quota samples; usually the files' statistics alone tell."""
        path = Path(self.path)
        files = [path] if path.is_file() else sorted(path.glob("[!._]*.parquet"))
        topics = [pads.dataset(file, format="parquet") for file in files]
        is_quota = pads.field("topic") == self.topics.quotas
        return any(each.head(1, columns=["topic"], filter=is_quota).num_rows for each in topics)

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
            # The default forgets files that are a week older than the newest: a loss in silence.
            .option("maxFileAge", "36500d")
            .parquet(str(folder.resolve()))
            .withColumn("headers", F.filter("headers", lambda header: header["key"].isNotNull()))  # Kafka has none
        )


@dataclass(frozen=True)
class KafkaSource:
    """The landing topics of a cluster, through Spark's Kafka source.

    Attributes:
        options: passed to the source as they are (``kafka.*`` for the consumer: SASL, SSL); never logged.
        starting_offsets: ``earliest``, ``latest``, or epoch milliseconds; counts for a new checkpoint only.
        fail_on_data_loss: stop when offsets that were not yet read are gone from the topic.
    """

    bootstrap_servers: str
    name: str = "kafka"
    topics: Topics = Topics()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int = 50_000
    fail_on_data_loss: bool = True

    may_repeat = False

    def check(self) -> None:
        """Nothing can be told before there is a session."""

    def reads_statuses(self, spark: SparkSession) -> bool:
        """Whether the status topic is there. Raises ``SourceError`` when the landing topic isn't."""
        topics = existing_topics(spark, self.bootstrap_servers, self.options)
        if self.topics.telemetry not in topics:
            raise SourceError(
                f"topic {self.topics.telemetry} does not exist at {self.bootstrap_servers}, or this user may not see "
                "it: create it, or name another with --topic"
            )
        return self.topics.status in topics

    def reads_quotas(self, spark: SparkSession) -> bool:
        """Whether the topic of quota samples is there."""
        return self.topics.quotas in existing_topics(spark, self.bootstrap_servers, self.options)

    def pushes(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.telemetry)

    def statuses(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.status)

    def quotas(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.quotas)

    def _read(self, spark: SparkSession, topic: str) -> DataFrame:
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
        return reader.options(**self.options).load()


Source = FilesSource | KafkaSource


def _check_columns(file: Path) -> None:
    try:
        found = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{file} is not a Parquet file: {str(error).splitlines()[0]}") from error
    problems = [
        f"column {name} is {found.field(name).type if name in found.names else 'missing'}, expected {allowed[0]}"
        for name, allowed in FILE_COLUMNS.items()
        if name not in found.names or found.field(name).type not in allowed
    ]
    time = found.field("timestamp").type if "timestamp" in found.names else None
    if time is None or not pa.types.is_timestamp(time) or time.unit == "ns":
        problems.append(f"column timestamp is {time or 'missing'}, expected timestamp[us, tz=UTC]")
    if problems:
        raise SourceError(f"{file} does not hold the columns of Spark's Kafka source: {'; '.join(problems)}")
