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
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import Manifest
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot
from kafka_telemetry_lake.udfs.conversion.budget_shares import Holders, shares
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.kernels.sharding import shards_at

log = logging.getLogger("telemetry-lake")

Chains = Mapping[int, Sequence[str]]  # the files of each shard, oldest first


class Redistributed(NamedTuple):
    """The new files of each shard, and the number of clients in them."""

    states: dict[int, tuple[str, ...]]
    clients: int


def redistribute(uri: str, states: Chains, shards: int, batch_id: int) -> Redistributed:
    """Write the clients of some shards as the bases of others. They are in use when a manifest names them.

    Args:
        uri: folder of the state.
        states: of all shards.
        shards: the new number of shards.
        batch_id: part of the new files' names.

    Raises:
        StateError: a state file is damaged or missing.
    """
    parts: dict[int, list[str]] = {}
    cuts: list[_Cut] = []
    for number, (shard, names) in enumerate(sorted(states.items()), 1):
        cuts.append(_cut(ShardFiles(uri, shard), names, shards, batch_id))
        for target, name in cuts[-1].parts.items():
            parts.setdefault(target, []).append(name)
        log.info("state: read shard %d of %d: %s clients", number, len(states), f"{cuts[-1].clients:,}")
    budgets = shares([cut.accounts for cut in cuts], [cut.holders for cut in cuts])
    result: dict[int, tuple[str, ...]] = {}
    for number, shard in enumerate(targets := sorted(parts.keys() | budgets.keys()), 1):
        result[shard] = (_base(ShardFiles(uri, shard), parts.get(shard, []), budgets.get(shard), batch_id),)
        log.info("state: wrote shard %d of %d", number, len(targets))
    return Redistributed(result, sum(cut.clients for cut in cuts))


def restored(snapshot: Snapshot, uri: str, target: Manifest) -> dict[int, tuple[str, ...]]:
    """The state files of a snapshot, with the number of shards that a manifest has."""
    if snapshot.shards == target.shards:
        return snapshot.states
    return redistribute(uri, snapshot.states, target.shards, target.batch_id).states


class _Cut(NamedTuple):
    """What has become of an old shard: a part for each new one, and what its principals have used."""

    parts: dict[int, str]
    clients: int
    accounts: ShardState
    holders: Holders


def _cut(files: ShardFiles, names: Sequence[str], shards: int, batch_id: int) -> _Cut:
    state = files.load(names).state
    accounts = _accounts(state)
    # A row without a place is a budget's, or what remains of one, which says nothing.
    clients = next(state.whole())[1].filter(pc.field("place") != 0)
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


def _with_clients(clients: pa.Table, tables: Iterator[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in tables:
        yield name, clients if name == "clients" else table
