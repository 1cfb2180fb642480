"""``telemetry-lake maintain``: retention, compaction with clustering, and VACUUM. Safe while the job runs.

It needs Spark only for tables by name (``--catalog``).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.jobs.support.locks import UPKEEP, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.forget.history import clear
from kafka_telemetry_lake.pipelines.iceberg.places import behind
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of
from kafka_telemetry_lake.pipelines.lake.clock import clock_problem
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.replay.swap_note import is_swapping
from kafka_telemetry_lake.pipelines.upkeep.maintenance import BY_DAY, Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.nearest import did_you_mean

log = logging.getLogger("telemetry-lake")
BUSY = "another maintain or a replay is running on {lake}"


def run_job(settings: MaintainSettings) -> int:
    """Maintain all tables of the lake."""
    check_retention(settings.retention_days, BY_DAY)
    if settings.names is not None:
        from kafka_telemetry_lake.jobs.support.named_lake import maintain_by_name  # noqa: PLC0415  # it needs Spark

        maintain_by_name(settings, settings.names)
        return 0
    if not is_lake(settings.folder):
        raise UsageError(f"no lake at {settings.folder}")
    chosen = MaintenanceSettings(
        settings.retention_days, settings.target_mb << 20, settings.vacuum_hours, settings.snapshot_days
    )
    checkpoints = checkpoints_of(settings.folder, settings.checkpoints)
    try:
        with only(UPKEEP, settings.folder, BUSY.format(lake=settings.folder)):
            job = Maintenance(settings.folder, checkpoints, chosen, datetime.now(UTC).date())
            if is_swapping(checkpoints):  # its files count for nobody yet
                raise UsageError("a replay was interrupted in its swap: finish it with `ingest` or `replay` first")
            if (problem := clock_problem(settings.folder, datetime.now(UTC))) is not None:
                log.warning("maintain: %s", problem)
            _warn_of_iceberg(settings)
            if dropped := job.drop_snapshots():
                log.info("maintain: deleted %d old state snapshots", dropped)
            problems: list[str] = []
            for name in job.tables():
                done = job.maintain(name)
                problems += [f"maintain: {name}: {problem}; run it again" for problem in done.problems]
                dropped_days = done.dropped_days
                days = f"days {dropped_days[0]} to {dropped_days[-1]} dropped" if dropped_days else "no days dropped"
                log.info(
                    "maintain: %s: %s, %d files compacted, %d files deleted",
                    name,
                    days,
                    done.compacted_files,
                    done.vacuumed_files,
                )
            for erasure in clear(settings.folder, datetime.now(UTC)):
                log.info("maintain: erasure %s: the tables' history has nothing of it any more", erasure)
    except (DeltaError, OSError) as error:
        raise JobFailedError(f"maintain: {' '.join(str(error).split())}; run it again") from error
    if problems:
        raise JobFailedError("\n".join(problems))
    return 0


def _warn_of_iceberg(settings: MaintainSettings) -> None:
    """Say which Iceberg tables may name files that VACUUM deletes now, since they were removed so long ago."""
    before = datetime.now(UTC) - timedelta(hours=settings.vacuum_hours)
    for late in behind(settings.folder):
        if late.since < before:
            log.warning(
                "maintain: Iceberg table %s lacks commits since %s: its readers may fail on files that VACUUM deletes; "
                "run `telemetry-lake iceberg`",
                late.table,
                f"{late.since:%Y-%m-%d %H:%M}",
            )


def check_retention(days: dict[str, int], allowed: tuple[str, ...]) -> None:
    """Raise ``UsageError`` for a table without landed dates, or if outcomes would expire before their pushes."""
    for name in days:
        if name not in allowed:
            raise UsageError(
                f"retention_days.{name}: this table has no retention by day; allowed: {', '.join(sorted(allowed))}"
                f"{did_you_mean(name, allowed)}"
            )
    outcomes = days.get("push_outcomes")
    if outcomes is not None and outcomes < days.get("pushes", outcomes + 1):
        raise UsageError(
            "retention_days.push_outcomes: must not be shorter than that of pushes: a push without an outcome would "
            "count as not yet processed"
        )
