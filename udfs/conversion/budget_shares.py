"""What each shard gets of the principals' budgets when the state gets another number of shards.

A shard counts what a principal's clients of that shard have used of its own share of the budget. So the counts of all
shards are added up, and each new shard gets as much of them as it gets of the principal's clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.principals import account_rows, budget_keys
from kafka_telemetry_lake.udfs.conversion.state import BUDGETS, CLIENTS, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int32s, Int64s, column

COUNTS = BUDGETS.names[2:]


class Holders(NamedTuple):
    """One row per budget and shard that has clients of its principal, sorted by both."""

    budget: Int64s  # `principals.budget_keys`
    shard: Int64s
    clients: Int64s
    landed_at: Int64s  # of the latest push of these clients
    partition: Int64s  # of that push

    @staticmethod
    def of(clients: pa.Table, shard: Int32s) -> Holders:
        """The holders of budgets among clients.

        Args:
            clients: rows of `state.CLIENTS`.
            shard: the new shard of each.
        """
        known = np.flatnonzero(column(clients, "principal"))
        budget = budget_keys(column(clients, "principal")[known])
        ones = np.ones(len(known), np.int64)
        landed_at, partition = (column(clients, name)[known] for name in ("landed_at", "partition"))
        return Holders(budget, shard[known].astype(np.int64), ones, landed_at, partition).summed()

    def chosen(self, rows: Bools) -> Holders:
        return Holders._make(values[rows] for values in self)

    def summed(self) -> Holders:
        """One row per budget and shard, with their sums."""
        if len(self.budget) == 0:
            return self
        order = np.lexsort((self.landed_at, self.shard, self.budget))
        rows = Holders._make(values[order] for values in self)
        heads = np.flatnonzero(_changes(rows.budget) | _changes(rows.shard))
        last = np.append(heads[1:], len(order)) - 1  # the latest push of each
        clients = np.add.reduceat(rows.clients, heads)
        return Holders(rows.budget[last], rows.shard[last], clients, rows.landed_at[last], rows.partition[last])


def shares(accounts: Sequence[ShardState], holders: Sequence[Holders]) -> dict[int, ShardState]:
    """The budgets of each new shard, with their rows in table `clients`.

    Args:
        accounts: those rows of each old shard.
        holders: of the clients of each old shard. A budget whose principal has no client goes to shard 0.
    """
    clients = pa.concat_tables([state.clients for state in accounts] or [CLIENTS.empty_table()])
    if clients.num_rows == 0:
        return {}
    totals = pa.concat_tables([state.budgets for state in accounts]).group_by(["client", "hour"])
    totals = totals.aggregate([(name, "sum") for name in COUNTS])
    totals = totals.sort_by([("client", "ascending"), ("hour", "ascending")])
    budget = column(totals, "client")
    held = _with_all(holders, clients, budget)

    heads = np.flatnonzero(_changes(held.budget))
    sizes = np.diff(np.append(heads, len(held.budget)))
    passed = np.cumsum(held.clients)
    before = np.repeat(np.append(0, passed)[heads], sizes)  # clients of the budgets before
    all_clients = np.repeat(np.add.reduceat(held.clients, heads), sizes)
    end, begin = (passed - before) / all_clients, (passed - before - held.clients) / all_clients

    first, hours = np.searchsorted(budget, held.budget), np.searchsorted(budget, held.budget, "right")
    holder = np.repeat(np.arange(len(first)), hours - first)
    row = np.arange(len(holder)) - np.repeat(np.cumsum(hours - first) - hours, hours - first)
    values = [held.budget[holder], column(totals, "hour")[row]]
    for name in COUNTS:
        total = column(totals, f"{name}_sum")[row]
        values.append((np.floor(total * end[holder]) - np.floor(total * begin[holder])).astype(np.int64))
    result = {}
    for shard in np.unique(held.shard).tolist():
        mine, rows = held.shard == shard, held.shard[holder] == shard
        clients = account_rows(held.budget[mine], held.partition[mine], held.landed_at[mine])
        budgets = pa.table([each[rows] for each in values], BUDGETS)
        result[shard] = replace(ShardState.empty(), clients=clients, budgets=budgets)
    return result


def _with_all(parts: Sequence[Holders], accounts: pa.Table, budget: Int64s) -> Holders:
    """The holders of budgets: a budget without any is held by shard 0."""
    found = Holders._make(map(np.concatenate, zip(*parts, strict=True)))
    key, landed_at, partition = (column(accounts, name) for name in ("client", "landed_at", "partition"))
    alone = Holders(key, np.zeros_like(key), np.ones_like(key), landed_at, partition)
    held = [found.chosen(np.isin(found.budget, budget)), alone.chosen(~np.isin(key, found.budget))]
    return Holders._make(map(np.concatenate, zip(*held, strict=True))).summed()


def _changes(values: Int64s) -> Bools:
    changed: Bools = np.append(True, values[1:] != values[:-1])[: len(values)]
    return changed
