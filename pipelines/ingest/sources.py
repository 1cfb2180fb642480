"""Sources of landing records: a Kafka topic, or Parquet files with the columns of Spark's Kafka source."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.lake.paths import literal
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import existing_topics
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import for_jvm
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import topic_ids, topics_of
from kafka_telemetry_lake.udfs.errors import CannotRunError

log = logging.getLogger("telemetry-lake")

# The columns of Spark's Kafka source with includeHeaders. A files source has the same columns.
RECORD = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
# Required columns of a files source, with the Arrow types that a Parquet reader may return.
_BINARY = (pa.binary(), pa.large_binary())
FILE_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "key": _BINARY,
    "value": _BINARY,
    "topic": (pa.string(), pa.large_string()),
    "partition": (pa.int32(),),
    "offset": (pa.int64(),),
}


POLL_S = 2.5  # between two looks at a topic, at most
# A batch has fixed costs, which few pushes aren't worth: these wait for two looks, more for one. A job whose pushes may
# wait longer than for two looks makes few batches, of all pushes that there are.
ENOUGH_PUSHES = 50
# Records that a consumer returns at once and that stay on the heap until they are read. Of 500, Kafka's default, each
# collection of the young generation copied 8 MB, a tenth of the job's CPU; those of a MiB each would fill the heap.
RECORDS_AT_HAND = 50
OTHERS_WAIT_S = 30.0  # that statuses and quota samples wait for a batch: a batch has fixed costs
EARLIEST = -2  # in Spark's starting offsets
SMALL_BYTES = 256 << 20  # of files, for which code of HotSpot's optimizing compiler costs more than it saves

Offsets = Mapping[str, Mapping[int, int]]  # next offset by topic and partition


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
        place = str(path.resolve())
        if ":" in place and literal(place) != place:
            raise SourceError(
                rf"source folder {place} has a colon and one of [ ] {{ }} * ? \ in its path, and Spark can't read it: "
                "rename it"
            )
        for file in self._files():
            if ":" in file.name:
                raise SourceError(f"{file}: Spark can't read files with a colon in their name: rename it")
            _check_columns(file)

    def is_small(self) -> bool:
        """Whether its files, those that are stored already included, have little to read."""
        return sum(file.stat().st_size for file in self._files()) <= SMALL_BYTES

    def _files(self) -> list[Path]:
        path = Path(self.path)
        # Spark doesn't read files of these names: others write them and rename them when they are whole.
        return [path] if path.is_file() else sorted(path.glob("[!_.]*.parquet"))

    def check_topics(self, spark: SparkSession) -> None:
        """Do nothing: any file may contain any topic."""

    def topic_ids(self, spark: SparkSession) -> dict[str, str]:  # noqa: ARG002  # a Kafka source needs it
        """No ids, as files may be of any topic."""
        return {}

    def poll_s(self, trigger_s: float) -> float:
        """Seconds between two looks for new files."""
        return trigger_s

    def pushes(self, spark: SparkSession, start: Offsets) -> DataFrame:  # noqa: ARG002  # a Kafka source needs it
        return self._read(spark).where(~F.col("topic").isin(self.topics.status, self.topics.quotas))

    def others(self, spark: SparkSession, start: Offsets) -> DataFrame:  # noqa: ARG002  # a Kafka source needs it
        """Statuses and quota samples."""
        return self._read(spark).where(F.col("topic").isin(self.topics.status, self.topics.quotas))

    def _read(self, spark: SparkSession) -> DataFrame:
        path = Path(self.path)
        folder, pattern = (path.parent, literal(path.name)) if path.is_file() else (path, "*.parquet")
        return (
            spark.readStream.schema(RECORD)
            .option("maxFilesPerTrigger", self.max_files_per_trigger)
            .option("pathGlobFilter", pattern)
            # By default Spark silently skips files that are a week older than the newest.
            .option("maxFileAge", "36500d")
            .parquet(literal(str(folder.resolve())))
            .withColumn("headers", F.filter("headers", lambda header: header["key"].isNotNull()))  # as in Kafka
        )


@dataclass(frozen=True)
class KafkaSource:
    """The landing topics of a cluster, through Spark's Kafka source.

    Attributes:
        options: passed to the source as they are (``kafka.*`` for the consumer: SASL, SSL); never logged.
        starting_offsets: ``earliest``, ``latest``, or epoch milliseconds; used only by a new checkpoint.
        fail_on_data_loss: fail if offsets were deleted from the topic before they were read.
        max_wait_s: how long pushes may wait for others; None: a batch takes what there is.
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
        """Raise ``KafkaUnavailableError`` if no broker answers. Topics are checked by `check_topics`."""
        check_brokers(self.bootstrap_servers, self.options)

    def is_small(self) -> bool:
        """False: how much waits in a topic isn't known before Spark starts."""
        return False

    def check_topics(self, spark: SparkSession) -> None:
        """Raise ``SourceError`` if the landing topic doesn't exist. The other topics may appear later."""
        if self.topics.telemetry not in existing_topics(spark, self.bootstrap_servers, self.options):
            raise SourceError(
                f"topic {self.topics.telemetry} does not exist at {self.bootstrap_servers}, or this user may not see "
                "it: create it, or name another with --topic"
            )

    def topic_ids(self, spark: SparkSession) -> dict[str, str]:
        """The id of each topic that exists, where the brokers name one."""
        names = (self.topics.telemetry, self.topics.status, self.topics.quotas)
        return topic_ids(spark, self.bootstrap_servers, self.options, names)

    def poll_s(self, trigger_s: float) -> float:
        """Seconds between two looks at the source for enough pushes to start a batch."""
        return trigger_s if self.max_wait_s is None else min(trigger_s / 2, POLL_S)

    def pushes(self, spark: SparkSession, start: Offsets) -> DataFrame:
        few = self.max_wait_s is not None and self.max_wait_s <= 2 * POLL_S
        enough = min(ENOUGH_PUSHES, self.max_offsets_per_trigger) if few else self.max_offsets_per_trigger
        waits = self._waits(0, enough)
        return self._read(spark, {"subscribe": self.topics.telemetry}, (self.topics.telemetry,), waits, start)

    def others(self, spark: SparkSession, start: Offsets) -> DataFrame:
        """Statuses and quota samples. They wait longer than pushes: each batch has a fixed cost."""
        names = (self.topics.status, self.topics.quotas)
        waits = self._waits(OTHERS_WAIT_S, self.max_offsets_per_trigger)
        if existing_topics(spark, self.bootstrap_servers, self.options).issuperset(names):
            subscription = {"subscribe": ",".join(names)}
        else:
            # Topics that don't exist can't be subscribed to. A pattern costs more: Spark lists all topics at each look.
            subscription = {"subscribePattern": "|".join(re.sub(r"([^a-zA-Z0-9_-])", r"\\\1", name) for name in names)}
        return self._read(spark, subscription, names, waits, start)

    def _waits(self, least_s: float, enough: int) -> dict[str, str]:
        """Options by which fewer records than `enough` wait, for `max_wait_s` or `least_s` if that is longer."""
        if self.max_wait_s is None:
            return {}
        delay_s = max(self.max_wait_s, least_s) - self.poll_s(self.max_wait_s) / 2  # looks are never exactly on time
        return {"minOffsetsPerTrigger": str(enough), "maxTriggerDelay": f"{round(1000 * delay_s)}ms"}

    def _read(
        self,
        spark: SparkSession,
        subscription: Mapping[str, str],
        topics: Sequence[str],
        waits: Mapping[str, str],
        start: Offsets,
    ) -> DataFrame:
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("kafka.metadata.recovery.strategy", "rebootstrap")  # KIP-899; the default from Kafka 4.0 on
            .option("kafka.max.poll.records", RECORDS_AT_HAND)
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", self.max_offsets_per_trigger)
            .option("failOnDataLoss", str(self.fail_on_data_loss).lower())
        )
        options = for_jvm(spark._jvm, self.options)
        return reader.options(**self._starting(spark, topics, start), **subscription, **waits, **options).load()

    def _starting(self, spark: SparkSession, topics: Sequence[str], start: Offsets) -> dict[str, str]:
        """Options with the offsets that a new checkpoint starts from."""
        if start.keys().isdisjoint(topics):
            if self.starting_offsets.isdigit():
                return {
                    "startingTimestamp": self.starting_offsets,
                    "startingOffsetsByTimestampStrategy": "latest",
                }
            return {"startingOffsets": self.starting_offsets}
        # Spark wants an offset for each partition. One that wasn't there before is read from its beginning.
        described = topics_of(spark, self.bootstrap_servers, self.options, topics)
        offsets = {
            name: {str(number): start.get(name, {}).get(number, EARLIEST) for number in range(topic.partitions)}
            for name, topic in described.items()
        }
        return {"startingOffsets": json.dumps(offsets)}


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
    # Spark reads these as NULL where a file lacks them.
    if "headers" in schema.names and not _are_headers(schema.field("headers").type):
        problems.append(
            f"column headers is {schema.field('headers').type}, expected list<struct<key: string, value: binary>>"
        )
    if "timestampType" in schema.names and schema.field("timestampType").type != pa.int32():
        problems.append(f"column timestampType is {schema.field('timestampType').type}, expected int32")
    if problems:
        raise SourceError(f"{file} does not have the columns of Spark's Kafka source: {'; '.join(problems)}")


def _are_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    types = {field.name: field.type for field in kind.value_type}
    return types.get("key") in FILE_COLUMNS["topic"] and types.get("value") in _BINARY


def has_new_partition(topics: Collection[str], error: str) -> bool:
    """Whether a query failed because one of its topics has a new partition, as Scala words a missing key of a map.

    Spark 4.0's Kafka source fails if it finds one and lets the batch wait (``minOffsetsPerTrigger``): to report
    progress it looks the partition up among those of the last batch (``KafkaMicroBatchStream.metrics``). Nothing was
    read, and the next start takes the partition from its beginning.
    """
    match = re.match(r"key not found: (.+)-\d+$", error, re.MULTILINE)
    if match is None or match[1] not in topics:
        return False
    log.info("ingest: topic %s has more partitions, the query starts again", match[1])
    return True
