"""Compares this machine's clock with the times at which a lake was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

TOLERANCE = timedelta(minutes=5)


def clock_problem(lake: str, now: datetime) -> str | None:
    """A line about a clock that is behind the latest commit to table `pushes`; None: it isn't.

    Rows don't depend on this clock. But until it has caught up no snapshot of the state is due, and `maintain` and
    the logs' retention reckon with an earlier day.
    """
    filesystem, root = filesystem_of(f"{PUSHES.uri(lake)}/_delta_log")
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    latest = max((entry for entry in entries if entry.extension == "json"), key=lambda e: e.base_name, default=None)
    if latest is None or latest.mtime is None:
        return None
    written = latest.mtime.astimezone(UTC)
    if written - now <= TOLERANCE:
        return None
    hours = (written - now) / timedelta(hours=1)
    return (
        f"this machine's clock is {hours:.1f} h behind the last commit of the lake ({written:%Y-%m-%d %H:%M}Z): set "
        "it. No row depends on it, but no snapshot of the state is taken until it has caught up"
    )
