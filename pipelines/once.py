"""An offset is stored once, whichever checkpoint reads it: rows that a table already holds are left out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta_log import lake_uri

# A push's identity (rule D1). cluster_id may be NULL. The record's time belongs to it: a topic that was deleted and
# made again gives its offsets to other records.
IDENTITY = ("source", "cluster_id", "topic", "partition", "offset", "landed_at")
SAME = " AND ".join(f"new.{name} <=> held.{name}" for name in IDENTITY)


@dataclass(frozen=True)
class Range:
    """The offsets from `low` to `high` of one partition of a source; not all of them need be there."""

    source: str
    topic: str
    partition: int
    low: int
    high: int


@dataclass(frozen=True)
class OffsetGuard:
    """Knows which offsets a table held before a checkpoint began.

    One checkpoint gets an offset from Kafka once, so only those need a look: they are noted in a file beside the
    checkpoint at its first start, and usually there are none.
    """

    table_uri: str
    before_checkpoint: tuple[Range, ...]

    @staticmethod
    def load(spark: SparkSession, table_uri: str, checkpoint: str) -> OffsetGuard:
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(checkpoint))
        note = f"{root}/offsets-before.json"
        if filesystem.get_file_info(note).type == pafs.FileType.NotFound:
            ranges = ranges_of(spark.read.format("delta").load(table_uri))
            filesystem.create_dir(root, recursive=True)
            with filesystem.open_output_stream(f"{note}.tmp") as stream:
                stream.write(json.dumps([asdict(found) for found in ranges]).encode())
            filesystem.move(f"{note}.tmp", note)
        with filesystem.open_input_file(note) as stream:
            return OffsetGuard(table_uri, tuple(Range(**found) for found in json.loads(stream.read())))

    def stored(self, spark: SparkSession, ranges: tuple[Range, ...]) -> DataFrame:
        """The identities that the table holds within the ranges."""
        within = F.lit(False)
        for found in ranges:
            within |= (
                (F.col("source") == found.source)
                & (F.col("topic") == found.topic)
                & (F.col("partition") == found.partition)
                & F.col("offset").between(found.low, found.high)
            )
        return spark.read.format("delta").load(self.table_uri).where(within).select(*IDENTITY)

    def unstored(self, batch: DataFrame, may_repeat: bool) -> DataFrame:
        """The batch's rows whose offsets the table doesn't hold yet, each offset once.

        Args:
            may_repeat: the source may give one offset again under one checkpoint, as files can: the batch is compared
                with all of the table, not only with what was there before the checkpoint.
        """
        ranges = self.before_checkpoint
        if may_repeat:
            batch = batch.dropDuplicates(list(IDENTITY))
            ranges = ranges_of(batch)
        if not ranges:
            return batch
        return batch.alias("new").join(self._held(batch, ranges), F.expr(SAME), "left_anti")

    def marked(self, batch: DataFrame) -> DataFrame:
        """The batch with a column `stored`: whether the table held the row's offset before this checkpoint began."""
        if not self.before_checkpoint:
            return batch.withColumn("stored", F.lit(False))
        held = self._held(batch, self.before_checkpoint)
        joined = batch.alias("new").join(held, F.expr(SAME), "left")
        return joined.select("new.*", F.col("held.offset").isNotNull().alias("stored"))

    def _held(self, batch: DataFrame, ranges: tuple[Range, ...]) -> DataFrame:
        return self.stored(batch.sparkSession, ranges).alias("held")


def ranges_of(rows: DataFrame) -> tuple[Range, ...]:
    """The span of offsets of each source, topic and partition."""
    found = rows.groupBy("source", "topic", "partition").agg(
        F.min("offset").alias("low"), F.max("offset").alias("high")
    )
    return tuple(Range(**row.asDict()) for row in found.collect())
