"""Maintains the caches of which client matches which subscription. The views read them.

The three tables are computed from `pushes` and `subscriptions` and can be deleted at any time. An update matches new
clients with all versions of the subscriptions or, if the subscriptions have changed, all clients with all versions.
Which version was in force at a push isn't cached: the views compute it from `subscriptions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import (
    ANNOUNCED,
    ATTRIBUTES_ID,
    CLIENT_ATTRIBUTES,
    MATCHES,
    SUBSCRIPTIONS,
)
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.subscriptions.as_of import ANNOUNCED_SUBSCRIPTIONS, announced_subscriptions
from kafka_telemetry_lake.udfs.subscriptions.history import client_matches
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES, client_attributes_ids

SLICE_ROWS = 1 << 17
# A table with more files is rewritten as one. The old files are retained for a while, for readers that use them.
MOST_FILES = 200
RETENTION_HOURS = 1


def _write(definition: Table, table: DeltaTable, rows: pa.Table, seen: dict[str, int], *, overwrite: bool) -> None:
    """Append `rows`, or replace all rows by them, in one commit.

    Args:
        seen: versions, by name, of the tables that the cache is then up to date with.
    """
    write_deltalake(
        table,
        definition.with_partition(rows),
        mode="overwrite" if overwrite else "append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(_seen_id(source), version) for source, version in seen.items()]
        ),
    )
    if overwrite:
        table.vacuum(RETENTION_HOURS, dry_run=False, enforce_retention_duration=False)


def update_client_matches(lake: str) -> int:
    """Update the caches with the lake's new pushes and subscriptions. Returns the number of new clients.

    After a crash at any point the next call gives the same rows. Of two calls at the same time, one fails and changes
    nothing.

    Raises:
        deltalake.exceptions.DeltaError: another process did the same at the same time, or the storage fails.
    """
    try:
        versions = DeltaTable(SUBSCRIPTIONS.uri(lake))
        pushes = DeltaTable(PUSHES.uri(lake))
    except TableNotFoundError:
        return 0  # nothing to match
    attributes = CLIENT_ATTRIBUTES.create(lake)
    new = _add_clients(pushes, attributes)
    _update(MATCHES, lake, attributes, versions)
    _update(ANNOUNCED, lake, attributes, versions)
    return new


def _add_clients(pushes: DeltaTable, attributes: DeltaTable) -> int:
    seen = _seen(attributes, PUSHES.name)
    if seen == pushes.version():
        return 0
    overwrite = len(attributes.file_uris()) > MOST_FILES
    stored = attributes.to_pyarrow_table(columns=CLIENT_ATTRIBUTES.schema.names if overwrite else [ATTRIBUTES_ID.name])
    known = stored[ATTRIBUTES_ID.name].to_numpy()
    new = [CLIENT_ATTRIBUTES.schema.empty_table()]
    for batch in _added_rows(pushes, _files_at(pushes, seen), ATTRIBUTES.names):
        ids = client_attributes_ids(batch)
        _, first = np.unique(ids, return_index=True)
        first = first[~np.isin(ids[first], known)]
        if len(first):
            known = np.append(known, ids[first])
            rows = batch.take(pa.array(first)).append_column(ATTRIBUTES_ID.name, pa.array(ids[first]))
            new.append(rows.select(CLIENT_ATTRIBUTES.schema.names).cast(CLIENT_ATTRIBUTES.schema))
    rows = pa.concat_tables(new)
    number: int = rows.num_rows
    rows = pa.concat_tables([stored.cast(CLIENT_ATTRIBUTES.schema), rows]) if overwrite else rows
    _write(CLIENT_ATTRIBUTES, attributes, rows, {PUSHES.name: pushes.version()}, overwrite=overwrite)
    return number


def _update(cache: Table, lake: str, attributes: DeltaTable, versions: DeltaTable) -> None:
    table = cache.create(lake)
    now = {SUBSCRIPTIONS.name: versions.version(), CLIENT_ATTRIBUTES.name: attributes.version()}
    seen = {name: _seen(table, name) for name in now}
    if seen == now:
        return
    before = _files_at(attributes, seen[CLIENT_ATTRIBUTES.name])
    overwrite = (
        seen[SUBSCRIPTIONS.name] != now[SUBSCRIPTIONS.name]
        or not before  # first update, or the version seen is no longer in the log
        or not before <= _files(attributes)  # the table of clients was rewritten
        or len(table.file_uris()) > MOST_FILES
    )
    history = versions.to_pyarrow_table()
    parts = [cache.schema.empty_table()]
    for clients in _added_rows(attributes, set() if overwrite else before, CLIENT_ATTRIBUTES.schema.names):
        parts.append(client_matches(clients, history) if cache is MATCHES else _announced(clients, history))
    _write(cache, table, pa.concat_tables(parts), now, overwrite=overwrite)


def _announced(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """`announced_subscriptions` for the clients of every cluster that sent a SubscriptionId."""
    clients = clients.filter(pc.and_(clients["subscription_id"].is_valid(), clients["client_instance_id"].is_valid()))
    parts = [ANNOUNCED_SUBSCRIPTIONS.empty_table()]
    for cluster in pc.unique(versions["cluster_id"]):
        mine, its = (table.filter(pc.equal(table["cluster_id"], cluster)) for table in (clients, versions))
        parts.append(announced_subscriptions(mine.combine_chunks(), its.combine_chunks()))
    return pa.concat_tables(parts)


def _added_rows(table: DeltaTable, before: set[str], columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a table in slices, without the files in `before`."""
    dataset = table.to_pyarrow_dataset()
    files = [file for file in dataset.get_fragments() if _file_name(file.path) not in before]
    new = ds.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)
    for batch in new.to_batches(columns=columns, batch_size=SLICE_ROWS):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _files_at(table: DeltaTable, version: int | None) -> set[str]:
    """Names of the table's files at a version; empty if that version is no longer in the log."""
    with contextlib.suppress(DeltaError):
        return set() if version is None else _files(DeltaTable(table.table_uri, version=version))
    return set()


def _files(table: DeltaTable) -> set[str]:
    return {_file_name(uri) for uri in table.file_uris()}


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _seen(table: DeltaTable, source: str) -> int | None:
    """The version of table `source` that this table was last updated with."""
    version: int | None = table.transaction_version(_seen_id(source))
    return version


def _seen_id(source: str) -> str:
    return f"kafka-telemetry-lake:seen:{source}"
