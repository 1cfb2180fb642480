"""``telemetry-lake maintain``: retention, compaction with clustering, and VACUUM, beside the running job.

Exit codes: 0 done, 1 failed while running, 2 can't run as asked.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

from filelock import Timeout
from pydantic import Field, PositiveInt

from jobs.ingest import log_to_stdout
from jobs.locks import only_upkeep
from jobs.settings import JobSettings, UsageError, fail, parse

log = logging.getLogger("telemetry-lake")


class MaintainSettings(JobSettings):
    """Drop what is too old, make small files of past days into large ones, and delete files that nothing names."""

    lake: str
    """folder or URI of the lake"""
    checkpoints: str | None = None
    """folder or URI of the checkpoints [<lake>/_checkpoints]"""
    retention_days: Annotated[dict[str, PositiveInt], Field(default_factory=dict)]
    """table=days that are kept, by landed date and in UTC; a table that isn't named keeps all"""
    target_mb: Annotated[int, Field(ge=1, le=4096)] = 128
    """size of compacted files"""
    vacuum_hours: Annotated[int, Field(ge=24)] = 168
    """files are deleted that no version of the last so many hours names: longer than any query or pause of the job"""
    snapshot_days: PositiveInt = 7
    """how long snapshots of the state are kept, to replay from"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """what the progress lines show"""


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(MaintainSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake maintain")
        log_to_stdout(settings.log_level)
        return _run(settings)
    except UsageError as error:
        return fail(str(error), 2)


def _run(settings: MaintainSettings) -> int:
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from pipelines.lake_query import is_lake  # noqa: PLC0415
    from pipelines.maintain import BY_DAY, Maintenance, Upkeep  # noqa: PLC0415

    check_retention(settings.retention_days, BY_DAY)
    if not is_lake(settings.lake):
        return fail(f"no lake at {settings.lake}", 2)
    upkeep = Upkeep(settings.retention_days, settings.target_mb << 20, settings.vacuum_hours, settings.snapshot_days)
    checkpoints = settings.checkpoints or f"{settings.lake.rstrip('/')}/_checkpoints"
    job = Maintenance(settings.lake, checkpoints, upkeep, datetime.now(UTC).date())
    try:
        with only_upkeep(settings.lake):
            if dropped := job.drop_snapshots():
                log.info("maintain: %d old snapshots of the state deleted", dropped)
            for name in job.tables():
                done = job.maintain(name)
                days = (
                    f"{done.dropped_days[0]} to {done.dropped_days[-1]} dropped"
                    if done.dropped_days
                    else "no day dropped"
                )
                log.info(
                    "maintain: %s: %s, %d files compacted, %d deleted",
                    name, days, done.compacted_files, done.vacuumed_files,
                )  # fmt: skip
    except Timeout:
        return fail(f"another maintain or a replay is at work on {settings.lake}", 2)
    except (DeltaError, OSError) as error:
        return fail(f"maintain: {' '.join(str(error).split())}; run it again", 1)
    return 0


def check_retention(days: dict[str, int], allowed: tuple[str, ...]) -> None:
    """Raise ``UsageError`` for a table without days, and for a retention that would make the streams' books wrong."""
    for name in days:
        if name not in allowed:
            raise UsageError(
                f"retention_days.{name}: no table with landed dates; allowed: {', '.join(sorted(allowed))}"
            )
    outcomes = days.get("push_outcomes")
    if outcomes is not None and outcomes < days.get("pushes", outcomes + 1):
        raise UsageError(
            "retention_days.push_outcomes: must be as long as pushes: a push without its outcome counts as unread"
        )


if __name__ == "__main__":
    sys.exit(main())
