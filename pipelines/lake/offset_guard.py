"""Stores each offset once, whichever checkpoint reads it: rows that a table already contains are skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.lake.json_files import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY
from kafka_telemetry_lake.udfs.rows import PUSH_KEY

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

    def stored_before(self) -> StoredOffsets | None:
        """The pushes stored before this checkpoint was created, for tasks to skip; None if there were none."""
        return StoredOffsets(self.table_uri, self.version) if self.before_checkpoint else None


@dataclass(frozen=True)
class StoredOffsets:
    """The pushes in one version of a table, as plain values that tasks can be sent. Don't vacuum that version."""

    table_uri: str
    version: int

    def within(self, pushes: pa.Table) -> pa.Table:
        """The identities (columns `IDENTITY`) of the stored pushes within the offset ranges of `pushes`."""
        identities = pa.schema([field for field in PUSH_KEY if field.name in IDENTITY]).empty_table()
        for partition in pc.unique(pushes["partition"]).to_pylist():
            span = pc.min_max(pushes.filter(pc.field("partition") == partition)["offset"]).as_py()
            wanted = (pads.field("partition") == partition) & (pads.field("offset") >= span["min"])
            wanted &= pads.field("offset") <= span["max"]
            part = _dataset(self.table_uri, self.version).to_table(columns=list(IDENTITY), filter=wanted)
            identities = pa.concat_tables([identities, part.cast(identities.schema)])
        return identities


@lru_cache(maxsize=1)
def _dataset(table_uri: str, version: int) -> pads.Dataset:
    return DeltaTable(table_uri, version=version).to_pyarrow_dataset()


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
