"""An offset is stored once, whichever checkpoint reads it: rows that a table already holds are left out of a batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta_log import lake_uri
from pipelines.tables import Table

if TYPE_CHECKING:
    from pipelines.streams import Lake

# A push's identity (rule D1). cluster_id may be NULL.
IDENTITY = ("source", "cluster_id", "topic", "partition", "offset")


class ReadAgain(Protocol):
    """What the guard asks of a source: its name, and whether one checkpoint may meet an offset twice."""

    @property
    def name(self) -> str: ...
    @property
    def may_repeat(self) -> bool: ...


@dataclass(frozen=True)
class Range:
    """The offsets from `low` to `high` of one partition; not all of them need be there."""

    topic: str
    partition: int
    low: int
    high: int


@dataclass(frozen=True)
class OffsetGuard:
    """Knows which offsets of a source a table may already hold.

    Kafka gives an offset once to one checkpoint, so only what the table held before this checkpoint began is looked at:
    noted in a file beside it at its first start, and usually nothing. A files source may repeat an offset in another
    file, so each of its batches is compared with the table.
    """

    table_uri: str
    source: ReadAgain
    before_checkpoint: tuple[Range, ...]

    @staticmethod
    def load(spark: SparkSession, lake: Lake, table: Table, source: ReadAgain) -> OffsetGuard:
        table_uri = table.uri(lake.path)
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(lake.checkpoint(table.name)))
        note = f"{root}/offsets-before.json"
        if filesystem.get_file_info(note).type == pafs.FileType.NotFound:
            stored = spark.read.format("delta").load(table_uri).where(F.col("source") == source.name)
            ranges = _ranges(stored)
            filesystem.create_dir(root, recursive=True)
            with filesystem.open_output_stream(f"{note}.tmp") as stream:
                stream.write(json.dumps([vars(found) for found in ranges]).encode())
            filesystem.move(f"{note}.tmp", note)
        with filesystem.open_input_file(note) as stream:
            ranges = tuple(Range(**found) for found in json.loads(stream.read()))
        return OffsetGuard(table_uri, source, ranges)

    def without_stored(self, batch: DataFrame) -> DataFrame:
        """The batch's rows whose offsets the table doesn't hold yet, each offset once."""
        if self.source.may_repeat:
            batch = batch.dropDuplicates(list(IDENTITY))
            ranges = _ranges(batch)
        else:
            ranges = self.before_checkpoint
        if not ranges:
            return batch
        stored = batch.sparkSession.read.format("delta").load(self.table_uri).where(F.col("source") == self.source.name)
        within = F.lit(False)
        for found in ranges:
            within |= (
                (F.col("topic") == found.topic)
                & (F.col("partition") == found.partition)
                & F.col("offset").between(found.low, found.high)
            )
        held = stored.where(within).select(*IDENTITY).alias("held")
        new = batch.alias("new")
        same = [F.col(f"new.{name}").eqNullSafe(F.col(f"held.{name}")) for name in IDENTITY]
        return new.join(held, same, "left_anti")


def _ranges(rows: DataFrame) -> tuple[Range, ...]:
    found = rows.groupBy("topic", "partition").agg(F.min("offset").alias("low"), F.max("offset").alias("high"))
    return tuple(Range(**row.asDict()) for row in found.collect())
