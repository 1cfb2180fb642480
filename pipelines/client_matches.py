"""Who matches which subscription: caches of `pushes` x `subscriptions` that the views read, and how they are kept.

Three tables follow from those two and can be deleted at any time. They are brought up to date by new clients against
all versions, or, after a change of the subscriptions, by all clients against all versions; which versions a push falls
under is told by the views when they are asked, from `subscriptions` as it is then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import PUSHES, open_or_create
from udfs.client_attributes import ATTRIBUTES, client_attributes_ids
from udfs.subscription_as_of import TOLD_SUBSCRIPTIONS, told_subscriptions
from udfs.subscription_history import CLIENT_MATCHES, client_matches

SLICE_ROWS = 1 << 17
# A table of more files is written anew, as one; what that leaves behind is kept for readers that have begun.
MOST_FILES = 200
KEPT_HOURS = 1


@dataclass(frozen=True)
class CacheTable:
    """A Delta table that follows from others; its commits tell which versions of them."""

    name: str
    meaning: str
    schema: pa.Schema

    def open(self, lake: str) -> DeltaTable:
        """Open the table, creating it empty when it isn't there."""
        uri = f"{lake.rstrip('/')}/{self.name}"
        return open_or_create(uri, schema=self.schema, name=self.name, description=self.meaning)

    def write(self, table: DeltaTable, rows: pa.Table, seen: dict[str, int], *, anew: bool) -> None:
        """One commit: `rows` are added, or replace all; `seen` names the tables that they follow from by version."""
        write_deltalake(
            table,
            rows.cast(self.schema),
            mode="overwrite" if anew else "append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(_seen_id(source), version) for source, version in seen.items()]
            ),
        )
        if anew:
            table.vacuum(KEPT_HOURS, dry_run=False, enforce_retention_duration=False)


_ID = pa.field("client_attributes_id", pa.int64(), metadata={"comment": "stable hash of the rest"})
CLIENT_ATTRIBUTES = CacheTable(
    "client_attributes",
    "Distinct attributes of clients that pushed: what subscriptions are matched against.",
    pa.schema([_ID, *ATTRIBUTES]),
)
MATCHES = CacheTable(
    "client_matches", "Cache: which version of a subscription matches which client; others have no row.", CLIENT_MATCHES
)
TOLD = CacheTable(
    "told_subscriptions",
    "Cache: as of when the pushes are matched that carry a SubscriptionId, by when they landed.",
    TOLD_SUBSCRIPTIONS,
)
CACHE_TABLES = (CLIENT_ATTRIBUTES, MATCHES, TOLD)


def keep_matches(lake: str) -> int:
    """Bring the caches up to the lake's pushes and subscriptions; gives the number of clients that are new.

    Run again after a crash at any point it gives the same rows. Two at once: one fails and changes nothing.

    Raises:
        deltalake.exceptions.DeltaError: another process was faster, or the storage fails.
    """
    try:
        versions = DeltaTable(SUBSCRIPTIONS.uri(lake))
        pushes = DeltaTable(PUSHES.uri(lake))
    except TableNotFoundError:
        return 0  # nothing to match
    attributes = CLIENT_ATTRIBUTES.open(lake)
    new = _add_clients(pushes, attributes)
    _keep(MATCHES, lake, attributes, versions)
    _keep(TOLD, lake, attributes, versions)
    return new


def _add_clients(pushes: DeltaTable, attributes: DeltaTable) -> int:
    seen = _seen(attributes, PUSHES.name)
    if seen == pushes.version():
        return 0
    anew = len(attributes.file_uris()) > MOST_FILES
    held = attributes.to_pyarrow_table(columns=CLIENT_ATTRIBUTES.schema.names if anew else [_ID.name])
    known = held[_ID.name].to_numpy()
    found = [CLIENT_ATTRIBUTES.schema.empty_table()]
    for batch in _added_rows(pushes, _files_at(pushes, seen), ATTRIBUTES.names):
        ids = client_attributes_ids(batch)
        _, first = np.unique(ids, return_index=True)
        first = first[~np.isin(ids[first], known)]
        if len(first):
            known = np.append(known, ids[first])
            rows = batch.take(pa.array(first)).append_column(_ID.name, pa.array(ids[first]))
            found.append(rows.select(CLIENT_ATTRIBUTES.schema.names).cast(CLIENT_ATTRIBUTES.schema))
    rows = pa.concat_tables(found)
    number: int = rows.num_rows
    rows = pa.concat_tables([held.cast(CLIENT_ATTRIBUTES.schema), rows]) if anew else rows
    CLIENT_ATTRIBUTES.write(attributes, rows, {PUSHES.name: pushes.version()}, anew=anew)
    return number


def _keep(cache: CacheTable, lake: str, attributes: DeltaTable, versions: DeltaTable) -> None:
    table = cache.open(lake)
    now = {SUBSCRIPTIONS.name: versions.version(), CLIENT_ATTRIBUTES.name: attributes.version()}
    seen = {name: _seen(table, name) for name in now}
    if seen == now:
        return
    before = _files_at(attributes, seen[CLIENT_ATTRIBUTES.name])
    anew = (
        seen[SUBSCRIPTIONS.name] != now[SUBSCRIPTIONS.name]
        or not before  # the first time, or too long ago
        or not before <= _files(attributes)  # the clients were written anew
        or len(table.file_uris()) > MOST_FILES
    )
    held = versions.to_pyarrow_table()
    parts = [cache.schema.empty_table()]
    for clients in _added_rows(attributes, set() if anew else before, CLIENT_ATTRIBUTES.schema.names):
        parts.append(client_matches(clients, held) if cache is MATCHES else _told(clients, held))
    cache.write(table, pa.concat_tables(parts), now, anew=anew)


def _told(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """`told_subscriptions` of every cluster's clients that carry a SubscriptionId."""
    clients = clients.filter(pc.and_(clients["subscription_id"].is_valid(), clients["client_instance_id"].is_valid()))
    parts = [TOLD_SUBSCRIPTIONS.empty_table()]
    for cluster in pc.unique(versions["cluster_id"]):
        mine, its = (table.filter(pc.equal(table["cluster_id"], cluster)) for table in (clients, versions))
        parts.append(told_subscriptions(mine.combine_chunks(), its.combine_chunks()))
    return pa.concat_tables(parts)


def _added_rows(table: DeltaTable, before: set[str], columns: list[str]) -> Iterator[pa.Table]:
    """The rows, in slices, of a table's files but those named."""
    dataset = table.to_pyarrow_dataset()
    files = [file for file in dataset.get_fragments() if _file_name(file.path) not in before]
    new = ds.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)
    for batch in new.to_batches(columns=columns, batch_size=SLICE_ROWS):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _files_at(table: DeltaTable, version: int | None) -> set[str]:
    """Names of the files at a version; none, when that is too long ago to be told."""
    with contextlib.suppress(DeltaError):
        return set() if version is None else _files(DeltaTable(table.table_uri, version=version))
    return set()


def _files(table: DeltaTable) -> set[str]:
    return {_file_name(uri) for uri in table.file_uris()}


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _seen(table: DeltaTable, source: str) -> int | None:
    """The version of another table that this one was brought up to."""
    version: int | None = table.transaction_version(_seen_id(source))
    return version


def _seen_id(source: str) -> str:
    return f"kafka-telemetry-lake:seen:{source}"
