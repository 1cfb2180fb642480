"""Commits files that tasks have written directly to a Delta table's log.

The operator's tasks write Parquet from Arrow themselves (`table_files.py`), so their rows never pass through the JVM. A
batch's files become visible in one commit per table. The commit carries ``txnAppId``/``txnVersion`` like Spark's
idempotent writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.commit_log import CommitLog
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.held_shards import TAG
from kafka_telemetry_lake.pipelines.lake.log_files import Action
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, bound_text
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table


class TableLog:
    """The log of one table. A commit reads only the commits since the last look.

    Args:
        fence, opened: as `CommitLog` has them.
    """

    def __init__(self, table: Table, lake: str, fence: Fence | None = None, opened: DeltaTable | None = None) -> None:
        self.table = table
        self._uri = table.uri(lake)
        self._log = CommitLog(self._uri, fence, opened)

    def commit(
        self, files: Iterable[DataFile], app_id: str, version: int, also: Mapping[str, int] | None = None,
        note: str | None = None,
    ) -> bool:  # fmt: skip
        """Add the files to the table in one commit, unless this application has already committed this version.

        Args:
            also: versions of other applications that the commit carries; unless None, it is made without files too.
            note: text that the table's history shows.

        Returns:
            Whether a commit was made.

        Raises:
            FencedError: the table has a commit of a higher epoch.
        """
        adds = [_add(file) for file in files]
        if not adds and also is None:
            return False
        done = self._log.transaction_version(app_id)
        if done is not None and done >= version:
            self._log.check_epoch()  # else a job that was taken over would take its successor's commit for its own
            return False
        self._log.append(adds, {app_id: version} | dict(also or {}), note=note)
        return True

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application has committed."""
        return self._log.transaction_version(app_id)

    @property
    def version(self) -> int:
        """The table's latest version."""
        return self._log.version

    @property
    def known_version(self) -> int:
        """The version that was read or committed last."""
        return self._log.known_version

    def replace(
        self, files: Sequence[DataFile], before: Sequence[dict[str, Any]], app_id: str,
        also: Mapping[str, int] | None = None, note: str | None = None,
    ) -> bool:  # fmt: skip
        """Restore the table to the files that it had, and add others, in one commit.

        A second call with the same `app_id` does nothing. No other writer may remove files at the same time.

        Args:
            before: the files that it had, as `files_of` returns them. Days that retention has dropped since then stay
                dropped.
            also, note: as those of `commit`.

        Returns:
            Whether a commit was made.
        """
        if self._log.transaction_version(app_id) is not None:
            return False
        active = {row["path"]: row for row in files_of(DeltaTable(self._uri))}
        then = {row["path"]: row for row in before}
        first_day = min((row["partition"][LANDED_DATE.name] for row in active.values()), default="9999-12-31")
        removed = [row for path, row in active.items() if path not in then]
        restored = [row for path, row in then.items() if path not in active]
        actions = [_remove(row) for row in removed]
        actions += [_add_again(row) for row in restored if row["partition"][LANDED_DATE.name] >= first_day]
        actions += [_add(file) for file in files]
        self._log.append(actions, {app_id: 0} | dict(also or {}), {row["path"] for row in removed}, note)
        return True

    def overwrite(self, files: Iterable[DataFile], app_id: str, version: int) -> None:
        """Replace all rows of the table.

        Raises:
            deltalake.exceptions.CommitFailedError: another process has removed one of the files at the same time.
        """
        active = files_of(DeltaTable(self._uri))
        actions = [*map(_remove, active), *map(_add, files)]
        self._log.append(actions, {app_id: version}, {row["path"] for row in active})

    def rearrange(self, rows: Sequence[Mapping[str, Any]], files: Iterable[DataFile]) -> None:
        """Replace files by others with the same rows.

        Args:
            rows: the files to remove, as `files_of` returns them.
            files: the files to add.

        Raises:
            deltalake.exceptions.CommitFailedError: another process has removed one of the files at the same time.
        """
        actions = [_remove(row, data_change=False) for row in rows]
        actions += [_add(file, data_change=False) for file in files]
        if actions:
            self._log.append(actions, {}, {row["path"] for row in rows})


def files_of(table: DeltaTable) -> list[dict[str, Any]]:
    """The table's files: path, size_bytes and num_records; partition, min, max and null_count as dicts by column."""
    return file_rows(pa.table(table.get_add_actions()))


def file_rows(actions: pa.Table) -> list[dict[str, Any]]:
    """The same from delta-rs' table of files."""
    rows: list[dict[str, Any]] = actions.to_pylist()
    for row in rows:
        row["partition"] = {name: None if value is None else str(value) for name, value in row["partition"].items()}
    return rows


def _remove(row: Mapping[str, Any], *, data_change: bool = True) -> Action:
    return {
        "remove": {
            "path": row["path"],
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": row["partition"],
            "size": row["size_bytes"],
        }
    }


def _add_again(row: dict[str, Any]) -> Action:
    bounds = {side: row.get(side) or {} for side in ("min", "max", "null_count")}
    stats = {
        "numRecords": row["num_records"],
        "minValues": {name: bound_text(value) for name, value in bounds["min"].items() if value is not None},
        "maxValues": {name: bound_text(value) for name, value in bounds["max"].items() if value is not None},
        "nullCount": {name: value for name, value in bounds["null_count"].items() if value is not None},
    }
    return _added(row["path"], row["size_bytes"], row["partition"], json.dumps(stats), data_change=True)


def _add(file: DataFile, *, data_change: bool = True) -> Action:
    day = {LANDED_DATE.name: file.landed_date}
    action = _added(file.path, file.size, day, file.stats, data_change=data_change)
    if file.held is not None:
        action["add"]["tags"] = {TAG: file.held}
    return action


def _added(path: str, size: int, partition: Mapping[str, str | None], stats: str, *, data_change: bool) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": partition,
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": data_change,
            "stats": stats,
        }
    }
