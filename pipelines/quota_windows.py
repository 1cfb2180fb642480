"""Windows of `quota_usage` computed anew: the rows of some minutes are replaced by what is known of them now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipelines.tables import LANDED_DATE, QUOTA_USAGE

WINDOWS = (10, 60)  # seconds; each divides a minute, the unit that is computed anew
MAX_RUNS = 50  # of a commit's condition: delta-rs takes nested ones by recursion
ATTEMPTS = 5
TEXT = "%Y-%m-%dT%H:%M:%SZ"

# Columns of QUOTA_USAGE's schema, for the windows that start between two Unix seconds, part by part.
UsageOf = Callable[[int, int], Iterator[pa.Table]]

# Two streams of a job write this one table, each the rows of its own sources.
_ONE_AT_A_TIME = threading.Lock()


def replace_windows(
    lake: str, sources: Sequence[str], minutes: Sequence[int], usage_of: UsageOf, app_id: str, version: int
) -> None:
    """Compute the windows of these minutes anew and replace the rows that `quota_usage` has of them.

    In one commit, unless the minutes are scattered over more than `MAX_RUNS` runs, as those of a broken clock are: then
    the last of several commits carries the transaction, and whatever was committed before it is replaced by the same.

    Args:
        sources: of the rows that are replaced and computed.
        minutes: Unix seconds of minutes, ascending, each once.
        app_id, version: ``txnAppId``, ``txnVersion``; what they have committed already is not done again.

    Raises:
        deltalake.exceptions.CommitFailedError: another process changed these rows, again and again.
    """
    runs = _runs(minutes)
    for first in range(0, len(runs), MAX_RUNS):
        group = runs[first : first + MAX_RUNS]
        is_last = first + MAX_RUNS >= len(runs)
        with _ONE_AT_A_TIME:
            done = DeltaTable(QUOTA_USAGE.uri(lake)).transaction_version(app_id)
            if done is not None and done >= version:
                return
            parts = [_stored(part) for run in group for part in usage_of(*run)]
            transactions = [Transaction(app_id, version)] if is_last else None
            _replace(lake, pa.concat_tables(parts), _within(sources, group), transactions)


def _replace(lake: str, rows: pa.Table, condition: str, transactions: list[Transaction] | None) -> None:
    for attempt in range(ATTEMPTS):
        try:
            write_deltalake(
                DeltaTable(QUOTA_USAGE.uri(lake)),
                rows,
                mode="overwrite",
                predicate=condition,
                commit_properties=CommitProperties(app_transactions=transactions),
            )
            return
        except CommitFailedError:  # a compaction rewrote the files meanwhile
            if attempt == ATTEMPTS - 1:
                raise


def _stored(usage: pa.Table) -> pa.Table:
    dates = pc.cast(usage["window_start"], LANDED_DATE.type)
    return usage.append_column(LANDED_DATE, dates).cast(QUOTA_USAGE.stored)


def _runs(minutes: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each run of minutes that follow each other."""
    starts = np.array(minutes, np.int64)
    runs = np.split(starts, np.flatnonzero(np.diff(starts) > 60) + 1)
    return [(int(run[0]), int(run[-1]) + 60) for run in runs if len(run)]


def _within(sources: Sequence[str], runs: Sequence[tuple[int, int]]) -> str:
    """The windows of these sources and runs as a condition on `quota_usage`."""
    times = [(f"'{at(start):{TEXT}}'", f"'{at(end):{TEXT}}'") for start, end in runs]
    spans = " OR ".join(f"(window_start >= {start} AND window_start < {end})" for start, end in times)
    first, last = (f"'{at(edge):%Y-%m-%d}'" for edge in (runs[0][0], runs[-1][1]))
    named = ", ".join(f"'{source}'" for source in sources)
    return f"source IN ({named}) AND {LANDED_DATE.name} >= {first} AND {LANDED_DATE.name} <= {last} AND ({spans})"


def at(seconds: int) -> datetime:
    """The UTC time of Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC)
