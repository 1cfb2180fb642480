"""Upkeep of a lake, safe beside the running streams: retention by whole days, compaction with clustering, VACUUM.

All of it by delta-rs, without Spark. Streams of `pushes` skip the deletes (``ignoreDeletes``, ``skipChangeCommits``),
and compaction changes no data (``dataChange = false``).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake.exceptions import TableNotFoundError

from pipelines.catalog import CATALOG
from pipelines.delta_log import DataFile, FileStatistics, TableLog, files_of, lake_uri
from pipelines.snapshots import Snapshots
from pipelines.stored_pushes import DROPPED_BEFORE, SAME, ask
from pipelines.tables import LANDED_DATE, METRIC_POINTS, PUSH_OUTCOMES, PUSHES

# Tables whose rows have a landed date, and so an age.
BY_DAY = tuple(name for name, schema in CATALOG.items() if LANDED_DATE.name in schema.names)
# What queries filter by, where the order of landing isn't it already.
CLUSTERED_BY = {METRIC_POINTS.name: ("metric", "client_instance_id")}
ROWS_PER_GROUP = 8192
SMALL_FILES = 5  # of a day, from which on compaction is worth it
ZSTD = WriterProperties(compression="ZSTD", compression_level=1)


@dataclass(frozen=True)
class Upkeep:
    """What to do.

    Attributes:
        retention_days: table to days that are kept, today among them; a table that isn't named keeps all.
        target_bytes: size of compacted files.
        vacuum_hours: files that no version of the last hours names are deleted.
        snapshot_days: how long snapshots of the state are kept, to replay from.
    """

    retention_days: Mapping[str, int]
    target_bytes: int
    vacuum_hours: int
    snapshot_days: int


@dataclass(frozen=True)
class Done:
    """What was done to a table."""

    table: str
    dropped_days: tuple[str, ...] = ()
    compacted_files: int = 0
    vacuumed_files: int = 0


class Maintenance:
    """One pass over a lake.

    Args:
        lake: folder or URI of the lake.
        checkpoints: the checkpoints of its job.
        today: UTC; what ages count from.
    """

    def __init__(self, lake: str, checkpoints: str, upkeep: Upkeep, today: date) -> None:
        self._lake, self._checkpoints, self._upkeep, self._today = lake, checkpoints.rstrip("/"), upkeep, today
        self._snapshots = Snapshots(checkpoints)

    def tables(self) -> list[str]:
        """The tables that the lake has; `pushes` comes first, since its retention looks at the others' rows."""
        names = [PUSHES.name, *(name for name in CATALOG if name != PUSHES.name)]
        return [name for name in names if self._open(name) is not None]

    def maintain(self, name: str) -> Done:
        """Retention, compaction and VACUUM of one table."""
        dropped = self._drop_days(name)
        compacted = self._compact(name)
        return Done(name, dropped, compacted, self._vacuum(name))

    def drop_snapshots(self) -> int:
        """Delete the snapshots of the state that are too old."""
        oldest = self._today - timedelta(days=self._upkeep.snapshot_days)
        return len(self._snapshots.drop_older(datetime.combine(oldest, datetime.min.time(), UTC)))

    def _drop_days(self, name: str) -> tuple[str, ...]:
        """Whole landed dates beyond the table's retention; pushes that aren't judged yet stay, and all later days."""
        kept = self._upkeep.retention_days.get(name)
        table = self._open(name)
        if kept is None or table is None:
            return ()
        oldest = self._today - timedelta(days=kept - 1)
        if name == PUSHES.name:
            oldest = min([oldest, *(date.fromisoformat(day) for day in self._unjudged_days(oldest))])
        days = tuple(sorted(day for day in _days(table) if date.fromisoformat(day) < oldest))
        if not days:
            return ()
        properties = None
        if name == PUSHES.name:
            self._drop_snapshots_that_need(oldest)
            mark = Transaction(DROPPED_BEFORE, (oldest - date(1970, 1, 1)).days)
            properties = CommitProperties(app_transactions=[mark])
        table.delete(f"{LANDED_DATE.name} < '{oldest.isoformat()}'", commit_properties=properties)
        return days

    def _unjudged_days(self, before: date) -> list[str]:
        """Landed dates, before one, of pushes that the stream of points hasn't read."""
        pushes = self._dataset(PUSHES.name).filter(pads.field(LANDED_DATE.name) < before)
        outcomes = self._dataset(PUSH_OUTCOMES.name)
        query = f"SELECT DISTINCT CAST({LANDED_DATE.name} AS VARCHAR) FROM n ANTI JOIN h ON {SAME}"
        return [day for (day,) in ask(query, n=pushes, h=outcomes)]

    def _drop_snapshots_that_need(self, before: date) -> None:
        """A snapshot is of no use when pushes that it hasn't judged are dropped: a replay from it would have a gap."""
        dropped = self._dataset(PUSHES.name).filter(pads.field(LANDED_DATE.name) < before)
        for snapshot in self._snapshots.all():
            judged = self._dataset(PUSH_OUTCOMES.name, snapshot.versions[PUSH_OUTCOMES.name])
            if ask(f"SELECT 1 FROM n ANTI JOIN h ON {SAME} LIMIT 1", n=dropped, h=judged):
                self._snapshots.drop(snapshot)

    def _compact(self, name: str) -> int:
        """Small files of past days become files of the target size. Today's are still being added to."""
        table = self._open(name)
        if table is None or name not in BY_DAY:
            return 0
        small: dict[str, list[dict[str, Any]]] = {}
        for row in files_of(table):
            if row["size_bytes"] < self._upkeep.target_bytes // 2:
                small.setdefault(row["partition"][LANDED_DATE.name], []).append(row)
        compacted = 0
        waiting = set(self._unjudged_days(self._today)) if name == PUSHES.name else set()
        for day, rows in sorted(small.items()):
            if len(rows) < SMALL_FILES or day >= self._today.isoformat() or day in waiting:
                continue
            compacted += len(rows)
            if name == PUSHES.name:
                self._compact_pushes(rows)
                continue
            options: dict[str, Any] = {
                "partition_filters": [(LANDED_DATE.name, "=", day)],
                "target_size": self._upkeep.target_bytes,
                "writer_properties": ZSTD,
            }
            if name in CLUSTERED_BY:
                table.optimize.z_order(CLUSTERED_BY[name], **options)
            else:
                table.optimize.compact(**options)
        return compacted

    def _compact_pushes(self, rows: list[dict[str, Any]]) -> None:
        """Files of one day that follow each other become one, by partition and offset: the order that tasks read in."""
        rows = sorted(rows, key=lambda row: row["min"]["landed_at"])
        groups: list[list[dict[str, Any]]] = [[]]
        for row in rows:
            if groups[-1] and sum(r["size_bytes"] for r in groups[-1]) + row["size_bytes"] > self._upkeep.target_bytes:
                groups.append([])
            groups[-1].append(row)
        groups = [group for group in groups if len(group) > 1]
        log = TableLog(PUSHES, self._lake)
        log.rearrange([row for group in groups for row in group], [self._joined(group) for group in groups])

    def _joined(self, rows: list[dict[str, Any]]) -> DataFile:
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(PUSHES.uri(self._lake)))
        parts = [pq.ParquetFile(f"{root}/{unquote(row['path'])}", filesystem=filesystem).read() for row in rows]
        # Rows of earlier versions lack the later columns.
        pushes = pa.concat_tables(parts, promote_options="default")
        for field in PUSHES.schema:
            if field.name not in pushes.schema.names:
                pushes = pushes.append_column(field, pa.nulls(len(pushes), field.type))
        pushes = pushes.select(PUSHES.schema.names).sort_by([("partition", "ascending"), ("offset", "ascending")])
        day = rows[0]["partition"][LANDED_DATE.name]
        path = f"{LANDED_DATE.name}={day}/part-{uuid.uuid4()}.zstd.parquet"
        texts = [f.name for f in PUSHES.schema if pa.types.is_string(f.type) and f.name != "client_instance_id"]
        pq.write_table(
            pushes, f"{root}/{path}", filesystem=filesystem, compression="zstd", compression_level=1,
            use_dictionary=texts, row_group_size=ROWS_PER_GROUP,
        )  # fmt: skip
        statistics = FileStatistics(PUSHES.statistics)
        statistics.add(pushes)
        size = filesystem.get_file_info(f"{root}/{path}").size
        return DataFile(PUSHES.name, path, size, len(pushes), day, statistics.to_json())

    def _vacuum(self, name: str) -> int:
        """Files that nothing names any more, those of killed tasks among them; never those that a replay may need."""
        table = self._open(name)
        assert table is not None
        keep = {snapshot.versions[name] for snapshot in self._snapshots.all() if name in snapshot.versions}
        if name == PUSH_OUTCOMES.name:
            keep |= self._version_before_checkpoint()
        options: dict[str, Any] = {
            "retention_hours": self._upkeep.vacuum_hours,
            "enforce_retention_duration": False,
            "full": True,
            "keep_versions": sorted(keep) or None,
        }
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(table.table_uri))
        found = [f"{root}/{unquote(path)}" for path in table.vacuum(dry_run=True, **options)]
        there = [info for info in filesystem.get_file_info(found) if info.type == pafs.FileType.File]
        if there:  # else it would leave two commits all the same
            table.vacuum(dry_run=False, **options)
        return len(there)

    def _version_before_checkpoint(self) -> set[int]:
        """The version whose rows a new checkpoint of the points stream leaves out (`once.OffsetGuard`)."""
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(self._checkpoints))
        try:
            with filesystem.open_input_file(f"{root}/points/offsets-before.json") as stream:
                content = json.loads(stream.read())
        except FileNotFoundError:
            return set()
        return {content["version"]} if content["ranges"] else set()

    def _open(self, name: str) -> DeltaTable | None:
        try:
            return DeltaTable(f"{self._lake.rstrip('/')}/{name}")
        except TableNotFoundError:
            return None

    def _dataset(self, name: str, version: int | None = None) -> pads.Dataset:
        return DeltaTable(f"{self._lake.rstrip('/')}/{name}", version=version).to_pyarrow_dataset()


def _days(table: DeltaTable) -> set[str]:
    return {row["partition"][LANDED_DATE.name] for row in files_of(table)}
