"""An offset is stored once, whichever checkpoint reads it: rows that a table already holds are left out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipelines.delta_log import lake_uri
from udfs.rows import PUSH_KEY

if TYPE_CHECKING:  # upkeep, which needs no Spark, takes its terms from here
    from pyspark.sql import DataFrame, SparkSession

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
    version: int  # of the table when the checkpoint began

    @staticmethod
    def load(spark: SparkSession, table_uri: str, checkpoint: str) -> OffsetGuard:
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(checkpoint))
        note = f"{root}/offsets-before.json"
        if filesystem.get_file_info(note).type == pafs.FileType.NotFound:
            version = DeltaTable(table_uri).version()
            ranges = ranges_of(spark.read.format("delta").option("versionAsOf", version).load(table_uri))
            content = {"version": version, "ranges": [asdict(found) for found in ranges]}
            filesystem.create_dir(root, recursive=True)
            with filesystem.open_output_stream(f"{note}.tmp") as stream:
                stream.write(json.dumps(content).encode())
            filesystem.move(f"{note}.tmp", note)
        with filesystem.open_input_file(note) as stream:
            content = json.loads(stream.read())
        ranges = tuple(Range(**found) for found in content["ranges"])
        return OffsetGuard(table_uri, ranges, content["version"])

    def stored(self, spark: SparkSession, ranges: tuple[Range, ...]) -> DataFrame:
        """The identities that the table holds within the ranges."""
        from pyspark.sql import functions as F  # noqa: PLC0415

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
        from pyspark.sql import functions as F  # noqa: PLC0415

        ranges = self.before_checkpoint
        if may_repeat:
            batch = batch.dropDuplicates(list(IDENTITY))
            ranges = ranges_of(batch)
        if not ranges:
            return batch
        unstored = batch.alias("new").join(self._held(batch, ranges), F.expr(SAME), "left_anti")
        # Comparing has shuffled them; readers work through a file in its order.
        return unstored.repartitionByRange("partition").sortWithinPartitions("partition", "offset")

    def held(self) -> HeldOffsets | None:
        """What a task asks whether a push's rows are there from before this checkpoint; None: nothing was."""
        return HeldOffsets(self.table_uri, self.version) if self.before_checkpoint else None

    def _held(self, batch: DataFrame, ranges: tuple[Range, ...]) -> DataFrame:
        return self.stored(batch.sparkSession, ranges).alias("held")


@dataclass(frozen=True)
class HeldOffsets:
    """The pushes that a table named at one version; plain values, for tasks. That version's files must be kept."""

    table_uri: str
    version: int

    def within(self, pushes: pa.Table) -> pa.Table:
        """The identities of those that lie within the spans of `pushes`, columns `IDENTITY`."""
        found = pa.schema([field for field in PUSH_KEY if field.name in IDENTITY]).empty_table()
        for partition in pc.unique(pushes["partition"]).to_pylist():
            span = pc.min_max(pushes.filter(pc.field("partition") == partition)["offset"]).as_py()
            wanted = (pads.field("partition") == partition) & (pads.field("offset") >= span["min"])
            wanted &= pads.field("offset") <= span["max"]
            part = _dataset(self.table_uri, self.version).to_table(columns=list(IDENTITY), filter=wanted)
            found = pa.concat_tables([found, part.cast(found.schema)])
        return found


@lru_cache(maxsize=1)
def _dataset(table_uri: str, version: int) -> pads.Dataset:
    return DeltaTable(table_uri, version=version).to_pyarrow_dataset()


def ranges_of(rows: DataFrame) -> tuple[Range, ...]:
    """The span of offsets of each source, topic and partition."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    found = rows.groupBy("source", "topic", "partition").agg(
        F.min("offset").alias("low"), F.max("offset").alias("high")
    )
    return tuple(Range(**row.asDict()) for row in found.collect())
