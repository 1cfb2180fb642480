"""Which clients' state is evicted, and what remains of them (C12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.state import CLIENTS, ClientStates, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.limits import MICROS, Limits

# A partition's landing time must be this far beyond a client's eviction before its rows are removed: a push that landed
# before the eviction may still arrive out of order.
REMOVAL_MARGIN_US = 3600 * 1_000_000


def evicted_clients(state: ClientStates, partition: Int64s, landed_at: Int64s, limits: Limits) -> ShardState:
    """Clients whose state can be evicted because no later push can affect it (C12), with the rows that remain of them.

    A tombstone remains at first; later the client is forgotten. Each client is measured against its own landing
    partition. Whether a push finds its client evicted is decided when that push comes (`redelivery.judge_pushes`), so
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
