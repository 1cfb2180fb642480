"""Idempotent commits: each carries an application's id and version (Delta's `txn` action)."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kafka_telemetry_lake.pipelines.lake.durable import sync_commit
from kafka_telemetry_lake.pipelines.tables.table import Table


def transaction(app_id: str, version: int) -> CommitProperties:
    """Commit properties with an application's id and version."""
    return CommitProperties(app_transactions=[Transaction(app_id, version)])


def has_committed(delta: DeltaTable, app_id: str, version: int) -> bool:
    """Whether the application has committed this version or a later one. Looks at the table as last read."""
    done = delta.transaction_version(app_id)
    return done is not None and done >= version


def append_once(table: Table, delta: DeltaTable, rows: pa.Table, app_id: str, version: int) -> bool:
    """Append rows in one commit, unless the application has committed this version already.

    Args:
        rows: columns of ``table.schema``, without the partition.

    Returns:
        Whether a commit was made. Without rows the commit is empty and only marks the version as done.

    Raises:
        deltalake.exceptions.CommitFailedError: another process committed under this id at the same time.
    """
    if has_committed(delta, app_id, version):
        return False
    write_deltalake(delta, table.with_partition(rows), mode="append", commit_properties=transaction(app_id, version))
    sync_commit(delta)
    return True
