"""Stores each offset once, whichever checkpoint reads it: rows that a table already contains are skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, StoredOffsets

NOTE = "offsets-before.json"
SAME_PUSH = " AND ".join(f"new.{name} <=> stored_pushes.{name}" for name in IDENTITY)


@dataclass(frozen=True)
class OffsetRange:
    """The offsets from `low` to `high` (inclusive) of one partition of a source. The range may have gaps."""

    source: str
    topic: str
    partition: int
    low: int
    high: int


@dataclass(frozen=True)
class OffsetGuard:
    """Knows which offsets a table contained when a checkpoint was created.

    Within one checkpoint Spark reads each offset from Kafka once, so only offsets stored before it can repeat. Their
    ranges are saved in the checkpoint's folder at its first start. Usually there are none.
    """

    table_uri: str
    before_checkpoint: tuple[OffsetRange, ...]
    version: int  # of the table when the checkpoint was created
    is_own: Callable[[str], bool] | None = None  # of the topics that the table has records of; None: all

    @staticmethod
    def load(
        spark: SparkSession, table_uri: str, checkpoint: str, is_own: Callable[[str], bool] | None = None
    ) -> OffsetGuard:
        """The guard of a checkpoint; a table that doesn't exist yet had no offsets."""
        filesystem, root = filesystem_of(checkpoint)
        content = read_json(filesystem, f"{root}/{NOTE}")
        if content is None:
            version, ranges = -1, tuple[OffsetRange, ...]()
            if DeltaTable.is_deltatable(table_uri):
                table = DeltaTable(table_uri)
                version = table.version()
                if table.count():  # asking Spark takes seconds in a new session
                    ranges = ranges_of(spark.read.format("delta").option("versionAsOf", version).load(table_uri))
            return OffsetGuard(table_uri, ranges, version, is_own).note(checkpoint)
        before = tuple(OffsetRange(**each) for each in content["ranges"])
        return OffsetGuard(table_uri, before, content["version"], is_own)

    def note(self, checkpoint: str) -> OffsetGuard:
        """Write the note that `load` reads."""
        filesystem, root = filesystem_of(checkpoint)
        filesystem.create_dir(root, recursive=True)
        ranges = [asdict(each) for each in self.before_checkpoint]
        write_json(filesystem, f"{root}/{NOTE}", {"version": self.version, "ranges": ranges})
        return self

    def own(self, ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The ranges of topics that the table has records of."""
        return tuple(each for each in ranges if self.is_own is None or self.is_own(each.topic))

    def stored(self, spark: SparkSession, ranges: tuple[OffsetRange, ...]) -> DataFrame:
        """The identities of the table's rows within the ranges."""
        within = F.lit(False)
        for each in ranges:
            within |= (
                (F.col("source") == each.source)
                & (F.col("topic") == each.topic)
                & (F.col("partition") == each.partition)
                & F.col("offset").between(each.low, each.high)
            )
        return spark.read.format("delta").load(self.table_uri).where(within).select(*IDENTITY)

    def stored_before(self, checkpoint: str) -> StoredOffsets | None:
        """The pushes stored before this checkpoint was created, for tasks to skip; None if there were none.

        The first call writes them to a file in the checkpoint's folder, since a table's log forgets its old versions.

        Raises:
            StateMissingError: there is no file, and the version that it would be written from is gone.
        """
        if not self.before_checkpoint:
            return None
        stored = StoredOffsets(f"{checkpoint}/{StoredOffsets.NAME}")
        if not stored.exists():
            try:
                stored.write(DeltaTable(self.table_uri, version=self.version).to_pyarrow_dataset())
            except (DeltaError, FileNotFoundError) as error:
                raise StateMissingError(
                    f"{stored.uri} is missing, and {self.table_uri} no longer has version {self.version}, from which "
                    "it could be written: name a new folder with --checkpoints (the source is read from its "
                    "beginning, nothing is stored twice)"
                ) from error
        return stored


def unstored(batch: DataFrame, guards: Sequence[OffsetGuard], may_repeat: bool) -> DataFrame:
    """The batch's rows whose offsets none of the tables contains yet, each offset once.

    Args:
        may_repeat: the source may return an offset again within one checkpoint, as files can. The batch is then
            compared with the whole tables, not only with the rows stored before the checkpoint.
    """
    if may_repeat:
        batch = batch.dropDuplicates(list(IDENTITY))
        ranges = ranges_of(batch)
        candidates = [(guard, guard.own(ranges)) for guard in guards]
        within = [(guard, own) for guard, own in candidates if own and DeltaTable.is_deltatable(guard.table_uri)]
    else:
        within = [(guard, own) for guard in guards if (own := guard.own(guard.before_checkpoint))]
    if not within:
        return batch
    stored = reduce(DataFrame.union, (guard.stored(batch.sparkSession, ranges) for guard, ranges in within))
    rest = batch.alias("new").join(stored.alias("stored_pushes"), F.expr(SAME_PUSH), "left_anti")
    # The join has shuffled the rows, and readers rely on the order in a file.
    return rest.repartitionByRange("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def ranges_of(rows: DataFrame) -> tuple[OffsetRange, ...]:
    """The range of offsets of each source, topic and partition."""
    ranges = rows.groupBy("source", "topic", "partition").agg(
        F.min("offset").alias("low"), F.max("offset").alias("high")
    )
    return tuple(OffsetRange(**row.asDict()) for row in ranges.collect())
