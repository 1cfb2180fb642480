"""What bounds the state: the series of each client, and how long a client is remembered (C12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.distributions import Distributions
from kafka_telemetry_lake.udfs.conversion.points import Points, Reason
from kafka_telemetry_lake.udfs.conversion.state import CLIENTS, ClientStates, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, column, one_chunk
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.limits import MICROS, Limits
from kafka_telemetry_lake.udfs.otlp.decoded import Kind, Temporality


def beyond_limit(points: Points, distributions: Distributions, clients: Int64s, state: ShardState, limit: int) -> Bools:
    """The points of new series beyond their client's limit; the client's other series are converted as usual.

    A series counts as one, and so does each bucket of a histogram. Series of the state come first, then those of the
    points in their order.

    Args:
        clients: `identity.client_keys` of each push.
        state: the rows of these clients.
        limit: series and buckets of a client.

    Returns:
        One boolean per point.
    """
    beyond = np.zeros(len(points.push), np.bool_)
    chosen = np.flatnonzero(remembered(points))
    cells = np.ones(len(chosen), np.int64)
    lists = distributions.counts_first, distributions.positive_first, distributions.negative_first
    buckets = np.append(sum(np.diff(first) for first in lists), 0)
    cells += buckets[points.distribution[chosen]]  # -1 is none
    owner, stored_clients, stored_series, stored_cells = clients[points.push[chosen]], *_stored_series(state)
    index, distinct_clients = number(np.concatenate([stored_clients, owner]))
    total = np.bincount(index, np.concatenate([stored_cells, cells]), distinct_clients)
    if (total <= limit).all():  # nearly always true; the code below looks at each series
        return beyond
    too_many = total > limit
    of_many, stored_of_many = too_many[index[len(stored_clients) :]], too_many[index[: len(stored_clients)]]
    chosen, cells, owner = chosen[of_many], cells[of_many], owner[of_many]
    before = stored_series[stored_of_many]

    ids = np.concatenate([before, points.series[chosen]])
    _, first, series = np.unique(ids, return_index=True, return_inverse=True)
    stored_per_series = np.zeros(len(first), np.int64)
    stored_per_series[series[: len(before)]] = stored_cells[stored_of_many]
    needed = stored_per_series.copy()
    np.maximum.at(needed, series[len(before) :], cells)
    owners = np.concatenate([stored_clients[stored_of_many], owner])[first]
    order = np.lexsort((first, owners))  # per client by first appearance
    more = (needed - stored_per_series)[order]
    heads = np.flatnonzero(np.diff(owners[order], prepend=owners[order][0] - 1))
    passed = np.cumsum(more)
    _, client = np.unique(owners[order], return_inverse=True)
    of_client = np.bincount(client, stored_per_series[order])[client] + passed - (passed[heads] - more[heads])[client]
    full = np.zeros(len(first), np.bool_)
    full[order] = (more > 0) & (of_client > limit)
    beyond[chosen] = full[series[len(before) :]]
    return beyond


def remembered(points: Points) -> Bools:
    """The points whose series need state: cumulative sums and histograms, and totals sent as DELTA."""
    counter = np.where(points.kind == Kind.SUM, points.monotonic, points.kind > Kind.SUM) & (
        points.kind != Kind.SUMMARY
    )
    total = (points.temporality == Temporality.CUMULATIVE) | (
        (points.temporality == Temporality.DELTA) & (points.start >= points.time)
    )
    has_state: Bools = counter & total & points.recorded & (points.reason == Reason.NONE)
    return has_state


def _stored_series(state: ShardState) -> tuple[Int64s, Int64s, Int64s]:
    """Client, series and cells of each series of the state."""
    numbers, histograms = state.numbers, state.distributions
    lengths = [pc.list_value_length(one_chunk(histograms[name])).to_numpy() for name in ("positive", "negative")]
    return (
        np.concatenate([column(numbers, "client"), column(histograms, "client")]),
        np.concatenate([column(numbers, "series"), column(histograms, "series")]),
        np.concatenate([np.ones(numbers.num_rows, np.int64), 1 + lengths[0] + lengths[1]]),
    )


# A partition's landing time must be this far beyond a client's eviction before its rows are removed: a push that landed
# before the eviction may still arrive out of order.
REMOVAL_MARGIN_US = 3600 * 1_000_000


def evicted_clients(state: ClientStates, partition: Int64s, landed_at: Int64s, limits: Limits) -> ShardState:
    """Clients whose state can be evicted because no later push can affect it (C12), with the rows that remain of them.

    A tombstone remains at first; later the client is forgotten. Each client is measured against its own landing
    partition. Whether a push finds its client evicted is decided when that push comes (`redelivery.check_pushes`), so
    removing rows here changes no result.

    Args:
        state: all clients of the shard.
        partition: landing partition of each push of the batch.
        landed_at: its landing time, us.
        limits: ages at which clients are evicted and forgotten.
    """
    partitions, index = np.unique(partition, return_inverse=True)
    latest = np.full(len(partitions) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, index, landed_at)
    clients = state.client_columns()
    place = np.searchsorted(partitions, clients.partition)
    place[(place < len(partitions)) & (np.append(partitions, 0)[place] != clients.partition)] = len(partitions)
    limit = np.where(clients.terminating, limits.evict_terminated_after_s, limits.evict_after_s)
    due = clients.landed_at + limit * MICROS + REMOVAL_MARGIN_US
    is_evicted = (latest[place] > due) & ~clients.evicted
    is_forgotten = latest[place] > due + limits.tombstone_s * MICROS
    tombstones = state.rows_of(clients.client[is_evicted & ~is_forgotten]).clients
    marks = pa.array(np.ones(tombstones.num_rows, np.bool_))
    tombstones = tombstones.set_column(CLIENTS.get_field_index("evicted"), CLIENTS.field("evicted"), marks)
    return ShardState.joined(
        [replace(ShardState.empty(), clients=tombstones), ShardState.forgotten(clients.client[is_forgotten])]
    )
