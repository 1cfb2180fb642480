"""``telemetry-lake replay``: decodes and converts stored pushes again, after a fix, and swaps the new rows in."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.replay import ReplaySettings
from kafka_telemetry_lake.jobs.support.judging import caught_up_operator
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, UPKEEP, only, only_job
from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_checkpoints
from kafka_telemetry_lake.pipelines.ingest.compiling import compiled_in_background
from kafka_telemetry_lake.pipelines.ingest.operator_task import TASK_RESULT, ShardTask, log_set_aside, run_tasks
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.quotas.client_reports import ReportFollower, knows_quotas
from kafka_telemetry_lake.pipelines.replay.rebuild import rebuild_state
from kafka_telemetry_lake.pipelines.replay.replay import finish_swap, replay
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.udfs.limits import Limits

log = logging.getLogger("telemetry-lake")


def run_job(settings: ReplaySettings) -> int:
    """Replay the pushes that the settings select, in a new Spark session."""
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}")
    busy = f"another job, maintain, quality or findings is running on {settings.lake}: stop it before the replay"
    with (
        only_job(settings.lake, "replay", busy) as fence,
        only(UPKEEP, settings.lake, busy),
        only(FINDINGS, settings.lake, busy),  # its hours are read from several tables, which are replaced one by one
    ):
        lake = JobLake(settings.lake, own_checkpoints(settings.lake, settings.checkpoints, fence), fence=fence)
        with compiled_in_background(partial(log.info, "replay: %s")):
            spark = spark_session(
                "telemetry-lake replay", settings.master, settings.driver_memory, settings.lake, lake.checkpoints
            )
            run(spark, lake, settings)
        spark.stop()
    return 0


def run(spark: SparkSession, lake: JobLake, settings: ReplaySettings) -> None:
    """Process all stored pushes, then replay."""
    lake.create_tables()
    check_checkpoints(lake.path, lake.checkpoints)
    if finish_swap(lake.path, lake.checkpoints, lake.fence):
        log.info("replay: completed the swap of an interrupted replay")
    limits = settings.limits()
    if settings.rebuild_state:
        _rebuild_state(spark, lake, settings, limits)
        return
    caught_up_operator(spark, lake, limits, settings.batch_mb << 20, threading.Event())
    if knows_quotas(lake.path):  # rows it hasn't read yet are about to be replaced
        ReportFollower(lake.path, lake.fence).catch_up()

    def run(task: ShardTask) -> Iterable[Mapping[str, Any]]:
        rows = run_tasks(spark, task)
        log_set_aside("replay", rows)
        return [row.asDict() for row in rows]

    columns = (TextColumn("replay"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("replay", total=None)
        generation = replay(
            lake.path, lake.checkpoints, condition(settings.from_), limits, settings.batch_mb << 20, run,
            lambda done, total: bar.update(line, completed=done, total=total), lake.fence,
        )  # fmt: skip
    log.info("replay: done, generation %s", generation)


def _rebuild_state(spark: SparkSession, lake: JobLake, settings: ReplaySettings, limits: Limits) -> None:
    def run_shards(task: ShardTask, shards: Sequence[int]) -> Iterable[Mapping[str, Any]]:
        ids = spark.range(0, task.shards, 1, task.shards).where(f"id IN ({', '.join(map(str, shards))})")
        with named(spark, f"replay: rebuild the state of shards {', '.join(map(str, shards))}"):
            return [row.asDict() for row in ids.mapInArrow(task, TASK_RESULT).collect()]

    done = rebuild_state(lake.path, lake.checkpoints, limits, settings.batch_mb << 20, run_shards)
    if not done.shards:
        log.info("replay: no state file is damaged; nothing to rebuild")
        return
    begin = "the first push" if done.snapshot is None else f"the snapshot of {done.snapshot.taken_at:%Y-%m-%d %H:%M}Z"
    log.info(
        "replay: rebuilt the state of shards %s as of batch %d, starting from %s; ingest can resume",
        ", ".join(map(str, done.shards)),
        done.batch_id,
        begin,
    )


def condition(begin: str) -> str | None:
    """SQL condition on `push_outcomes` for a validated setting `from`; None: all pushes."""
    if begin == "earliest":
        return None
    if begin == "quarantine":
        return "outcome = 'quarantined' OR quarantined_points > 0"
    if place := re.fullmatch(r"(\d+):(\d+)", begin):
        return f'"partition" = {place[1]} AND "offset" >= {place[2]}'
    since = datetime.fromisoformat(begin)
    utc = since.replace(tzinfo=UTC) if since.tzinfo is None else since.astimezone(UTC)
    return f"landed_at >= TIMESTAMPTZ '{utc.isoformat()}'"
