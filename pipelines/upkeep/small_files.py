"""Upkeep of a lake in a thread of the job, once a minute: checkpoints of the logs, and small files.

The files that a table got today are followed commit by commit, and merged as they become many. When `MANY` neighbours
in the order of landing are of about one size, the oldest become one file: all of them, or as many as fit into the
target size. So a day has a few hundred live files, or as many as its bytes take of the target size. A row of a large
fleet is written again once, one of a small fleet up to twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, file_rows
from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.log_files import Action, LogFiles
from kafka_telemetry_lake.pipelines.runtime.python_worker import release_memory
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import BROKER_CONNECTIONS, PUSHES, QUOTA_SAMPLES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.pipelines.upkeep.merging import MergeEndedError, merged

log = logging.getLogger(__name__)

MANY = 192
AT_ONCE = 4  # times MANY files are merged at most: their footers are in memory
TARGET_BYTES = 128 << 20
STEP = 4
SIZES = tuple(64 * 1024 * STEP**number for number in range(6))  # of files that are merged with their like: to 64 MB
CHECKPOINT_COMMITS = 500  # a checkpoint costs as much as opening the table, and so does a log that is this long

File = Mapping[str, Any]  # path, size_bytes, partition
PAUSE_S = 60.0
# The tables that the job commits to without opening them.
KEPT_UP = (*TABLES, BROKER_CONNECTIONS, QUOTA_SAMPLES, CLIENT_CHANGES)


class SmallFiles:
    """Today's files of one table. One process at a time; `maintain` may run meanwhile, since it leaves today alone."""

    def __init__(self, table: Table, lake: Lake) -> None:
        self._table, self._lake = table, lake
        self._log, self._files = LogFiles(table.uri(lake.uri)), list[File]()  # in the order of landing
        self._version = -1
        self._commits: TableLog | None = None  # the table's log, for commits

    def merge(self, today: str, until: int | None = None, ended: threading.Event | None = None) -> int:
        """Merge files where they have become many; returns the number of files that were replaced.

        Args:
            today: landed date from which files are merged.
            until: version of the table whose files may be replaced; None: the latest.
            ended: ends a merge under way.

        Raises:
            MergeEndedError: the event was set.
        """
        if self._version < 0:
            self._open(today)
        self._follow(today, until)
        if until is not None and until < self._version:
            return 0  # opened at a version with files that are still needed as they are
        replaced = 0
        while (run := next(runs_to_merge(self._files), None)) is not None:
            before = self._files[run]
            file = merged(self._table, self._lake, before, ended)
            try:
                self._commit_log().rearrange(before, [file])
            except CommitFailedError as error:  # another process has removed one of them
                log.info("upkeep: %s: files not merged: %s", self._table.name, error)
                self._open(today)
                return replaced
            replaced += len(before)
            row = {"path": file.path, "size_bytes": file.size, "partition": {LANDED_DATE.name: file.landed_date}}
            self._files[run] = [row]
        return replaced

    def write_checkpoint(self) -> bool:
        """Write a checkpoint of the log after each `CHECKPOINT_COMMITS` commits, and drop what has expired.

        Returns:
            Whether there was a need.
        """
        return self._is_checkpoint_due(self._commit_log().version) and _write_checkpoint(self._lake.table(self._table))

    def _is_checkpoint_due(self, version: int) -> bool:
        due = version - CHECKPOINT_COMMITS
        return due >= 0 and not self._log.is_past(due + 1)

    def _commit_log(self, opened: DeltaTable | None = None) -> TableLog:
        if self._commits is None:
            self._commits = self._lake.log(self._table, opened)
        return self._commits

    def _open(self, today: str) -> None:
        table = self._lake.table(self._table)
        actions = pa.table(table.get_add_actions())
        days = pc.cast(pc.struct_field(actions["partition"], LANDED_DATE.name), pa.string())
        rows = file_rows(actions.filter(pc.greater_equal(days, today)))
        self._files = sorted(rows, key=lambda row: (row["partition"][LANDED_DATE.name], row["modification_time"]))
        self._version = table.version()
        self._commit_log(table)
        if self._is_checkpoint_due(self._version):  # at a start: what opens the table next has less to read
            _write_checkpoint(table)

    def _follow(self, today: str, until: int | None) -> None:
        """Take the commits since the last look."""
        while until is None or self._version < until:
            actions = self._log.read(self._version + 1)
            if actions is None:
                if self._log.is_past(self._version + 1) is not False:  # the log may have forgotten it
                    self._open(today)
                return
            self._version += 1
            self._take(actions, today)
        self._files = [file for file in self._files if file["partition"][LANDED_DATE.name] >= today]

    def _take(self, actions: Sequence[Action], today: str) -> None:
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        known = {file["path"] for file in self._files}
        if removed:
            self._files = [file for file in self._files if file["path"] not in removed]
        for action in actions:
            if "add" in action and action["add"]["partitionValues"][LANDED_DATE.name] >= today:
                add = action["add"]
                if add["path"] not in known:
                    row = {"path": add["path"], "size_bytes": add["size"], "partition": add["partitionValues"]}
                    self._files.append(row)


def _write_checkpoint(table: DeltaTable) -> bool:
    table.create_checkpoint()
    table.cleanup_metadata()
    return True


def runs_to_merge(files: Sequence[File]) -> Iterator[slice]:
    """Neighbours to merge, those of the smallest files first. Smaller files between larger ones go with them.

    Args:
        files: `size_bytes` and `partition` of each, in the order of landing.
    """
    for size in SIZES:
        least = 0 if size == SIZES[0] else size // STEP
        # A larger file separates its neighbours.
        keys = [(file["size_bytes"] <= size, file["partition"]) for file in files]
        for (fits, _), part in groupby(range(len(files)), keys.__getitem__):
            alike = list(part)
            if fits and sum(files[number]["size_bytes"] > least for number in alike) >= MANY:
                ends = accumulate(files[number]["size_bytes"] for number in alike[: AT_ONCE * MANY])
                yield slice(alike[0], alike[0] + sum(end <= TARGET_BYTES for end in ends))


class Upkeep:
    """Upkeep of one lake.

    Args:
        processed: the version of table `pushes` up to which all pushes are processed; a batch may need later files as
            they are.
    """

    def __init__(self, lake: str, processed: Callable[[], int | None], fence: Fence | None = None) -> None:
        self._lake, self._processed = Lake(lake, fence), processed
        self._tables = {table.name: (table, SmallFiles(table, self._lake)) for table in KEPT_UP}

    def look(self, ended: threading.Event, day: date | None = None) -> None:
        """Do the upkeep of each table once; what fails is tried again at the next look.

        Args:
            day: landed date from which files are merged; None: today.
        """
        today = (day or datetime.now(UTC).date()).isoformat()
        for name, (table, files) in self._tables.items():
            if ended.is_set():
                return
            try:
                if not self._lake.has(table):
                    continue
                until = (self._processed() or 0) if table is PUSHES else None
                # The lifecycle merges its own changes.
                replaced = 0 if table is CLIENT_CHANGES else files.merge(today, until, ended)
                files.write_checkpoint()
            except (MergeEndedError, FencedError):
                return
            except (DeltaError, OSError, pa.ArrowException) as error:
                log.warning("upkeep: %s: %s", name, " ".join(str(error).split())[:500])
                continue
            if replaced:
                release_memory()  # up to 300 MB, which the job needs for nothing else
                log.info("upkeep: %s: %d small files merged", name, replaced)
