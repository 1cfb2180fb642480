"""A shard's state in memory, in parts like its files: a base, and the clients that each later batch changed.

The newest part that contains a client has all of the client's rows. A batch appends a part and reads only the rows of
its own clients, so its cost depends on them and not on the shard. Only an index of a few bytes per client is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, ClientColumns, ShardState, joined
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, column

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class StateParts:
    """The clients of a shard, spread over several states. Immutable.

    Attributes:
        parts: oldest first.
        index: for each client, the columns that eviction needs and the location of its rows.
    """

    parts: tuple[_Part, ...]
    index: _Index

    @staticmethod
    def of(states: Iterable[ShardState]) -> StateParts:
        """Merge states, oldest first."""
        result = StateParts((), _Index(ClientColumns.of(SCHEMAS["clients"].empty_table()), *np.zeros((2, 0), np.int64)))
        for state in states:
            result = result.merge(state)
        return result

    def merge(self, newer: ShardState) -> StateParts:
        """Replace the clients in `newer` by their rows there, and remove those that `newer` marks as forgotten."""
        return StateParts((*self.parts, _Part.of(newer)), self.index.updated(newer.client_columns(), len(self.parts)))

    def client_columns(self) -> ClientColumns:
        """The columns of all clients that eviction needs."""
        return self.index.columns

    def rows_of(self, clients: Int64s) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""
        return ShardState(**dict(self.tables_of(clients)))

    def changes(self, clients: Int64s) -> ShardState:
        """The rows of these clients as one change, in which those without state are forgotten."""
        clients = np.unique(clients)
        without_state = clients[_find(self.index.columns.client, clients) < 0]
        return ShardState.joined([self.rows_of(clients), ShardState.forgotten(without_state)])

    def whole(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the tables with all clients one by one, so that the state is not in memory twice."""
        return self.tables_of(self.index.columns.client)

    def tables_of(self, clients: Int64s) -> Iterator[tuple[str, pa.Table]]:
        """Yield the tables with the rows of these clients one by one."""
        place = _find(self.index.columns.client, clients)
        place = np.sort(place[place >= 0])
        part, row = self.index.part[place], self.index.row[place]
        chosen = [(self.parts[number], row[part == number]) for number in np.unique(part)]
        for name in SCHEMAS:
            yield name, joined(name, [(getattr(each.state, name), each.cut(name, rows)) for each, rows in chosen])


class _Index(NamedTuple):
    """A row per client, sorted by client."""

    columns: ClientColumns
    part: Int64s  # index into StateParts.parts
    row: Int64s  # row number in that part's table of clients

    def updated(self, newer: ClientColumns, part: int) -> _Index:
        place = _find(self.columns.client, newer.client)
        known = place >= 0
        gap = np.searchsorted(self.columns.client, newer.client[~known])

        def column_after(old: npt.NDArray[Scalar], new: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
            values = old.copy()
            values[place[known]] = new[known]
            return np.insert(values, gap, new[~known])

        columns = ClientColumns._make(column_after(old, new) for old, new in zip(self.columns, newer, strict=True))
        parts = column_after(self.part, np.full(len(newer.client), part))
        rows = column_after(self.row, np.arange(len(newer.client)))
        if newer.forgotten.any():
            present = ~columns.forgotten
            columns = ClientColumns._make(values[present] for values in columns)
            parts, rows = parts[present], rows[present]
        return _Index(columns, parts, rows)


@dataclass(frozen=True)
class _Part:
    """A state and, for each of its tables, the first row of each client, with one more entry for the end."""

    state: ShardState
    begins: dict[str, Int64s]

    @staticmethod
    def of(state: ShardState) -> _Part:
        clients = column(state.clients, "client")
        begins = {}
        for name in SCHEMAS:
            owners = column(getattr(state, name), "client")
            begins[name] = np.append(np.searchsorted(owners, clients), len(owners))
        return _Part(state, begins)

    def cut(self, name: str, clients: Int64s) -> Int64s | None:
        """The rows of some clients in a table, None: all. Clients are increasing rows of the table of clients."""
        if len(clients) == self.state.clients.num_rows:
            return None
        begins = self.begins[name]
        first, size = begins[clients], begins[clients + 1] - begins[clients]
        rank = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        rows: Int64s = np.repeat(first, size) + rank
        return rows


def _find(keys: Int64s, wanted: Int64s) -> Int64s:
    """The index of each wanted key in the sorted keys, or -1."""
    if len(keys) == 0:
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)
