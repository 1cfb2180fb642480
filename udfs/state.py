"""What a shard remembers between micro-batches: five tables, every row keyed by its client.

| table | a row is | grows with |
|---|---|---|
| clients | one client instance; it outlives its other rows as C12's tombstone | clients of the last month |
| recent_pushes | digest of one push (D2) | clients x pushes of the last hour |
| lost_intervals | an interval no push has told about yet (D3) | losses of the last hour |
| numbers | last point of a cumulative sum: 41 bytes | cumulative series |
| distributions | last point of a cumulative histogram | cumulative series |

So DELTA clients cost nothing per series. Times are nanoseconds since 1970 as the points carry them, landing times
microseconds; 0 reads as none. Any subset of clients can be cut out (`rows_of`) and put back (`merge`). A change of
state is a state too: of the clients that changed, whole. docs/state.md describes the bytes and the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# A change of the layout's meaning takes a new number; a reader refuses numbers it doesn't know.
VERSION = 3
HEADER_BYTES = 8  # of the version; so Arrow's buffers lie in the file as they must in memory
HEADER_BYTES_V2 = 4

CLIENTS = pa.schema(
    [
        ("client", pa.int64()),  # identity.client_keys
        ("partition", pa.int64()),  # hash of the landing partition that it was last read from
        ("landed_at", pa.int64()),  # latest landing time of its pushes
        ("terminating", pa.bool_()),  # its last push was a terminating one
        ("evicted", pa.bool_()),  # its other rows are gone
        ("temporalities", pa.int8()),  # bits: 1 DELTA, 2 CUMULATIVE have been sent
        ("last_temporality", pa.int8()),  # the same bits for its last push that had any
        ("last_time", pa.int64()),  # latest point time of its last push with points
        ("last_landed_at", pa.int64()),  # landing time of that push
        ("heartbeat_at", pa.int64()),  # latest landing time of its pushes without points, else 0
        ("delta_time", pa.int64()),  # latest point time of its DELTA pushes
        ("tombstone_time", pa.int64()),  # last_time when the client was evicted, else 0
        ("tombstone_until", pa.int64()),  # landing time up to which that counts
    ]
)
RECENT_PUSHES = pa.schema(
    [
        ("client", pa.int64()),
        ("digest", pa.int64()),  # xxh3-64 of the decompressed bytes
        ("push", pa.int64()),  # hash of source, cluster_id, topic, partition and offset
        ("last_time", pa.int64()),
    ]
)
LOST_INTERVALS = pa.schema([("client", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])
NUMBERS = pa.schema(
    [
        ("client", pa.int64()),
        ("series", pa.int64()),  # series_id
        ("start", pa.int64()),
        ("time", pa.int64()),
        ("value", pa.int64()),  # the int64, or the bits of the double
        ("is_int", pa.bool_()),
        ("delta_since", pa.bool_()),  # DELTA points have passed since (C9)
        ("is_delta", pa.bool_()),  # it was a lifetime total sent as DELTA (C9)
    ]
)
DISTRIBUTIONS = pa.schema(
    [
        ("client", pa.int64()),
        ("series", pa.int64()),
        ("start", pa.int64()),
        ("time", pa.int64()),
        ("delta_since", pa.bool_()),
        ("is_delta", pa.bool_()),
        ("kind", pa.int8()),  # decoded.Kind
        ("count", pa.int64()),
        ("sum", pa.float64()),  # NULL: none
        ("scale", pa.int32()),
        ("zero_count", pa.int64()),
        ("zero_threshold", pa.float64()),
        ("positive_offset", pa.int32()),
        ("negative_offset", pa.int32()),
        ("bounds", pa.list_(pa.float64())),
        ("positive", pa.list_(pa.int64())),  # bucket_counts of a Histogram
        ("negative", pa.list_(pa.int64())),
    ]
)


class UnknownStateVersionError(ValueError):
    """The state was written by a version of this package with another layout."""


class Heard(NamedTuple):
    """What eviction looks at: a row per client, sorted by client; the columns are those of `CLIENTS`."""

    client: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]
    landed_at: npt.NDArray[np.int64]
    terminating: npt.NDArray[np.bool_]
    evicted: npt.NDArray[np.bool_]

    @staticmethod
    def of(clients: pa.Table) -> Heard:
        return Heard._make(column(clients, name) for name in Heard._fields)

    @property
    def forgotten(self) -> npt.NDArray[np.bool_]:
        """Rows as of a client never heard of: how a change says that the client has no state any more."""
        never: npt.NDArray[np.bool_] = (self.landed_at == 0) & (self.partition == 0)
        return never


class ClientStates(Protocol):
    """All clients of a shard, however they are kept."""

    def rows_of(self, clients: npt.NDArray[np.int64]) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""

    def heard(self) -> Heard:
        """Every client."""

    def merge(self, newer: ShardState) -> Self:
        """This state with the clients of `newer` replaced by their rows there; those forgotten there are gone."""


@dataclass(frozen=True)
class ShardState:
    """State of all clients of one shard; see the module's table. Every table is sorted by client."""

    clients: pa.Table
    recent_pushes: pa.Table
    lost_intervals: pa.Table
    numbers: pa.Table
    distributions: pa.Table

    @staticmethod
    def empty() -> ShardState:
        """The state before the first push."""
        return ShardState(**{name: schema.empty_table() for name, schema in SCHEMAS.items()})

    @staticmethod
    def never_heard(clients: npt.NDArray[np.int64]) -> ShardState:
        """The change that makes these clients forgotten."""
        columns = [np.zeros(len(clients), field.type.to_pandas_dtype()) for field in CLIENTS]
        columns[0] = clients
        return replace(ShardState.empty(), clients=pa.table([pa.array(values) for values in columns], CLIENTS))

    def rows_of(self, clients: npt.NDArray[np.int64]) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""
        return self._filter(clients, keep=True)

    def without(self, clients: npt.NDArray[np.int64]) -> ShardState:
        """The rows of all other clients."""
        return self._filter(clients, keep=False)

    def heard(self) -> Heard:
        """Every client."""
        return Heard.of(self.clients)

    def merge(self, newer: ShardState) -> ShardState:
        """This state with the clients of `newer` replaced by their rows there; those forgotten there are gone."""
        told = newer.heard()
        kept = newer.without(told.client[told.forgotten]) if told.forgotten.any() else newer
        return ShardState.joined([self.without(told.client), kept])

    def changed_by(self, newer: ShardState) -> ShardState:
        """This change and a later one as one change: as `merge`, but what is forgotten stays to be told."""
        return ShardState.joined([self.without(newer.heard().client), newer])

    @staticmethod
    def joined(states: Sequence[ShardState]) -> ShardState:
        """All rows of states that share no client."""
        return ShardState(**{name: sorted_table(name, [getattr(state, name) for state in states]) for name in SCHEMAS})

    def to_bytes(self) -> bytes:
        """The state as one blob, as `write_tables` leaves it in a file."""
        sink = pa.BufferOutputStream()
        write_tables(sink, ((name, getattr(self, name)) for name in SCHEMAS))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes | pa.Buffer) -> ShardState:
        """Read `to_bytes`. Columns stay views of `data` where its rows are sorted.

        Raises:
            UnknownStateVersionError: written in a layout that this package doesn't read.
        """
        blob = pa.py_buffer(data)
        version = int.from_bytes(blob[:HEADER_BYTES_V2].to_pybytes(), "little")
        if not 1 <= version <= VERSION:
            raise UnknownStateVersionError(
                f"shard state has layout version {version}; this package reads 1 to {VERSION}"
            )
        source = pa.BufferReader(blob[HEADER_BYTES if version == VERSION else HEADER_BYTES_V2 :])
        tables = {name: _sorted(pa.ipc.open_stream(source).read_all()) for name in SCHEMAS}
        if version == 1:
            tables |= {name: _from_v1(tables[name]) for name in ("numbers", "distributions")}
        return ShardState(**tables)

    def _filter(self, clients: npt.NDArray[np.int64], keep: bool) -> ShardState:
        def part(table: pa.Table) -> pa.Table:
            mask = np.isin(column(table, "client"), clients)
            return table.filter(pa.array(mask if keep else ~mask))

        return ShardState(**{field.name: part(getattr(self, field.name)) for field in fields(self)})


SCHEMAS = {
    "clients": CLIENTS,
    "recent_pushes": RECENT_PUSHES,
    "lost_intervals": LOST_INTERVALS,
    "numbers": NUMBERS,
    "distributions": DISTRIBUTIONS,
}


def write_tables(sink: pa.NativeFile, tables: Iterable[tuple[str, pa.Table]]) -> None:
    """A version number, then each table of `SCHEMAS` as an Arrow IPC stream; one table is in memory at a time."""
    sink.write(VERSION.to_bytes(HEADER_BYTES, "little"))
    for name, table in tables:
        with pa.ipc.new_stream(sink, SCHEMAS[name]) as stream:
            stream.write_table(table)
        del table  # before the next one is made


def sorted_table(name: str, parts: Sequence[pa.Table]) -> pa.Table:
    """The table of that name with the rows of all parts, by client."""
    return _sorted(pa.concat_tables([SCHEMAS[name].empty_table(), *parts]))


def _from_v1(table: pa.Table) -> pa.Table:
    """Version 1 marked a total sent as DELTA by `delta_since`: read so, it is never taken for more than it was."""
    place = table.schema.get_field_index("delta_since") + 1
    return table.add_column(place, pa.field("is_delta", pa.bool_()), pa.array(np.zeros(table.num_rows, np.bool_)))


def _sorted(table: pa.Table) -> pa.Table:
    """By client; the rows of a client keep their order, which is that of their times."""
    client = column(table, "client")
    if (client[1:] >= client[:-1]).all():
        return table.combine_chunks()
    return table.take(pa.array(np.argsort(client, kind="stable"))).combine_chunks()


def column(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """A primitive column as a NumPy array; a copy only where Arrow's bits aren't NumPy's (bool)."""
    array = table[name].combine_chunks()
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow is untyped
