"""``telemetry-lake replay``: the rows of stored pushes made anew, after a fix of the job, and swapped in.

Exit codes: 0 done, 1 failed while running, 2 can't run as asked.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from filelock import Timeout
from pydantic import AfterValidator, Field, PositiveInt
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jobs.ingest import limits_of, log_to_stdout
from jobs.locks import only_job, only_upkeep
from jobs.running import StreamFailedError, work_off
from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.operator_task import ShardTask
    from pipelines.streams import Lake

log = logging.getLogger("telemetry-lake")


def _from(value: str) -> str:
    if value in ("earliest", "quarantine") or re.fullmatch(r"\d+:\d+", value):
        return value
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(
            "allowed: earliest, quarantine, PARTITION:OFFSET, or a time such as 2026-11-21T08:00Z"
        ) from error
    return value


class ReplaySettings(JobSettings):
    """Make the rows of stored pushes anew, after a fix of the job, and swap them in, one commit per table."""

    lake: str
    """folder or URI of the lake"""
    checkpoints: str | None = None
    """folder or URI of the checkpoints [<lake>/_checkpoints]"""
    from_: Annotated[str, AfterValidator(_from), Field(alias="from")] = "earliest"
    """what must be among the replayed: earliest (all pushes), quarantine (all from the first quarantined push on), PARTITION:OFFSET, or pushes landed since a time; begins at the newest snapshot of the state before that"""  # noqa: E501  # the library makes the help of it
    master: str = "local[*,3]"
    """Spark master; without effect under spark-submit and Databricks"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """memory of the local Spark driver"""
    batch_mb: PositiveInt = 128
    """megabytes of stored pushes that are worked on at a time"""
    max_payload_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """bound of one decompressed payload, as for ingest"""
    max_points_per_push: PositiveInt = 100_000
    """data points taken of one push, as for ingest"""
    max_text_bytes: Annotated[int, Field(ge=256, le=1 << 20)] = 16 << 10
    """bytes of a point's name, or of its attributes, or of a push's labels, as for ingest"""
    max_series_per_client: PositiveInt = 100_000
    """series remembered of one client, as for ingest"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """what the progress lines show"""


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(ReplaySettings, sys.argv[1:] if argv is None else argv, "telemetry-lake replay")
    except UsageError as error:
        return fail(str(error), 2)
    log_to_stdout(settings.log_level)
    return _run(settings)


def _run(settings: ReplaySettings) -> int:
    # Spark and Arrow take seconds to import: a wrong flag is told before that.
    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.lake_query import is_lake  # noqa: PLC0415
    from pipelines.replay import ReplayError  # noqa: PLC0415
    from pipelines.session import JavaMissingError, spark_session  # noqa: PLC0415
    from pipelines.state_manifest import StateError  # noqa: PLC0415
    from pipelines.streams import Lake  # noqa: PLC0415

    if not is_lake(settings.lake):
        return fail(f"no lake at {settings.lake}", 2)
    lake = Lake(settings.lake, settings.checkpoints or f"{settings.lake.rstrip('/')}/_checkpoints")
    try:
        with only_job(lake.path), only_upkeep(lake.path):
            spark = spark_session("telemetry-lake replay", settings.master, settings.driver_memory, settings.lake)
            run(spark, lake, settings)
            spark.stop()
    except Timeout:
        return fail(f"another job is writing this lake or keeping it up ({lake.path}): stop it for the replay", 2)
    except (ReplayError, StateError, JavaMissingError, JarsUnavailableError) as error:
        return fail(str(error), 2)
    except StreamFailedError as error:
        return fail(str(error), 1)
    return 0


def run(spark: SparkSession, lake: Lake, settings: ReplaySettings) -> None:
    """Bring the stream of points to rest, then replay."""
    from pipelines.checkpoint import check_checkpoints  # noqa: PLC0415
    from pipelines.operator_task import TASK_RESULT  # noqa: PLC0415
    from pipelines.quota_clients import knows_quotas, start_quota_reports  # noqa: PLC0415
    from pipelines.replay import finish_swap, replay  # noqa: PLC0415
    from pipelines.state_manifest import StateFolder  # noqa: PLC0415
    from pipelines.streams import start_points  # noqa: PLC0415

    lake.create_tables()
    check_checkpoints(lake.path, lake.checkpoints)
    if finish_swap(lake.path, lake.checkpoints):
        log.info("replay: the swap of an earlier replay was cut off; it is done now")
    limits = limits_of(settings)
    state = StateFolder(lake.checkpoint("points-state"), None, spark.sparkContext.defaultParallelism)
    stop = threading.Event()
    work_off([start_points(spark, lake, state, limits, None, f"{settings.batch_mb}m")], stop)
    if knows_quotas(lake.path):  # what it hasn't read yet would come from rows that are gone then
        work_off([start_quota_reports(spark, lake, None)], stop)

    def run_tasks(task: ShardTask) -> Iterable[Mapping[str, Any]]:
        shards = spark.range(0, task.shards, 1, task.shards)
        return [row.asDict() for row in shards.mapInArrow(task, TASK_RESULT).collect()]

    columns = (TextColumn("replay"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("replay", total=None)
        generation = replay(
            lake.path, lake.checkpoints, condition(settings.from_), limits, settings.batch_mb << 20, run_tasks,
            lambda done, total: bar.update(line, completed=done, total=total),
        )  # fmt: skip
    log.info("replay: done, generation %s", generation)


def condition(begin: str) -> str | None:
    """The condition on `push_outcomes` for a setting `from` that has been validated; None: all pushes."""
    if begin == "earliest":
        return None
    if begin == "quarantine":
        return "outcome = 'quarantined' OR quarantined_points > 0"
    if place := re.fullmatch(r"(\d+):(\d+)", begin):
        return f'"partition" = {place[1]} AND "offset" >= {place[2]}'
    since = datetime.fromisoformat(begin)
    utc = since.replace(tzinfo=UTC) if since.tzinfo is None else since.astimezone(UTC)
    return f"landed_at >= TIMESTAMPTZ '{utc.isoformat()}'"


if __name__ == "__main__":
    sys.exit(main())
