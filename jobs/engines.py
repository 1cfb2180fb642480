"""The two engines of ``telemetry-lake ingest``: what keeps state, and who writes the tables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafka_telemetry_lake.jobs.ingest_settings import IngestSettings, size_in_bytes
from kafka_telemetry_lake.jobs.judging import caught_up_operator
from kafka_telemetry_lake.jobs.limits import limits_of
from kafka_telemetry_lake.pipelines.ingest.operator import Report
from kafka_telemetry_lake.pipelines.ingest.sources import Source
from kafka_telemetry_lake.pipelines.ingest.streams import Lake, Trigger, start_landing
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.spark_engine.query import shards_of, start_spark_engine
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByPath
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Opened


class RunningEngine(NamedTuple):
    """What the job needs of its engine.

    Attributes:
        start: starts the query from its checkpoint.
        judged: returns the version of table `pushes` up to which no batch needs the table's files as they are.
        turn: held while the engine commits. Whoever else commits to its tables holds it too, if Spark does: in a folder
            Spark looks whether a commit exists, then renames its own to that name, and would replace one made between.
    """

    shards: int
    start: Callable[[Trigger], StreamingQuery]
    judged: Callable[[], int | None]
    turn: AbstractContextManager[object]

    def in_turn(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, done while no batch commits."""

        def done() -> None:
            with self.turn:
                work()

        return done


def fast_engine(
    spark: SparkSession, lake: Lake, source: Source, settings: IngestSettings, stop: threading.Event, report: Report,
    opened: Opened,
) -> RunningEngine:  # fmt: skip
    """State files beside the checkpoint; tasks write the tables' files. Judges first what is stored and not judged."""
    operator = caught_up_operator(
        spark, lake, limits_of(settings), size_in_bytes(settings.max_bytes_per_batch), stop, settings.shards, report,
        opened,
    )  # fmt: skip
    return RunningEngine(
        operator.shards,
        lambda trigger: start_landing(spark, lake, source, trigger, operator),
        lambda: operator.position,
        nullcontext(),
    )


def spark_engine(
    spark: SparkSession, lake: Lake, source: Source, settings: IngestSettings, _: threading.Event, report: Report,
    _opened: Opened,
) -> RunningEngine:  # fmt: skip
    """State in Spark's state store; Spark's Delta writer. Pushes are judged before they are stored."""
    tables = TablesByPath(lake.path)
    shards = shards_of(lake, tables, settings.shards, spark.sparkContext.defaultParallelism)
    limits, pushes, turn = limits_of(settings), LogFiles(PUSHES.uri(lake.path)), threading.Lock()
    return RunningEngine(
        shards,
        lambda trigger: start_spark_engine(spark, lake, tables, source, trigger, limits, shards, report, turn),
        pushes.latest,
        turn,
    )
