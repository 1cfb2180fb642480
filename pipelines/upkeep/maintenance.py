"""Maintenance of a lake: retention by whole days, compaction with clustering, VACUUM. It needs no Spark.

It is safe while the job runs. Streams that read `pushes` skip the deletes (``ignoreDeletes``, ``skipChangeCommits``),
and compaction changes no data (``dataChange = false``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.damage import damage_of
from kafka_telemetry_lake.pipelines.lake.delta_log import file_rows
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.moments import newest_moment
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table, rows_by_day
from kafka_telemetry_lake.pipelines.lake.stored_pushes import DROPPED_BEFORE, ask, same_push
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, table_uri
from kafka_telemetry_lake.pipelines.upkeep.merging import TABLES, FileGroup, delete_files, groups_of
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

# Tables that are partitioned by landed date, so retention can drop days.
BY_DAY = tuple(name for name, schema in CATALOG.items() if LANDED_DATE.name in schema.names)
SMALL_FILES = 5  # least number of a day's small files to compact
LONGEST_PROBLEM = 500
ZSTD = WriterProperties(compression="ZSTD", compression_level=1)

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class RetentionError(TelemetryLakeError):
    """Days can't be dropped now; the message says why."""


@dataclass(frozen=True)
class MaintenanceSettings:
    """Settings of a maintenance pass.

    Attributes:
        retention_days: days to retain for each table, including today; tables that aren't named retain all days.
        target_bytes: size of compacted files.
        vacuum_hours: delete files that no version of this many hours refers to.
        snapshot_days: days to retain snapshots of the state, from which a replay can start.
    """

    retention_days: Mapping[str, int]
    target_bytes: int
    vacuum_hours: int
    snapshot_days: int


@dataclass(frozen=True)
class MaintenanceResult:
    """What was done to a table, and a line for each step that failed."""

    table: str
    dropped_days: tuple[str, ...] = ()
    compacted_files: int = 0
    vacuumed_files: int = 0
    problems: tuple[str, ...] = ()


class Maintenance:
    """One maintenance pass over a lake.

    Args:
        lake: folder or URI of the lake.
        checkpoints: the checkpoints of its job.
        settings: what to do.
        today: UTC date from which ages are computed.
    """

    def __init__(self, lake: str, checkpoints: str, settings: MaintenanceSettings, today: date) -> None:
        self._lake, self._settings, self._today = Lake(lake), settings, today
        self._snapshots = Snapshots(checkpoints)
        self._pushes_retention_failed = False

    def tables(self) -> list[str]:
        """The lake's tables. `pushes` comes first, because its retention needs the rows of other tables."""
        names = [PUSHES.name, *(name for name in CATALOG if name != PUSHES.name)]
        return [name for name in names if self._open(name) is not None]

    def maintain(self, name: str) -> MaintenanceResult:
        """Retention, compaction and VACUUM of one table. If a step fails, the others are still done."""
        problems: list[str] = []

        def run(step: Callable[[str], Result], what: str, otherwise: Result) -> Result:
            try:
                return step(name)
            except Exception as error:
                text = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_PROBLEM]
                problems.append(f"{what}: {damage_of(self._lake.uri, str(error)) or text}")
                return otherwise

        none: tuple[str, ...] = ()
        dropped = run(self._drop_days, "retention", none)
        if problems and name == PUSHES.name:
            self._pushes_retention_failed = True
        compacted, vacuumed = run(self._compact, "compaction", 0), run(self._vacuum, "VACUUM", 0)
        return MaintenanceResult(name, dropped, compacted, vacuumed, tuple(problems))

    def drop_snapshots(self) -> int:
        """Delete snapshots of the state that are too old, and return their number."""
        oldest = self._today - timedelta(days=self._settings.snapshot_days)
        return len(self._snapshots.drop_older(datetime.combine(oldest, datetime.min.time(), UTC)))

    def _drop_days(self, name: str) -> tuple[str, ...]:
        """Drop the landed dates beyond the table's retention; returns them.

        Of `pushes`, only days before the first unprocessed push are dropped.
        """
        retained_days = self._settings.retention_days.get(name)
        table = self._open(name)
        if retained_days is None or table is None:
            return ()
        if name == PUSH_OUTCOMES.name and self._pushes_retention_failed:
            raise RetentionError("skipped because it failed for pushes: a push without outcome counts as unprocessed")
        oldest = self._today - timedelta(days=retained_days - 1)
        if name == PUSHES.name:
            oldest = min([oldest, *(date.fromisoformat(day) for day in self._unprocessed_days(oldest))])
        days = tuple(sorted(day for day in _days(table) if date.fromisoformat(day) < oldest))
        if not days:
            return ()
        if name == PUSHES.name:
            self._drop_snapshots_that_need(oldest)
        mark = Transaction(DROPPED_BEFORE, (oldest - date(1970, 1, 1)).days)
        properties = CommitProperties(app_transactions=[mark])
        table.delete(f"{LANDED_DATE.name} < '{oldest.isoformat()}'", commit_properties=properties)
        return days

    def _unprocessed_days(self, before: date) -> list[str]:
        """Landed dates before a date that have pushes that the job hasn't processed."""
        pushes, outcomes = (files_table(self._lake.table(each)) for each in (PUSHES, PUSH_OUTCOMES))
        return list(self._days_without_outcome(pushes.filter(pc.less(pushes["day"], before.isoformat())), outcomes))

    def _drop_snapshots_that_need(self, before: date) -> None:
        """Drop snapshots that precede some of the pushes landed before a date: a replay from them would have a gap."""
        pushes = files_table(self._lake.table(PUSHES))
        dropped = pushes.filter(pc.less(pushes["day"], before.isoformat()))
        for snapshot in self._snapshots.all():
            if any(self._days_without_outcome(dropped, snapshot.files_table(PUSH_OUTCOMES))):
                self._snapshots.drop(snapshot)

    def _days_without_outcome(self, pushes: pa.Table, outcomes: pa.Table) -> Iterator[str]:
        """Landed dates with pushes that have no outcome, of files of both tables.

        A push has one outcome, of its landed date. So where both have as many rows, none lacks its outcome, and nothing
        is read. Other days are compared one by one, in bounded memory.
        """
        processed = rows_by_day(outcomes)
        for day, rows in sorted(rows_by_day(pushes).items()):
            if rows is not None and processed.get(day) == rows:
                continue
            stored, known = (files.filter(pc.equal(files["day"], day)) for files in (pushes, outcomes))
            query = f"SELECT 1 FROM pushes ANTI JOIN outcomes ON {same_push('pushes', 'outcomes')} LIMIT 1"
            rows_of = {
                "pushes": self._lake.rows_in(PUSHES, stored),
                "outcomes": self._lake.rows_in(PUSH_OUTCOMES, known),
            }
            if ask(query, **rows_of):
                yield day

    def _compact(self, name: str) -> int:
        """Compact the small files of past days into files of the target size; returns the number of files compacted."""
        table = self._open(name)
        if table is None or name not in BY_DAY:
            return 0
        files = files_table(table)
        small = files.filter(pc.less(files["size_bytes"], self._settings.target_bytes // 2))
        compacted, groups = 0, list[FileGroup]()
        unprocessed = set(self._unprocessed_days(self._today)) if name == PUSHES.name else set()
        counts = small.group_by("day").aggregate([("path", "count")]).sort_by("day").to_pylist()
        for day, number in ((row["day"], row["path_count"]) for row in counts):
            if number < SMALL_FILES or day >= self._today.isoformat() or day in unprocessed:
                continue
            log.info("maintain: %s: compacting %s, %d small files", name, day, number)
            if name in TABLES:
                of_day = file_rows(small.filter(pc.equal(small["day"], day)))
                groups += groups_of(name, of_day, self._settings.target_bytes)
            else:
                self._compact_few_rows(table, day)
                compacted += number
        if groups:
            table_log = self._lake.log(TABLES[name])
            for group in groups:
                table_log.rearrange(group.files, [group.compact(self._lake)])
                compacted += len(group.files)
        return compacted

    def _compact_few_rows(self, table: DeltaTable, day: str) -> None:
        """Compact a day of a table that no task writes, with Delta's default statistics."""
        table.optimize.compact(
            partition_filters=[(LANDED_DATE.name, "=", day)],
            target_size=self._settings.target_bytes,
            max_concurrent_tasks=1,
            writer_properties=ZSTD,
        )

    def _vacuum(self, name: str) -> int:
        """Delete unreferenced files, including those of killed tasks, but none that a replay may need.

        delta-rs could keep the files of whole versions, but only of those that the table's log reaches back to.
        """
        table = self._open(name)
        assert table is not None
        unreferenced = table.vacuum(
            self._settings.vacuum_hours, dry_run=True, enforce_retention_duration=False, full=True
        )
        needed = self._files_of_snapshots(name) | self._files_of_moment(name, table)
        filesystem, root = filesystem_of(table.table_uri)
        # delta-rs names a file twice if it is removed, under two spellings of its path, and lies in the folder.
        paths = sorted({f"{root}/{unquote(path)}" for path in unreferenced if unquote(path) not in needed})
        files = [info.path for info in filesystem.get_file_info(paths) if info.type == pafs.FileType.File]
        delete_files(table.table_uri, files)
        return len(files)

    def _files_of_snapshots(self, name: str) -> set[str]:
        """Paths of the files of an operator's table that a snapshot of the state refers to."""
        needed: set[str] = set()
        table = next((each for each in OPERATOR_TABLES if each.name == name), None)
        if table is None:
            return needed
        for snapshot in self._snapshots.all():
            needed |= set(map(unquote, snapshot.files_table(table)["path"].to_pylist()))
        return needed

    def _files_of_moment(self, name: str, table: DeltaTable) -> set[str]:
        """Paths of the files that readers of the newest moment need, if a batch has begun to commit after it."""
        read = newest_moment(self._lake.uri).at(name, table)
        return set() if read is table else set(map(unquote, files_table(read)["path"].to_pylist()))

    def _open(self, name: str) -> DeltaTable | None:
        try:
            return DeltaTable(table_uri(self._lake.uri, name))
        except TableNotFoundError:
            return None


def _days(table: DeltaTable) -> set[str]:
    return set(rows_by_day(files_table(table)))
