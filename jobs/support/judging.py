"""Makes the operator of a lake, and lets it judge what an earlier run has stored and not judged."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from functools import partial

from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.support.running import RunningQuery
from kafka_telemetry_lake.pipelines.ingest.backlog import has_backlog, latest_version, start_backlog
from kafka_telemetry_lake.pipelines.ingest.batch_report import Report
from kafka_telemetry_lake.pipelines.ingest.checkpoint import STATE, begun_batch
from kafka_telemetry_lake.pipelines.ingest.operator import Operator, OperatorSettings
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.replay.files import batches_of, dataset, drop_copies, push_files
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened
from kafka_telemetry_lake.udfs.limits import Limits


def caught_up_operator(
    spark: SparkSession, lake: JobLake, limits: Limits, max_bytes: int, stop: threading.Event,
    shards: int | None = None, report: Report | None = None, opened: Opened = NOT_OPENED,
) -> Operator:  # fmt: skip
    """The operator, after it has judged all pushes that are stored; some of them, if `stop` is set.

    Args:
        max_bytes: bytes of push files in one batch.
        shards: number of shards that the state must have; None: as it has, else the cores of the session.
        report: called after each batch.
        opened: tables of the lake that are open already.
    """
    state = StateFolder(lake.checkpoint(STATE), None, spark.sparkContext.defaultParallelism)
    settings = OperatorSettings(lake.path, lake.checkpoints, limits, max_bytes, lake.fence)
    operator = Operator(spark, settings, state, report, opened, partial(_unjudged, lake.path, max_bytes))
    if shards is not None:
        operator.require_shards(shards)
    if operator.position is None:
        version = latest_version(lake)
        if has_backlog(lake):
            RunningQuery(lambda: start_backlog(spark, lake, operator, f"{max_bytes}b")).work_off(stop)
        if stop.is_set():
            return operator
        operator.start_from(version)
    is_begun = begun_batch(lake.landing) is not None  # that batch may be why the previous run ended
    operator.catch_up(guarded=is_begun)
    return operator


def _unjudged(lake: str, max_bytes: int) -> Iterator[list[str]]:
    """Batches of files with the pushes that have no outcome."""
    judged = dataset(PUSH_OUTCOMES.uri(lake))
    for batch in batches_of(push_files(lake, uuid.uuid4().hex, judged), max_bytes):
        yield [file.path for file in batch]
    drop_copies(lake)
