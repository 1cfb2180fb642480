"""Which principal a client belongs to, and each principal's budget: ids of clients can be invented, principals can't.

An unknown principal (NULL, or dropped by the privacy settings) conflicts with none and has no budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.state import BUDGETS, CLIENTS, ClientColumns, ClientStates, ShardState
from kafka_telemetry_lake.udfs.identity import column_hashes, mix
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, column
from kafka_telemetry_lake.udfs.kernels.compiled import kernel
from kafka_telemetry_lake.udfs.kernels.hashing import number

INVALID_REQUEST = "INVALID_REQUEST"
THROTTLED = "THROTTLING_QUOTA_EXCEEDED"
ANOTHER_PRINCIPAL = "the principal is another than that of the client instance's earlier pushes"
HOUR_US = 3600 * 1_000_000
HOURS = 24  # of a principal's counts in the state
BUDGET = np.uint64(0x6275_6467_6574_7321)  # makes a budget's key differ from every client's


class Senders(NamedTuple):
    """One row per push, in arrival order."""

    principal: Int64s  # hash, 0: unknown
    foreign: Bools  # sent by another principal than the client's
    budget: Int64s  # key of the principal's budget
    hour: Int64s  # of landing, since 1970
    size: Int64s  # landed bytes; 0 when throttled, or if the principal is unknown

    def part(self, first: int, last: int) -> Senders:
        return Senders._make(values[first:last] for values in self)


@dataclass(frozen=True)
class Budgets:
    """A principal's limits per hour of landing in this shard; 0: no limit."""

    series: int
    text_bytes: int
    landed_bytes: int


def budget_keys(principals: Int64s) -> Int64s:
    """The keys in the state of the budgets of principals, which are given as hashes."""
    keys: Int64s = mix(principals.view(np.uint64), BUDGET).view(np.int64)
    return keys


def check_senders(
    pushes: pa.Table, clients: Int64s, landed_at: Int64s, state: ClientStates, evict_after_s: int, budgets: Budgets
) -> tuple[pa.Table, Senders]:
    """Reject pushes from another principal than their client's, and those beyond their principal's bytes of the hour.

    Args:
        pushes: in arrival order.
        clients: `identity.client_keys` of each.
        landed_at: its landing time, us.
        state: before the pushes.
        evict_after_s: this long after its last push, any principal may take over a client.
        budgets: of this shard.

    Returns:
        The pushes with their `reject_reason`, and who sent them.
    """
    principal = _principals(pushes)
    named = pushes["client_instance_id"].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    foreign = np.zeros(len(principal), np.bool_)
    row, size = number(clients)
    owner, last_landed_at = _owners(state.client_columns(), clients, row, size)
    _find_foreign(row, principal, landed_at, named, owner, last_landed_at, evict_after_s * 1_000_000, foreign)
    keys = np.where(principal != 0, budget_keys(principal), 0)
    hour = landed_at // HOUR_US
    sizes = pc.fill_null(pc.binary_length(pushes["payload"]), 0).to_numpy().astype(np.int64)
    sizes = np.where(principal != 0, sizes, 0)
    throttled = np.zeros(len(principal), np.bool_)
    if budgets.landed_bytes:
        counts, place = _counts(_rows(state, keys), keys, hour)
        _spend(place, sizes, counts[2], budgets.landed_bytes, throttled)
    senders = Senders(principal, foreign, keys, hour, np.where(throttled, 0, sizes))
    if not (foreign.any() or throttled.any()):
        return pushes, senders
    rejected = pushes["reject_reason"].combine_chunks().is_valid()
    bound = f"landed bytes of the principal in this hour: more than {budgets.landed_bytes} in this shard"
    for name, of_foreign, of_throttled in (
        ("reject_reason", INVALID_REQUEST, THROTTLED),
        ("reject_detail", ANOTHER_PRINCIPAL, bound),
    ):
        mine = pc.if_else(pa.array(foreign), of_foreign, pc.if_else(pa.array(throttled), of_throttled, None))
        values = pc.if_else(rejected, pushes[name].combine_chunks(), mine)
        pushes = pushes.set_column(pushes.schema.get_field_index(name), pushes.schema.field(name), values)
    return pushes, senders


def spend_series(
    senders: Senders,
    push: Int64s,
    series: Int64s,
    text_bytes: Int64s,
    stored_series: Int64s,
    state: ClientStates,
    budgets: Budgets,
) -> tuple[Bools, ShardState]:
    """Find the points of new series beyond their principal's budget.

    Args:
        senders: who sent the pushes of this part.
        push: row of the push of each point that needs state, in arrival order.
        series: key of its series in the state.
        text_bytes: bytes of its name and attributes.
        stored_series: series of the state.
        state: before this part.
        budgets: of this shard.

    Returns:
        One boolean per point, and the budgets' new state.
    """
    if len(push) and not senders.principal.any():  # without points the kernel is only compiled
        return np.zeros(len(series), np.bool_), ShardState.empty()
    old = _rows(state, senders.budget)
    counts, place = _counts(old, senders.budget, senders.hour)
    np.add.at(counts[2], place[place >= 0], senders.size[place >= 0])
    group, size = number(np.concatenate([stored_series, series]))
    stored = np.zeros(size, np.bool_)
    stored[group[: len(stored_series)]] = True
    beyond = np.zeros(len(series), np.bool_)
    _spend_series(
        place[push], group[len(stored_series) :], text_bytes, stored, np.zeros(size, np.bool_), counts[0], counts[1],
        budgets.series, budgets.text_bytes, beyond,
    )  # fmt: skip
    return beyond, _spent(old, senders, place, counts)


def accounts(senders: Senders, partition: Int64s, landed_at: Int64s) -> pa.Table:
    """The rows of budgets in table `clients`: they let budgets be evicted as clients are."""
    sent = np.flatnonzero(senders.principal)
    keys, index = np.unique(senders.budget[sent], return_inverse=True)
    latest = np.zeros(len(keys), np.int64)
    np.maximum.at(latest, index, landed_at[sent])
    last = np.zeros(len(keys), np.int64)
    last[index] = partition[sent]
    return account_rows(keys, last, latest)


def account_rows(keys: Int64s, partition: Int64s, landed_at: Int64s) -> pa.Table:
    """Rows of table `clients` for budgets: their latest push, and nothing else."""
    values = {"client": keys, "partition": partition, "landed_at": landed_at}
    return pa.table(
        [pa.array(values.get(each.name, np.zeros(len(keys), each.type.to_pandas_dtype()))) for each in CLIENTS], CLIENTS
    )


def _principals(pushes: pa.Table) -> Int64s:
    texts = pushes["principal"].combine_chunks()
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    there = texts.is_valid().to_numpy(zero_copy_only=False)
    return np.where(there, column_hashes(texts.dictionary_encode()).view(np.int64), 0)


def _owners(columns: ClientColumns, clients: Int64s, row: Int64s, size: int) -> tuple[Int64s, Int64s]:
    """Principal and last landing of each client of the batch, 0: unknown."""
    ids = np.zeros(size, np.int64)
    ids[row] = clients
    place = np.minimum(np.searchsorted(columns.client, ids), max(0, len(columns.client) - 1))
    if len(columns.client) == 0:
        return np.zeros(size, np.int64), np.zeros(size, np.int64)
    there = columns.client[place] == ids
    return np.where(there, columns.principal[place], 0), np.where(there, columns.landed_at[place], 0)


@kernel
def _find_foreign(
    row: Int64s, principal: Int64s, landed_at: Int64s, named: Bools, owner: Int64s, last: Int64s, evict_after: int,
    foreign: Bools,
) -> None:  # fmt: skip
    for i in range(len(row)):
        c = row[i]
        if not named[i]:
            continue
        if landed_at[i] - last[c] > evict_after:
            owner[c] = 0
        if principal[i] != 0 and owner[c] == 0:
            owner[c] = principal[i]
        foreign[i] = principal[i] != 0 and principal[i] != owner[c]
        if not foreign[i]:
            last[c] = max(last[c], landed_at[i])


def _rows(state: ClientStates, keys: Int64s) -> pa.Table:
    return state.rows_of(np.unique(keys[keys != 0])).budgets


def _counts(old: pa.Table, keys: Int64s, hour: Int64s) -> tuple[list[Int64s], Int64s]:
    """Counts of each principal and hour of the state and of the pushes, and their place for each push, -1: none."""
    pairs = np.concatenate([_pair(column(old, "client"), column(old, "hour")), _pair(keys, hour)])
    group, size = number(pairs)
    counts = []
    for name in BUDGETS.names[2:]:
        values = np.zeros(size, np.int64)
        values[group[: old.num_rows]] = column(old, name)
        counts.append(values)
    return counts, np.where(keys != 0, group[old.num_rows :], -1)


def _pair(keys: Int64s, hour: Int64s) -> Int64s:
    pairs: Int64s = mix(keys.view(np.uint64), hour.view(np.uint64)).view(np.int64)
    return pairs


@kernel
def _spend(place: Int64s, sizes: Int64s, spent: Int64s, bound: int, throttled: Bools) -> None:
    for i in range(len(place)):
        k = place[i]
        if k >= 0:
            if spent[k] + sizes[i] > bound:
                throttled[i] = True
            else:
                spent[k] += sizes[i]


@kernel
def _spend_series(
    place: Int64s, group: Int64s, text_bytes: Int64s, stored: Bools, refused: Bools, series: Int64s, texts: Int64s,
    most_series: int, most_texts: int, beyond: Bools,
) -> None:  # fmt: skip
    for i in range(len(group)):
        g, k = group[i], place[i]
        if k < 0 or stored[g]:
            continue
        if not refused[g]:
            too_many = most_series > 0 and series[k] + 1 > most_series
            too_long = most_texts > 0 and texts[k] + text_bytes[i] > most_texts
            if too_many or too_long:
                refused[g] = True
            else:
                stored[g] = True
                series[k] += 1
                texts[k] += text_bytes[i]
        beyond[i] = refused[g]


def _spent(old: pa.Table, senders: Senders, place: Int64s, counts: list[Int64s]) -> ShardState:
    """The counts as rows, of each principal's last hours."""
    size = len(counts[0])
    keys, hour = np.zeros(size, np.int64), np.zeros(size, np.int64)
    keys[: old.num_rows], hour[: old.num_rows] = column(old, "client"), column(old, "hour")
    sent = np.flatnonzero(place >= 0)
    keys[place[sent]], hour[place[sent]] = senders.budget[sent], senders.hour[sent]
    principals, index = np.unique(keys, return_inverse=True)
    latest = np.zeros(len(principals), np.int64)
    np.maximum.at(latest, index, hour)
    chosen = (keys != 0) & (hour > latest[index] - HOURS)
    rows = pa.table([values[chosen] for values in (keys, hour, *counts)], BUDGETS)
    return replace(ShardState.empty(), budgets=rows)
