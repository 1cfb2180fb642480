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
    app_id: str, version: int, delta: DeltaTable | None = None, fence: Fence | None = None,
    also: Mapping[str, int] | None = None,
) -> CommitProperties:  # fmt: skip
    """Commit properties with an application's id and version, and the epoch of the process, if it needs one.

    Args:
        delta: the table that the commit is made to, as last read. delta-rs refuses the commit if another epoch was
            committed after that.
        also: versions of other applications.

    Raises:
        FencedError: the table has a commit of a higher epoch.
    """
    own = [Transaction(*each) for each in {app_id: version, **(also or {})}.items()]
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
    table: Table, delta: DeltaTable, rows: pa.Table, app_id: str, version: int, fence: Fence | None = None,
    also: Mapping[str, int] | None = None,
) -> bool:  # fmt: skip
    """Append rows in one commit, unless the application has committed this version already.

    Args:
        rows: columns of ``table.schema``, without the partition.
        fence: the claim under which the commit is made; None: that of a process that needs none.
        also: versions of other applications that the commit carries.

    Returns:
        Whether a commit was made. Without rows the commit is empty and only marks the version as done.

    Raises:
        deltalake.exceptions.CommitFailedError: another process committed under this id at the same time.
    """
    properties = transaction(
        app_id, version, delta, fence, also
    )  # first: a higher epoch may have committed the version
    if has_committed(delta, app_id, version):
        return False
    write_deltalake(delta, table.with_partition(rows), mode="append", commit_properties=properties)
    sync_commit(delta)
    return True
