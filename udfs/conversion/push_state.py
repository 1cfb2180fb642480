"""The push-level state of a batch's clients, in NumPy columns and lists that kernels change in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.state import CLIENTS
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int8s, Int32s, Int64s, column
from kafka_telemetry_lake.udfs.kernels.hashing import number


class BatchClients(NamedTuple):
    """The columns of `state.CLIENTS`, one row per client of the batch."""

    client: Int64s
    partition: Int64s
    landed_at: Int64s
    terminating: Bools
    evicted: Bools
    temporalities: Int8s
    last_temporality: Int8s
    last_time: Int64s
    last_landed_at: Int64s
    heartbeat_at: Int64s
    delta_time: Int64s
    tombstone_time: Int64s
    tombstone_until: Int64s
    principal: Int64s
    place: Int32s


class ClientLists(NamedTuple):
    """A list per client, with room for one more entry per push: `size[c]` entries from `first[c]` of the columns."""

    first: Int64s
    size: Int64s
    columns: tuple[Int64s, ...]


def batch_columns(stored: pa.Table, keys: Int64s, row: Int64s, size: int) -> BatchClients:
    """The stored rows of clients, then zeros for new ones; `row` is the place of each push's client in them."""
    columns = []
    for field in CLIENTS:
        values = np.zeros(size, field.type.to_pandas_dtype())
        values[: stored.num_rows] = column(stored, field.name)
        columns.append(values)
    clients = BatchClients(*columns)
    clients.client[row] = keys
    return clients


def batch_lists(table: pa.Table, schema: pa.Schema, stored_clients: Int64s, arrivals: Int64s) -> ClientLists:
    """The stored lists of clients, with room for `arrivals` more entries of each client."""
    owner, _ = number(np.concatenate([stored_clients, column(table, "client")]))
    owner = owner[len(stored_clients) :]
    size = np.bincount(owner, minlength=len(arrivals)).astype(np.int64)
    first = np.cumsum(size + arrivals) - (size + arrivals)
    order = np.argsort(owner, kind="stable")
    place = np.repeat(first, size) + _rank(size)
    columns = []
    for name in schema.names[1:]:
        values = np.zeros(int((size + arrivals).sum()), np.int64)
        values[place] = column(table, name)[order]
        columns.append(values)
    return ClientLists(first, size, tuple(columns))


def list_table(lists: ClientLists, keys: Int64s, schema: pa.Schema) -> pa.Table:
    """The lists as rows of the state."""
    rows = np.repeat(lists.first, lists.size) + _rank(lists.size)
    return pa.table([np.repeat(keys, lists.size), *(values[rows] for values in lists.columns)], schema)


def _rank(size: Int64s) -> Int64s:
    """0 to size - 1 for each list."""
    ranks: Int64s = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    return ranks
