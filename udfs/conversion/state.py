"""The state of a shard between micro-batches: six tables, every row keyed by its client.

| table | a row is | grows with |
|---|---|---|
| clients | one client instance; after eviction it is C12's tombstone | clients of the last month |
| recent_pushes | digest of one push (D2) | clients x pushes of the last hour |
| lost_intervals | an interval that no push has covered yet (D3) | losses of the last hour |
| numbers | last point of a cumulative sum: 41 bytes | cumulative series |
| distributions | last point of a cumulative histogram | cumulative series |
| budgets | what a principal has used in an hour; its key is in column client | principals |

So DELTA clients cost nothing per series. Times are nanoseconds since 1970 as the points carry them, landing times
microseconds; 0 reads as none. Any subset of clients can be taken out (`rows_of`) and put back (`merge`). A change of
state is a `ShardState` too: all rows of the clients that changed. docs/state.md describes the bytes and the files.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import xxhash

from kafka_telemetry_lake.udfs.errors import check_format
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, column, one_chunk
from kafka_telemetry_lake.udfs.kernels.ragged import Ragged, gathered

FORMAT = 1  # every change of the layout gets a new number; another one is refused
# Four bytes of the number, then four that mark a state: eight keep Arrow's buffers aligned in the file.
HEADER_BYTES = 8
MARK = b"KTLS"
REBUILT = (
    "stop the job and run `telemetry-lake replay --rebuild-state`, which makes it from table pushes again, or use the "
    "build that wrote it"
)
CHECKSUM_BYTES = 8  # at the end: xxh3-64 of all bytes before it, then of the file's name

CLIENTS = pa.schema(
    [
        ("client", pa.int64()),  # identity.client_keys
        ("partition", pa.int64()),  # hash of the landing partition of its last push
        ("landed_at", pa.int64()),  # latest landing time of its pushes
        ("terminating", pa.bool_()),  # its last push was a terminating one
        ("evicted", pa.bool_()),  # its other rows have been removed
        ("temporalities", pa.int8()),  # bits: 1 DELTA, 2 CUMULATIVE have been sent
        ("last_temporality", pa.int8()),  # the same bits for its last push that had any
        ("last_time", pa.int64()),  # latest point time of its last push with points
        ("last_landed_at", pa.int64()),  # landing time of that push
        ("heartbeat_at", pa.int64()),  # latest landing time of its pushes without points, else 0
        ("delta_time", pa.int64()),  # latest point time of its DELTA pushes
        ("tombstone_time", pa.int64()),  # last_time when the client was evicted, else 0
        ("tombstone_until", pa.int64()),  # landing time up to which the tombstone counts
        ("principal", pa.int64()),  # xxh3-64 of the principal that it belongs to, 0: unknown
        ("place", pa.int32()),  # sharding.places_of its id, 0: it is a budget
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
        ("series", pa.int64()),  # Points.series
        ("start", pa.int64()),
        ("time", pa.int64()),
        ("value", pa.int64()),  # the int64, or the bits of the double
        ("is_int", pa.bool_()),
        ("delta_since", pa.bool_()),  # DELTA points have come since (C9)
        ("is_delta", pa.bool_()),  # it was a lifetime total sent as DELTA (C9)
        ("ahead", pa.bool_()),  # its clock was ahead of its landing (C13)
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
        ("ahead", pa.bool_()),
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
BUDGETS = pa.schema(
    [
        ("client", pa.int64()),  # principals.budget_keys; table clients has a row of it, for its age
        ("hour", pa.int64()),  # of landing, since 1970
        ("series", pa.int64()),  # new ones
        ("text_bytes", pa.int64()),  # of their names and attributes
        ("landed_bytes", pa.int64()),
    ]
)


class DamagedStateError(ValueError):
    """The bytes are not those that were written."""


class ClientColumns(NamedTuple):
    """The columns of `CLIENTS` that are read for all clients: one row per client, sorted by client."""

    client: Int64s
    partition: Int64s
    landed_at: Int64s
    terminating: Bools
    evicted: Bools
    principal: Int64s

    @staticmethod
    def of(clients: pa.Table) -> ClientColumns:
        return ClientColumns._make(column(clients, name) for name in ClientColumns._fields)

    @property
    def forgotten(self) -> Bools:
        """Rows of zeros: in a change they say that the client has no state any more."""
        forgotten: Bools = (self.landed_at == 0) & (self.partition == 0)
        return forgotten


class ClientStates(Protocol):
    """The state of all clients of a shard, in memory or in files."""

    def rows_of(self, clients: Int64s) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""

    def client_columns(self) -> ClientColumns:
        """One row per client."""

    def merge(self, newer: ShardState) -> Self:
        """This state with the clients of `newer` replaced by their rows there; clients forgotten there are removed."""


@dataclass(frozen=True)
class ShardState:
    """State of all clients of one shard; see the module's table. Every table is sorted by client."""

    clients: pa.Table
    recent_pushes: pa.Table
    lost_intervals: pa.Table
    numbers: pa.Table
    distributions: pa.Table
    budgets: pa.Table = field(default_factory=BUDGETS.empty_table)

    @staticmethod
    def empty() -> ShardState:
        """The state before the first push."""
        return ShardState(**EMPTY)

    @staticmethod
    def forgotten(clients: Int64s) -> ShardState:
        """The change that removes these clients."""
        columns = [np.zeros(len(clients), field.type.to_pandas_dtype()) for field in CLIENTS]
        columns[0] = clients
        return replace(ShardState.empty(), clients=pa.table([pa.array(values) for values in columns], CLIENTS))

    def rows_of(self, clients: Int64s) -> ShardState:
        """The rows of these clients (`identity.client_keys`)."""
        return self._filter(clients, keep=True)

    def without(self, clients: Int64s) -> ShardState:
        """The rows of all other clients."""
        return self._filter(clients, keep=False)

    def client_columns(self) -> ClientColumns:
        """One row per client."""
        return ClientColumns.of(self.clients)

    def merge(self, newer: ShardState) -> ShardState:
        """This state with the clients of `newer` replaced by their rows there; clients forgotten there are removed."""
        changed = newer.client_columns()
        remaining = newer.without(changed.client[changed.forgotten]) if changed.forgotten.any() else newer
        return ShardState.joined([self.without(changed.client), remaining])

    @staticmethod
    def joined(states: Sequence[ShardState]) -> ShardState:
        """All rows of states that share no client."""
        return ShardState(
            **{name: joined(name, [(getattr(state, name), None) for state in states]) for name in SCHEMAS}
        )

    @property
    def file_bytes(self) -> int:
        """The length of `to_bytes`, without making them."""
        counted = pa.MockOutputStream()
        for each, schema in SCHEMAS.items():
            with pa.ipc.new_stream(counted, schema) as stream:
                stream.write_table(getattr(self, each))
        return HEADER_BYTES + int(counted.size()) + CHECKSUM_BYTES

    def to_bytes(self, name: str = "") -> bytes:
        """The state as one blob, as `write_tables` leaves it in a file of that name."""
        sink = pa.BufferOutputStream()
        write_tables(sink, ((each, getattr(self, each)) for each in SCHEMAS), name)
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes | pa.Buffer, name: str = "") -> ShardState:
        """Read `to_bytes`. Columns stay views of `data` where its rows are sorted.

        Raises:
            OtherFormatError: it has another format.
            DamagedStateError: not what was written under that name.
        """
        blob = pa.py_buffer(data)
        _check(blob, name)
        source = pa.BufferReader(blob[HEADER_BYTES:])
        try:
            tables = {each: pa.ipc.open_stream(source).read_all() for each in SCHEMAS}
            return ShardState(**{each: _sorted(table) for each, table in tables.items()})
        except (pa.ArrowException, KeyError) as error:
            raise DamagedStateError("Arrow can't read it") from error

    def _filter(self, clients: Int64s, keep: bool) -> ShardState:
        def part(table: pa.Table) -> pa.Table:
            owner = column(table, "client")
            heads = np.flatnonzero(np.diff(owner, prepend=~owner[:1]))  # rows of one client are neighbours
            mask = np.isin(owner[heads], clients, invert=not keep)
            if mask.all():
                return table
            if not mask.any():
                return table.slice(0, 0)
            return taken(table, np.flatnonzero(np.repeat(mask, np.diff(heads, append=len(owner)))))

        return ShardState(**{field.name: part(getattr(self, field.name)) for field in fields(self)})


SCHEMAS = {
    "clients": CLIENTS,
    "recent_pushes": RECENT_PUSHES,
    "lost_intervals": LOST_INTERVALS,
    "numbers": NUMBERS,
    "distributions": DISTRIBUTIONS,
    "budgets": BUDGETS,
}
EMPTY = {name: schema.empty_table() for name, schema in SCHEMAS.items()}


class Sink(Protocol):
    """A file, or what takes its place."""

    def write(self, data: Any, /) -> int:
        """Write bytes, and return how many."""


def write_tables(sink: Sink, tables: Iterable[tuple[str, pa.Table]], name: str) -> None:
    """A header, each table of `SCHEMAS` as an Arrow IPC stream, a checksum; one table is in memory at a time.

    Args:
        sink: gets the bytes.
        tables: in the order of `SCHEMAS`.
        name: the file's name; the file can't be read under another one.
    """
    summed = _ChecksumSink(sink)
    summed.write(FORMAT.to_bytes(HEADER_BYTES // 2, "little") + MARK)
    for each, table in tables:
        with pa.ipc.new_stream(pa.PythonFile(summed, mode="w"), SCHEMAS[each]) as stream:
            stream.write_table(table)
        del table  # before the next one is made
    summed.digest.update(name.encode())
    sink.write(summed.digest.digest())


class _ChecksumSink(io.RawIOBase):
    """A sink that passes bytes on and computes their checksum."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.digest = xxhash.xxh3_64()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return int(self._sink.write(data))


def _check(blob: pa.Buffer, name: str) -> None:
    """Check mark, format and checksum of a state under this name. Raises as `ShardState.from_bytes` does."""
    head = blob[:HEADER_BYTES].to_pybytes()
    number, mark = int.from_bytes(head[: HEADER_BYTES // 2], "little"), head[HEADER_BYTES // 2 :]
    if mark != MARK:
        raise DamagedStateError("its header is damaged")
    check_format(f"state file {name}", number, FORMAT, REBUILT)
    digest = xxhash.xxh3_64(memoryview(blob)[:-CHECKSUM_BYTES])
    digest.update(name.encode())
    if digest.digest() != blob[-CHECKSUM_BYTES:].to_pybytes():
        raise DamagedStateError("its checksum is wrong")


def joined(name: str, parts: Sequence[tuple[pa.Table, Int64s | None]]) -> pa.Table:
    """The table of that name with these rows of each part, None: all, by client; rows are copied at most once."""
    parts = [(part, rows) for part, rows in parts if (part.num_rows if rows is None else len(rows))]
    if len(parts) == 1 and parts[0][1] is None:
        return _sorted(parts[0][0])
    if not parts:
        return EMPTY[name]
    rows_of = [np.arange(part.num_rows) if rows is None else rows for part, rows in parts]
    client = np.concatenate([column(part, "client")[rows] for (part, _), rows in zip(parts, rows_of, strict=True)])
    order = np.argsort(client, kind="stable")
    index = pa.array(order if len(parts) > 1 else rows_of[0][order])
    ends = np.cumsum([len(rows) for rows in rows_of])

    def of_part(number: int) -> Int64s:
        """The row of the part for each row of the result, or -1."""
        result = np.full(len(client), -1)
        result[ends[number] - len(rows_of[number]) : ends[number]] = rows_of[number]
        return result[order]

    places = [of_part(number) for number in range(len(parts))]
    columns = []
    for each in SCHEMAS[name]:
        arrays = [one_chunk(part[each.name]) for part, _ in parts]
        if pa.types.is_list(each.type):
            lists = gathered(*((Ragged.of(array), rows) for array, rows in zip(arrays, places, strict=True)))
            columns.append(lists.to_arrow(each.type))
        else:
            if len(parts) > 1:  # first what is wanted: a part may be the whole shard
                arrays = [array.take(pa.array(rows)) for array, rows in zip(arrays, rows_of, strict=True)]
            columns.append(pa.concat_arrays(arrays).take(index))
    return pa.table(columns, SCHEMAS[name])


def _sorted(table: pa.Table) -> pa.Table:
    """Sort by client; rows of one client stay in order, which is that of their times."""
    client = column(table, "client")
    if (client[1:] >= client[:-1]).all():
        return table.combine_chunks()
    return taken(table, np.argsort(client, kind="stable"))


def taken(table: pa.Table, rows: Int64s) -> pa.Table:
    """Some rows, by their numbers, of a table of `SCHEMAS`; its lists are never NULL."""
    index = pa.array(rows)
    arrays = [one_chunk(chunks) for chunks in table.columns]
    columns = [
        gathered((Ragged.of(array), rows)).to_arrow(array.type) if pa.types.is_list(array.type) else array.take(index)
        for array in arrays
    ]
    return pa.table(columns, table.schema)
