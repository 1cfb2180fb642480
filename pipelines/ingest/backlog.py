"""Pushes that table `pushes` had before the operator followed it: those of another checkpoint.

Spark's Delta source works them off: it begins with the files that the table has now, as the table's log may not reach
back to its beginning.
"""

from __future__ import annotations

import logging

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.pipelines.ingest.checkpoint import POINTS, begun_batch
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.push_files import table_paths
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, start_batches
from kafka_telemetry_lake.pipelines.lake.errors import RebuildError
from kafka_telemetry_lake.pipelines.lake.offset_guard import SAME_PUSH
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

log = logging.getLogger(__name__)


def start_backlog(spark: SparkSession, lake: JobLake, operator: Operator, max_bytes_per_batch: str) -> StreamingQuery:
    """Judge the stored pushes, and end.

    Raises:
        RebuildError: the state is new, and the table no longer has all pushes that were judged.
    """
    if not operator.has_state():
        _check_rebuild(spark, lake, operator)
    pushes = added_files(spark, PUSHES.uri(lake.path), max_bytes_per_batch)
    begun = begun_batch(lake.checkpoint(POINTS))  # guarded: it may be why the previous run ended

    def run(batch: DataFrame, batch_id: int) -> None:
        (row,) = batch.coalesce(1).agg(F.collect_set("file")).collect()  # one task, no shuffle
        operator.run_batch(batch_id, table_paths(sorted(row[0])), guarded=batch_id == begun)

    return start_batches(pushes, POINTS, lake, None, run)


def has_backlog(lake: JobLake) -> bool:
    """Whether the table has pushes, or an earlier run has begun with them."""
    return lake.has_pushes() or begun_batch(lake.checkpoint(POINTS)) is not None


def latest_version(lake: JobLake) -> int:
    """The version of table `pushes` now."""
    return int(DeltaTable(PUSHES.uri(lake.path)).version())


def _check_rebuild(spark: SparkSession, lake: JobLake, operator: Operator) -> None:
    """Raise ``RebuildError`` if a new checkpoint on a lake with points can't read every push again.

    A new checkpoint starts with empty state, which is correct only after every push has been processed again.
    """
    guard = operator.guard
    if not guard.before_checkpoint:
        return
    processed = guard.stored(spark, guard.before_checkpoint).alias("stored_pushes")
    pushes = spark.read.format("delta").load(PUSHES.uri(lake.path)).select(*IDENTITY).alias("new")
    missing = processed.join(pushes, F.expr(SAME_PUSH), "left_anti").count()
    if missing:
        raise RebuildError(
            f"the checkpoint is new, but this lake has points of {missing} pushes that table "
            "pushes no longer contains, so their counters can't continue. Restore the checkpoint folder from its "
            "backup, or ingest into a new lake folder"
        )
    log.info(
        "points: new checkpoint on a lake with points: state is rebuilt from table pushes, no row is written twice"
    )


def added_files(spark: SparkSession, table_uri: str, max_bytes: str) -> DataFrame:
    """A streaming column `file`: for each row that is added to the table, the URI of its file.

    Tasks read the files themselves, so that rows don't go through the JVM. Files that only replace others aren't among
    them.

    Args:
        max_bytes: bytes of files in a micro-batch, as Delta's option `maxBytesPerTrigger`.
    """
    return (
        spark.readStream.format("delta")
        .option("ignoreDeletes", "true")
        .option("skipChangeCommits", "true")
        .option("maxBytesPerTrigger", max_bytes)
        .load(table_uri)
        .select(F.input_file_name().alias("file"))
    )
