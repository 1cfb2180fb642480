"""A shard's state in memory as the files tell it: a base, and the clients that each later batch changed.

The newest part that names a client has all of its rows. A batch appends a part and reads the rows of its own clients,
so its cost grows with them and not with the shard; only an index of a few bytes per client is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.state import SCHEMAS, Heard, ShardState, column, sorted_table

Int64s = npt.NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class StateParts:
    """The clients of a shard over several states; immutable as they are.

    Attributes:
        parts: oldest first.
        index: every client, with what eviction looks at and the place of its rows.
    """

    parts: tuple[_Part, ...]
    index: _Index

    @staticmethod
    def of(states: Iterable[ShardState]) -> StateParts:
        """The first state, with each of the others merged into it."""
        result = StateParts((), _Index(Heard.of(SCHEMAS["clients"].empty_table()), *np.zeros((2, 0), np.int64)))
        for state in states:
            result = result.merge(state)
        return result

    def merge(self, newer: ShardState) -> StateParts:
        """This state with the clients of `newer` replaced by their rows there; those forgotten there are gone."""
        return StateParts((*self.parts, _Part.of(newer)), self.index.updated(newer.heard(), len(self.parts)))

    def heard(self) -> Heard:
        """Every client."""
        return self.index.heard

    def rows_of(self, clients: Int64s) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""
        return ShardState(**dict(self._tables(clients)))

    def whole(self) -> Iterator[tuple[str, pa.Table]]:
        """The tables of all clients, one after the other: a shard's state needn't be in memory twice."""
        return self._tables(self.index.heard.client)

    def _tables(self, clients: Int64s) -> Iterator[tuple[str, pa.Table]]:
        place = _find(self.index.heard.client, clients)
        place = np.sort(place[place >= 0])
        part, row = self.index.part[place], self.index.row[place]
        chosen = [(self.parts[number], row[part == number]) for number in np.unique(part)]
        for name in SCHEMAS:
            yield name, sorted_table(name, [each.cut(name, rows) for each, rows in chosen])


class _Index(NamedTuple):
    """A row per client, sorted by client."""

    heard: Heard
    part: Int64s  # of StateParts.parts
    row: Int64s  # of that part's clients

    def updated(self, newer: Heard, part: int) -> _Index:
        place = _find(self.heard.client, newer.client)
        known = place >= 0
        gap = np.searchsorted(self.heard.client, newer.client[~known])

        def column_after(old: npt.NDArray[Scalar], new: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
            values = old.copy()
            values[place[known]] = new[known]
            return np.insert(values, gap, new[~known])

        heard = Heard._make(column_after(old, new) for old, new in zip(self.heard, newer, strict=True))
        parts = column_after(self.part, np.full(len(newer.client), part))
        rows = column_after(self.row, np.arange(len(newer.client)))
        if newer.forgotten.any():
            kept = ~heard.forgotten
            heard, parts, rows = Heard._make(values[kept] for values in heard), parts[kept], rows[kept]
        return _Index(heard, parts, rows)


@dataclass(frozen=True)
class _Part:
    """A state, and for each of its other tables where the rows of each client begin; one more entry for the end."""

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

    def cut(self, name: str, clients: Int64s) -> pa.Table:
        """The rows that the clients with these row numbers (rising) have in the table of that name."""
        table: pa.Table = getattr(self.state, name)
        if len(clients) == self.state.clients.num_rows:
            return table
        begins = self.begins[name]
        first, size = begins[clients], begins[clients + 1] - begins[clients]
        rank = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        return table.take(pa.array(np.repeat(first, size) + rank))


def _find(keys: Int64s, wanted: Int64s) -> Int64s:
    """The place of each wanted key among the sorted keys, -1: not there."""
    if len(keys) == 0:
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)
