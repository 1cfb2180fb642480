"""Idempotent commits: each carries an application's id and version (Delta's `txn` action)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kafka_telemetry_lake.pipelines.lake.durable import sync_commit
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID as FENCE_ID
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.tables.table import Table


def transaction(
    versions: Mapping[str, int], delta: DeltaTable | None = None, fence: Fence | None = None
) -> CommitProperties:
    """Commit properties with applications' ids and versions, and the epoch of the process, if it needs one.

    Args:
        delta: the table that the commit is made to, as last read. delta-rs refuses the commit if another epoch was
            committed after that.

    Raises:
        FencedError: the table has a commit of a higher epoch.
    """
    own = [Transaction(*each) for each in versions.items()]
    if delta is not None and fence is not None:
        if (latest := delta.transaction_version(FENCE_ID) or 0) > fence.epoch:
            raise fence.lose(latest)
        own.append(Transaction(FENCE_ID, fence.epoch))
    return CommitProperties(app_transactions=own)


def has_committed(delta: DeltaTable, app_id: str, version: int) -> bool:
    """Whether the application has committed this version or a later one. Looks at the table as last read."""
    done = delta.transaction_version(app_id)
    return done is not None and done >= version


def append_once(
    table: Table, delta: DeltaTable, rows: pa.Table, app_id: str, version: int, fence: Fence | None = None
) -> bool:
    """Append rows in one commit, unless the application has committed this version already.

    Args:
        rows: columns of ``table.schema``, without the partition.
        fence: the lease under which the commit is made; None: that of a process that needs none.

    Returns:
        Whether a commit was made. Without rows the commit is empty and only marks the version as done.

    Raises:
        deltalake.exceptions.CommitFailedError: another process committed under this id at the same time.
    """
    properties = transaction({app_id: version}, delta, fence)  # first: a higher epoch may have committed the version
    if has_committed(delta, app_id, version):
        return False
    _append(table, delta, rows, properties)
    return True


def append(
    table: Table, delta: DeltaTable, rows: pa.Table, versions: Mapping[str, int], fence: Fence | None = None
) -> None:
    """Append rows in one commit that carries versions of applications: the position of who made them.

    Args:
        rows: columns of ``table.schema``, without the partition; there may be none.
        fence: as that of `append_once`.

    Raises:
        deltalake.exceptions.CommitFailedError: another process committed under one of these ids at the same time.
    """
    _append(table, delta, rows, transaction(versions, delta, fence))


def _append(table: Table, delta: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    write_deltalake(delta, table.with_partition(rows), mode="append", commit_properties=properties)
    sync_commit(delta)
