"""Distributes a state to another number of shards, in new files. Nothing that exists changes.

One shard is read at a time, and one table of it is copied at a time: first each old shard is cut into a part for each
new one, then the parts of a new shard become its base.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import Manifest
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.udfs.conversion.budget_shares import Holders, shares
from kafka_telemetry_lake.udfs.conversion.state import CLIENTS, ShardState, column
from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, Int64s
from kafka_telemetry_lake.udfs.kernels.sharding import places_of, shards_at

log = logging.getLogger("telemetry-lake")

Chains = Mapping[int, Sequence[str]]  # the files of each shard, oldest first


class Redistributed(NamedTuple):
    """The new files of each shard, and the number of clients in them."""

    states: dict[int, tuple[str, ...]]
    clients: int


def redistribute(lake: str, uri: str, states: Chains, shards: int, batch_id: int) -> Redistributed:
    """Write the clients of some shards as the bases of others. They are in use when a manifest names them.

    Args:
        lake: says where clients of an earlier layout belong: it stored no hash of their ids.
        uri: folder of the state.
        states: of all shards.
        shards: the new number of shards.
        batch_id: part of the new files' names.

    Raises:
        StateError: a state file is damaged or missing, or a client is nowhere in the lake.
    """
    parts: dict[int, list[str]] = {}
    cuts: list[_Cut] = []
    for number, (shard, names) in enumerate(sorted(states.items()), 1):
        cuts.append(_cut(lake, ShardFiles(uri, shard), names, shards, batch_id))
        for target, name in cuts[-1].parts.items():
            parts.setdefault(target, []).append(name)
        log.info("state: read shard %d of %d: %s clients", number, len(states), f"{cuts[-1].clients:,}")
    budgets = shares([cut.accounts for cut in cuts], [cut.holders for cut in cuts])
    result: dict[int, tuple[str, ...]] = {}
    for number, shard in enumerate(targets := sorted(parts.keys() | budgets.keys()), 1):
        result[shard] = (_base(ShardFiles(uri, shard), parts.get(shard, []), budgets.get(shard), batch_id),)
        log.info("state: wrote shard %d of %d", number, len(targets))
    return Redistributed(result, sum(cut.clients for cut in cuts))


def restored(lake: str, snapshot: Snapshot, uri: str, target: Manifest) -> dict[int, tuple[str, ...]]:
    """Copy a snapshot's state files to a state folder, with the number of shards that a manifest has."""
    snapshot.restore(uri)
    if snapshot.shards == target.shards:
        return snapshot.states
    return redistribute(lake, uri, snapshot.states, target.shards, target.batch_id).states


class _Cut(NamedTuple):
    """What has become of an old shard: a part for each new one, and what its principals have used."""

    parts: dict[int, str]
    clients: int
    accounts: ShardState
    holders: Holders


def _cut(lake: str, files: ShardFiles, names: Sequence[str], shards: int, batch_id: int) -> _Cut:
    state = files.load(names).state
    accounts = _accounts(state)
    clients = _placed(lake, next(state.whole())[1], accounts)
    target = shards_at(column(clients, "place").astype(np.int32), shards)
    parts = {}
    for shard in np.unique(target).tolist():
        chosen = clients.filter(pa.array(target == shard))
        tables = state.tables_of(column(chosen, "client"))
        parts[shard] = files.write_tables(_with_clients(chosen, tables), batch_id)
    return _Cut(parts, clients.num_rows, accounts, Holders.of(clients, target))


def _base(files: ShardFiles, parts: Sequence[str], budgets: ShardState | None, batch_id: int) -> str:
    """The base of a new shard from its parts, which are deleted."""
    state = files.load(parts).state
    name = files.write_tables((state if budgets is None else state.merge(budgets)).whole(), batch_id)
    files.delete(parts)
    return name


def _accounts(state: StateParts) -> ShardState:
    """The budgets of a shard, and their rows in table `clients`."""
    keys = [column(part.state.budgets, "client") for part in state.parts]
    found = state.rows_of(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])))
    return found.rows_of(np.unique(column(found.budgets, "client")))


def _placed(lake: str, clients: pa.Table, accounts: ShardState) -> pa.Table:
    """The rows of clients, each with its place. Budgets' rows are left out, and what remains of budgets.

    That looks like the tombstone of a client without a place that never sent a point, which says nothing either.
    """
    place, key = column(clients, "place"), column(clients, "client")
    says_nothing = column(clients, "evicted") & (column(clients, "last_time") == 0)
    unplaced = (place == 0) & ~says_nothing & ~np.isin(key, column(accounts.clients, "client"))
    if unplaced.any():
        place = place.copy()
        place[unplaced] = _places_in(lake, key[unplaced])
        if missing := int((place[unplaced] == 0).sum()):
            raise StateError(
                f"the state has {missing:,} clients of an earlier release whose ids no table has any more, so their "
                "new shard is unknown. Let ingest run until they have pushed again or are forgotten (30 days after "
                "their eviction)"
            )
        clients = clients.set_column(CLIENTS.get_field_index("place"), CLIENTS.field("place"), pa.array(place))
    return clients.filter(pa.array(place != 0))


def _places_in(lake: str, keys: Int64s) -> Int32s:
    """The place of each client (`identity.client_keys`, sorted) by its id in the lake's tables; 0: not there."""
    places = np.zeros(len(keys), np.int32)
    for table in (CLIENT_CHANGES, PUSH_OUTCOMES):  # the first has few rows of each client
        if not DeltaTable.is_deltatable(table.uri(lake)):
            continue
        for batch in DeltaTable(table.uri(lake)).to_pyarrow_dataset().to_batches(["cluster_id", "client_instance_id"]):
            if (places != 0).all():
                return places
            _look_up(batch, keys, places)
    return places


def _look_up(ids: pa.RecordBatch, keys: Int64s, places: Int32s) -> None:
    pairs = pa.table(ids).group_by(ids.schema.names).aggregate([]).combine_chunks()
    cluster, client = (pairs[name].combine_chunks().dictionary_encode() for name in ids.schema.names)
    found = client_keys(cluster, client)
    index = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    hit = keys[index] == found
    places[index[hit]] = places_of(pairs["client_instance_id"].combine_chunks())[hit]


def _with_clients(clients: pa.Table, tables: Iterator[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in tables:
        yield name, clients if name == "clients" else table
