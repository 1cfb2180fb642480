"""Replaces windows of `quota_usage` (Q7): all rows of some minutes are recomputed and overwritten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.transactions import has_committed, transaction
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE

WINDOWS = (10, 60)  # seconds; each divides a minute, the unit that is recomputed
MAX_RUNS = 50  # runs of minutes in a commit's condition: delta-rs handles nested conditions by recursion
ATTEMPTS = 5
TEXT = "%Y-%m-%dT%H:%M:%SZ"

# Computes the rows of the windows that start between two Unix seconds, as tables with the schema of QUOTA_USAGE.
UsageOf = Callable[[int, int], Iterator[pa.Table]]

# Two streams of a job write to `quota_usage`, each the rows of its own sources.
_ONE_AT_A_TIME = threading.Lock()


def replace_windows(
    lake: str, sources: Sequence[str], minutes: Sequence[int], usage_of: UsageOf, app_id: str, version: int,
    fence: Fence | None = None,
) -> None:  # fmt: skip
    """Recompute the windows of these minutes and replace their rows in `quota_usage`.

    It makes one commit, unless the minutes form more than `MAX_RUNS` runs, as those of a broken clock may. Then it
    makes several commits, and the last one carries the transaction. If it is interrupted before that, it runs again
    and replaces the committed rows by the same rows.

    Args:
        sources: values of column `source` in the rows to replace.
        minutes: Unix seconds of minutes, ascending, each once.
        app_id, version: ``txnAppId``, ``txnVersion``; nothing is done if they are committed already.
        fence: the claim under which commits are made.

    Raises:
        deltalake.exceptions.CommitFailedError: another process changed these rows in each of `ATTEMPTS` attempts.
        FencedError: the table has a commit of a higher epoch.
    """
    runs = _runs(minutes)
    for first in range(0, len(runs), MAX_RUNS):
        group = runs[first : first + MAX_RUNS]
        is_last = first + MAX_RUNS >= len(runs)
        with _ONE_AT_A_TIME:
            if has_committed(DeltaTable(QUOTA_USAGE.uri(lake)), app_id, version):
                return
            parts = [QUOTA_USAGE.with_partition(part) for run in group for part in usage_of(*run)]
            done = (app_id, version) if is_last else (f"{app_id}:part", version)
            _replace(lake, pa.concat_tables(parts), _within(sources, group), done, fence)


def _replace(lake: str, rows: pa.Table, condition: str, done: tuple[str, int], fence: Fence | None) -> None:
    for attempt in range(ATTEMPTS):
        usage = DeltaTable(QUOTA_USAGE.uri(lake))
        properties = transaction(*done, usage, fence)
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
