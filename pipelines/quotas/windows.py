"""Replaces windows of `quota_usage` (Q7): all rows of some minutes are recomputed and overwritten.

Who follows a table with samples or reports recomputes the windows of every minute with a new row from all stored rows
of that minute. So late rows correct their window, and a repeated step gives the same windows. The commit of a step
carries the position; the next step, also after a crash, goes on from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, NOT_OPENED, Opened, Table

log = logging.getLogger(__name__)

STEP_ROWS = 200_000  # a step reads whole commits until they have this many rows
WINDOWS = (10, 60)  # seconds; each divides a minute, the unit that is recomputed
MAX_RUNS = 50  # runs of minutes in a commit's condition: delta-rs handles nested conditions by recursion
ATTEMPTS = 5
TEXT = "%Y-%m-%dT%H:%M:%SZ"

# Computes the rows of the windows that start between two Unix seconds, as tables with the schema of QUOTA_USAGE.
UsageOf = Callable[[int, int], Iterator[pa.Table]]
Replace = Callable[[Lake, Sequence[int], Mapping[str, int]], None]  # such as `replace_usage`

# Two streams of a job write to `quota_usage`, each the rows of its own sources.
_ONE_AT_A_TIME = threading.Lock()


class WindowFollower:
    """Computes windows from the rows of a table. One process at a time: that of the lake's lease.

    Args:
        name: of the stream.
        app_id: of the commits that carry the position.
        columns: of the rows that `minutes_of` needs; it returns Unix seconds of minutes, ascending, each once.
        replace: recomputes the windows of these minutes.
        opened: tables of the lake that are open already; of `quota_usage` its position.
    """

    def __init__(
        self, lake: Lake, table: Table, name: str, app_id: str, columns: pa.Schema,
        minutes_of: Callable[[pa.Table], Sequence[int]], replace: Replace, opened: Opened = NOT_OPENED,
    ) -> None:  # fmt: skip
        self._lake, self._table, self._name, self._app_id = lake, table, name, app_id
        self._minutes_of, self._replace = minutes_of, replace
        self._follower = Follower(
            lake.uri, table, Gap.GO_ON, name, columns, most_rows=STEP_ROWS, fence=lake.fence, opened=opened
        )
        usage = opened.get(QUOTA_USAGE.name)
        self._position: Position | None = None if usage is None else self._follower.committed(usage, app_id)

    def step(self) -> bool:
        """Recompute the windows of the next new rows; returns whether there were any."""
        if self._position is None:
            if not self._lake.has(self._table):
                return False
            self._position = self._follower.committed(self._lake.create(QUOTA_USAGE), self._app_id)
        for step in self._follower.steps(self._position):
            began, minutes = time.monotonic(), self._minutes_of(step.rows)
            if minutes:
                self._replace(self._lake, minutes, step.position.transactions(self._app_id))
                log.info("%s: %d minutes computed, %.1f s", self._name, len(minutes), time.monotonic() - began)
            if step.position != self._position:
                self._position = step.position
                return True
        return False

    def catch_up(self) -> None:
        """Compute the windows of all rows that are stored."""
        while self.step():
            pass


def replace_windows(
    lake: Lake, sources: Sequence[str], minutes: Sequence[int], usage_of: UsageOf, versions: Mapping[str, int]
) -> None:
    """Recompute the windows of these minutes and replace their rows in `quota_usage`.

    It makes one commit, unless the minutes form more than `MAX_RUNS` runs, as those of a broken clock may. Then it
    makes several commits, and the last one carries the versions. If it is interrupted before that, it runs again
    and replaces the committed rows by the same rows.

    Args:
        sources: values of column `source` in the rows to replace.
        minutes: Unix seconds of minutes, ascending, each once.
        versions: of applications (`txn`): the position of who follows the samples or reports.

    Raises:
        deltalake.exceptions.CommitFailedError: another process changed these rows in each of `ATTEMPTS` attempts.
        FencedError: the table has a commit of a higher epoch.
    """
    runs = _runs(minutes)
    for first in range(0, len(runs), MAX_RUNS):
        group = runs[first : first + MAX_RUNS]
        is_last = first + MAX_RUNS >= len(runs)
        with _ONE_AT_A_TIME:
            parts = [QUOTA_USAGE.with_partition(part) for run in group for part in usage_of(*run)]
            _replace(lake, pa.concat_tables(parts), _within(sources, group), versions if is_last else {})


def _replace(lake: Lake, rows: pa.Table, condition: str, versions: Mapping[str, int]) -> None:
    for attempt in range(ATTEMPTS):
        usage = lake.table(QUOTA_USAGE)
        properties = transaction(versions, usage, lake.fence)
        try:
            write_deltalake(usage, rows, mode="overwrite", predicate=condition, commit_properties=properties)
            return
        except CommitFailedError:  # a compaction rewrote the files at the same time
            if attempt == ATTEMPTS - 1:
                raise


def _runs(minutes: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each run of consecutive minutes."""
    starts = np.array(minutes, np.int64)
    runs = np.split(starts, np.flatnonzero(np.diff(starts) > 60) + 1)
    return [(int(run[0]), int(run[-1]) + 60) for run in runs if len(run)]


def _within(sources: Sequence[str], runs: Sequence[tuple[int, int]]) -> str:
    """SQL condition on `quota_usage` for the windows of these sources and runs."""
    times = [(f"'{at(start):{TEXT}}'", f"'{at(end):{TEXT}}'") for start, end in runs]
    spans = " OR ".join(f"(window_start >= {start} AND window_start < {end})" for start, end in times)
    first, last = (f"'{at(edge):%Y-%m-%d}'" for edge in (runs[0][0], runs[-1][1]))
    named = ", ".join(f"'{source}'" for source in sources)
    return f"source IN ({named}) AND {LANDED_DATE.name} >= {first} AND {LANDED_DATE.name} <= {last} AND ({spans})"


def at(seconds: int) -> datetime:
    """The UTC time of Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC)
