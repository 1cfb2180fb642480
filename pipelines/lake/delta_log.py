"""Commits to a Delta table without opening it each time, at a cost that doesn't depend on the table's files.

The operator's tasks write Parquet from Arrow themselves (`table_files.py`), so their rows never pass through the JVM. A
batch's files become visible in one commit per table (`TableLog`), with ``txnAppId`` and ``txnVersion`` as Spark's
idempotent writes have them.

delta-rs keeps a list of all files and updates it at each commit, which costs tenths of a CPU-second with a day's files
of a fast job (docs/decisions.md). But a commit that only adds files, or replaces files that nobody else removes, needs
no such list: just the next free version, and the actions of the commits that came first (Delta's protocol, "Conflict
Resolution"; `CommitLog`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, Fence
from kafka_telemetry_lake.pipelines.lake.held_shards import TAG
from kafka_telemetry_lake.pipelines.lake.log_files import Action, LogFiles
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, bound_text
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table

# A commit of plain files keeps to these features of a table, too: it is what delta-rs would write.
FEATURES = {"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns", "timestampNtz"}
MOST_WRITER_VERSION = 4
# A commit of a process that was stopped meanwhile may find its version free because the log has forgotten it: below a
# checkpoint, where no reader looks. Logs retain a day.
LONG_S = 600.0
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts while the machine sleeps


class CommitLog:
    """The log of the table at a URI, followed commit by commit. Not for several threads.

    Args:
        fence: the lease under which commits are made. Its epoch is committed at once: from then on no process with a
            lower one can commit. None: of a process that needs none.
        opened: the table, if it is open already: opening a table with many files or a long log takes a second.
    """

    def __init__(self, uri: str, fence: Fence | None = None, opened: DeltaTable | None = None) -> None:
        self._files, self._fence = LogFiles(uri), fence
        # As opened, until the first commit: it takes memory. What later commits say is in `_transactions`.
        self._table: DeltaTable | None = None
        self._transactions: dict[str, int | None] = {}
        self._version = -1
        self._open(opened)
        if opened is not None:
            self._follow()
        self.check_epoch()
        if fence is not None and self._known(APP_ID) != fence.epoch:
            self._append((), {APP_ID: fence.epoch})
            if opened is None:
                self._table = None

    @property
    def version(self) -> int:
        """The table's latest version."""
        self._follow()
        return self._version

    @property
    def known_version(self) -> int:
        """The version that was read or committed last."""
        return self._version

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application has committed."""
        self._follow()
        return self._known(app_id)

    def _known(self, app_id: str) -> int | None:
        """The last version that an application has committed up to the version that was read last."""
        if app_id not in self._transactions:
            self._transactions[app_id] = self._opened_says(app_id)
        return self._transactions[app_id]

    def _opened_says(self, app_id: str) -> int | None:
        if self._table is not None:
            with suppress(DeltaError):  # delta-rs reads the log for it, which may have forgotten that version
                return self._table.transaction_version(app_id)
        return DeltaTable(self._files.uri).transaction_version(app_id)

    def append(
        self,
        actions: Iterable[Action],
        transactions: Mapping[str, int],
        removed: Collection[str] = (),
        note: str | None = None,
    ) -> None:
        """Make a commit.

        Args:
            actions: files that are added or removed.
            transactions: versions of applications (`txn`).
            removed: paths of the files that it removes.
            note: text that the table's history shows (`userMetadata`).

        Raises:
            deltalake.exceptions.CommitFailedError: another process has committed for one of these applications at the
                same time, removed one of the files, or changed the table's columns or settings.
            FencedError: the table has a commit of a higher epoch.
        """
        self._append(actions, transactions, removed, note)
        self._table = None

    def _append(
        self,
        actions: Iterable[Action],
        transactions: Mapping[str, int],
        removed: Collection[str] = (),
        note: str | None = None,
    ) -> None:
        began = time.clock_gettime(CLOCK)
        self._follow()
        now = int(time.time() * 1000)
        content: list[Action] = [
            {"txn": {"appId": name, "version": number, "lastUpdated": now}} for name, number in transactions.items()
        ]
        content += actions
        about = {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "engineInfo": "kafka-telemetry-lake",
            "isBlindAppend": not removed,
            "txnId": uuid.uuid4().hex,
        }
        content.append({"commitInfo": about if note is None else {**about, "userMetadata": note}})
        while True:
            self.check_epoch()
            if self._files.add(self._version + 1, content):
                break
            winner = self._files.read(self._version + 1) or ()
            if winner == content:  # written, but the store's answer was lost
                break
            self._check_conflict(winner, transactions, removed)
            self._follow()
        if time.clock_gettime(CLOCK) - began > LONG_S and self._files.is_past(self._version + 1) is not False:
            self._open()
            raise CommitFailedError(f"{self._files.uri}: the log has forgotten the version that this commit was for")
        self._version += 1
        self._transactions |= transactions

    def check_epoch(self) -> None:
        """Raise ``FencedError`` if the table has, as of the version that was read last, a commit of a higher epoch."""
        if self._fence is not None and (latest := self._known(APP_ID) or 0) > self._fence.epoch:
            raise self._fence.lose(latest)

    def _open(self, opened: DeltaTable | None = None) -> None:
        self._table = table = DeltaTable(self._files.uri) if opened is None else opened
        protocol = table.protocol()
        unknown = set(protocol.writer_features or ()) - FEATURES
        if unknown or (protocol.min_writer_version > MOST_WRITER_VERSION and not protocol.writer_features):
            raise DeltaProtocolError(
                f"{self._files.uri}: the table has features that this job can't write: "
                f"{', '.join(sorted(unknown)) or f'writer version {protocol.min_writer_version}'}"
            )
        self._version = table.version()
        self._transactions = {}

    def _follow(self) -> None:
        """Take the commits that others have made since."""
        while True:
            actions = self._files.read(self._version + 1)
            if actions is None:
                if self._files.is_past(self._version + 1) is False:
                    return
                # The log may have forgotten commits since the last look.
                before = self._version
                self._open()
                if self._version == before:
                    return
                continue
            self._version += 1
            for action in actions:
                if "txn" in action:
                    self._transactions[action["txn"]["appId"]] = int(action["txn"]["version"])

    def _check_conflict(
        self, winner: Iterable[Action], transactions: Mapping[str, int], removed: Collection[str]
    ) -> None:
        for action in winner:
            # Two commits of epochs are no conflict: which one is higher is looked at before the next attempt.
            if "txn" in action and action["txn"]["appId"] in transactions and action["txn"]["appId"] != APP_ID:
                raise CommitFailedError(f"{self._files.uri}: concurrent transaction of {action['txn']['appId']}")
            if "remove" in action and action["remove"]["path"] in removed:
                raise CommitFailedError(f"{self._files.uri}: another process has removed {action['remove']['path']}")
            if "metaData" in action or "protocol" in action:
                raise CommitFailedError(f"{self._files.uri}: the table's columns or settings have changed meanwhile")


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
        self,
        files: Iterable[DataFile],
        app_id: str,
        version: int,
        also: Mapping[str, int] | None = None,
        note: str | None = None,
    ) -> bool:
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
        self,
        files: Sequence[DataFile],
        before: Sequence[dict[str, Any]],
        app_id: str,
        also: Mapping[str, int] | None = None,
        note: str | None = None,
    ) -> bool:
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
    """Files as `files_of` has them, from delta-rs' table of files."""
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
