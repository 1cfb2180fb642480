"""The pushes of a step as one sequence per client, in order of offset, headed by the client's state before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys_of, column_hashes, mix
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, Objects, UInt64s
from kafka_telemetry_lake.udfs.lifecycle.clients import (
    PLACE,
    Clients,
    Partition,
    by_offset,
    is_set,
    place_starts,
    texts_of,
)
from kafka_telemetry_lake.udfs.lifecycle.rows import TERMINATED, TEXTS
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from kafka_telemetry_lake.udfs.rows import PUSH_KEY

# Columns that are read from table `pushes`: all but the payload and what belongs to it.
LIFECYCLE_IN = pa.schema(
    [
        *PUSH_KEY,
        *((name, pa.string()) for name in ("client_instance_id", *TEXTS)),
        ("client_port", pa.int32()),
        ("broker_id", pa.int32()),
        ("push_interval_ms", pa.int32()),
        ("terminating", pa.bool_()),
    ]
)
CLOCK = "clock"  # the column of `with_clocks`, µs
Clocks = dict[Partition, int]  # the greatest landing time seen in each partition, µs


@dataclass(frozen=True)
class Layout:
    """The order of entries: client after client, and for each its head, then its pushes by offset.

    A head is an entry without a push. It carries the client's state before the step.
    """

    slots: Int64s  # per client: its slot in `Clients`
    is_new: Bools  # per client: it had no state before the step
    ends: Int64s  # per client: its last entry
    order: Int64s  # per entry: its row where all heads come first, then all pushes
    client: Int64s  # per entry: row of `slots`
    slot: Int64s  # per entry: slot of its client
    is_head: Bools  # per entry
    push_row: Int64s  # per entry: row of the pushes, negative for a head

    def column(self, of_clients: Int64s, of_pushes: Int64s) -> Int64s:
        """One value per entry: a head takes its client's value (by slot), a push its own."""
        return np.concatenate([of_clients[self.slots], of_pushes])[self.order]

    def latest(self, which: Bools) -> Int64s:
        """For each entry, the latest entry of its client up to it where `which` is true; else the client's head."""
        latest: Int64s = np.maximum.accumulate(np.where(which | self.is_head, np.arange(len(which)), 0))
        return latest


@dataclass(frozen=True)
class PushSequences:
    """Columns with one row per entry of `layout`, except where noted. Times are µs; at a head they are the state's."""

    layout: Layout
    pushes: pa.Table  # columns of `LIFECYCLE_IN`, by partition and offset
    broker_bits: Int64s  # per push: `Clients.broker_bits`
    landed: Int64s
    clock: Int64s  # the partition's clock at this push
    partition: Int64s  # code
    offset: Int64s
    broker: Int64s  # -1: unknown
    port: Int64s  # -1: unknown
    origin: Int64s  # hash of client id, software, principal and address
    connection: Int64s  # hash of origin, broker and port
    interval: Int64s  # push interval, ms; 0: unknown (L4)
    terminating: Bools
    latest_landing: Int64s  # of the client, up to this entry
    is_late: Bools  # L8: landed before a push of the same client that was processed earlier; changes no state
    in_order: Bools  # a push that isn't late
    previous: Int64s  # the client's entry in order before this one, or its head
    last: Int64s  # per client: its last entry in order, or its head
    state_before: Int64s  # the client's state as of `previous`
    is_first: Bools  # the client's first push of all
    follows: Bools  # a push in order that isn't the first
    gap: Int64s  # time since the client's latest landing up to `previous`


def with_clocks(pushes: pa.Table, clocks: Clocks) -> pa.Table:
    """Pushes by partition and offset, in one chunk, with a column more: the clock of its partition at each push (L2).

    Args:
        pushes: columns of `LIFECYCLE_IN`, any order. Those without a client instance are left out (L1).
        clocks: moved on to the last push of each partition.
    """
    pushes = _named(pushes.filter(pushes["client_instance_id"].is_valid()))
    pushes = by_offset(pushes).combine_chunks()
    places, landed = pushes.select(PLACE), _landed(pushes)
    starts = place_starts(places)
    clock = np.zeros(len(landed), np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(landed)], strict=False):
        source, topic, partition = (place[start].as_py() for place in places.columns)
        clock[start:end] = np.maximum.accumulate(landed[start:end]).clip(clocks.get((source, topic, partition), 0))
        clocks[source, topic, partition] = int(clock[end - 1])
    return pushes.append_column(CLOCK, pa.array(clock))


def clocks_until(clocks: Clocks, now: int | None) -> Clocks:
    """The clocks where all pushes until a time, µs, are known to have been read; None: no such time is known."""
    return clocks if now is None else Clocks({place: max(clock, now) for place, clock in clocks.items()})


def read_pushes(clients: Clients, pushes: pa.Table) -> PushSequences:
    """Arrange the pushes of a step by client.

    Args:
        clients: new clients are added.
        pushes: some of those of `with_clocks`, one chunk; at least one row.
    """
    layout = _layout(clients, pushes)
    landed_at, clock = _landed(pushes), pushes[CLOCK].to_numpy()
    partition = clients.codes(pushes.select(PLACE))
    broker, port = _numbers(pushes, "broker_id", -1), _numbers(pushes, "client_port", -1)

    def column(name: str, of_pushes: Int64s) -> Int64s:
        return layout.column(clients[name], of_pushes)

    landed = column("last_seen", landed_at)
    state = column("state", _numbers(pushes, "terminating", 0) * TERMINATED)
    latest_landing = _running_max(landed, layout.client)
    is_late = ~layout.is_head & (landed < np.append(0, latest_landing[:-1]))
    in_order = ~layout.is_head & ~is_late
    origin = np.zeros(len(landed_at), np.uint64)
    for name in ("client_id", "client_software_name", "principal", "client_address"):
        origin = mix(origin, _latest_hashes(clients, layout, pushes, name, in_order))
    connection = mix(mix(origin, broker.astype(np.uint64)), port.astype(np.uint64)).view(np.int64)
    interval = column("push_interval_ms", _numbers(pushes, "push_interval_ms", 0))
    latest_in_order = layout.latest(in_order)
    previous = np.append(0, latest_in_order[:-1])
    is_first = in_order & layout.is_head[previous] & layout.is_new[layout.client]
    return PushSequences(
        layout=layout,
        pushes=pushes,
        broker_bits=clients.broker_bits(broker),
        landed=landed,
        clock=column("last_seen", clock),
        partition=column("partition", partition),
        offset=column("offset", _numbers(pushes, "offset", -1)),
        broker=column("broker_id", broker),
        port=column("client_port", port),
        origin=column("origin", origin.view(np.int64)),
        connection=column("connection", connection),
        # L4: a push without an interval has the client's last one.
        interval=interval[layout.latest(in_order & (interval > 0))],
        terminating=~layout.is_head & (state == TERMINATED),
        latest_landing=latest_landing,
        is_late=is_late,
        in_order=in_order,
        previous=previous,
        last=latest_in_order[layout.ends],
        state_before=state[previous],
        is_first=is_first,
        follows=in_order & ~is_first,
        gap=landed - latest_landing[previous],
    )


def _layout(clients: Clients, pushes: pa.Table) -> Layout:
    """The layout of these pushes; adds the clients that have no slot yet."""
    keys, first_rows, client_of_push = np.unique(client_keys_of(pushes), return_index=True, return_inverse=True)
    slots = clients.slots(keys)
    is_new = slots < 0
    slots[is_new] = clients.add(keys[is_new])
    for name in ("cluster_id", "client_instance_id"):
        clients.objects[name][slots[is_new]] = texts_of(pushes[name])[first_rows[is_new]]
    heads = len(keys)
    client = np.concatenate([np.arange(heads), client_of_push.reshape(-1)])
    order = np.argsort(client, kind="stable")
    client = client[order]
    ends = np.append(np.flatnonzero(np.diff(client)), len(client) - 1)
    return Layout(slots, is_new, ends, order, client, slots[client], order < heads, order - heads)


def _landed(pushes: pa.Table) -> Int64s:
    landed: Int64s = np.maximum(pushes["landed_at"].cast(pa.int64()).to_numpy(), 0)
    return landed


def _numbers(pushes: pa.Table, name: str, missing: int) -> Int64s:
    column: Int64s = pushes[name].cast(pa.int64()).fill_null(missing).to_numpy()
    return column


def _named(pushes: pa.Table) -> pa.Table:
    """The pushes without the software of connections that name none (L10), for which brokers have `unknown`."""
    unnamed = pc.fill_null(pc.equal(pushes["client_software_name"], "unknown"), False)
    for name in ("client_software_name", "client_software_version"):
        place = pushes.schema.get_field_index(name)
        named = pc.if_else(unnamed, pa.scalar(None, pa.string()), pushes[name])
        pushes = pushes.set_column(place, pushes.field(name), named)
    return pushes


def _latest_hashes(clients: Clients, layout: Layout, pushes: pa.Table, name: str, in_order: Bools) -> UInt64s:
    """The hash of a text of each push; of one without, that of its client's last push in order that has one (L11)."""
    stored = pa.chunked_array([pa.array(clients.objects[name][layout.slots], pa.string())])
    sent = pushes[name]
    says = np.concatenate([np.ones(len(stored), np.bool_), sent.is_valid().to_numpy()])[layout.order]
    hashes = np.concatenate([_hashes(stored), _hashes(sent)])
    hashes[layout.order] = hashes[layout.order][layout.latest(says & in_order)]
    return hashes[len(stored) :]


def _hashes(texts: pa.ChunkedArray) -> UInt64s:
    return column_hashes(texts.combine_chunks().dictionary_encode())


def _running_max(values: Int64s, client: Int64s) -> Int64s:
    """The greatest value so far within each client's entries; `client` ascends."""
    distinct, rank = np.unique(values, return_inverse=True)
    size = len(distinct)
    greatest = np.maximum.accumulate(client * size + rank.reshape(-1))
    return distinct[greatest - client * size]


FREE_AFTER_US = DEFAULT_LIMITS.evict_after_s * 1_000_000
"""So long after its last push a client is anybody's, as in `conversion.principals`."""


def own_pushes(clients: Clients, pushes: pa.Table) -> pa.Table:
    """The pushes (L1) without those of another principal than their client's; one that isn't known is no other.

    Args:
        clients: state after the step before.
        pushes: columns client_instance_id, cluster_id, principal and landed_at, in the order of their offsets.
    """
    if pushes["principal"].null_count == pushes.num_rows:
        return pushes
    principal = texts_of(pushes["principal"])
    named = np.flatnonzero(is_set(principal))
    keys, client = np.unique(client_keys_of(pushes), return_inverse=True)
    client = client.reshape(-1)
    slots = clients.slots(keys)
    known = slots >= 0
    owner, last = np.full(len(keys), None, object), np.zeros(len(keys), np.int64)
    owner[known] = clients.objects["principal"][slots[known]]
    last[known] = clients["last_seen"][slots[known]]
    anyone = owner.copy()  # the owner, else some principal of these pushes
    missing = named[~is_set(anyone[client[named]])]
    anyone[client[missing]] = principal[missing]
    disputed = np.zeros(len(keys), np.bool_)
    disputed[client[named[principal[named] != anyone[client[named]]]]] = True
    if not disputed.any():
        return pushes
    foreign = _foreign(np.flatnonzero(disputed[client]), client, principal, pushes["landed_at"], owner, last)
    return pushes.filter(pa.array(~foreign))


def _foreign(
    rows: Int64s,
    client: Int64s,
    principal: Objects,
    landed_at: pa.ChunkedArray,
    owner: Objects,
    last: Int64s,
) -> Bools:
    """Which of these rows are of another principal. Pushes of the past (L8) make nobody the owner."""
    landed = landed_at.cast(pa.int64()).to_numpy()
    foreign = np.zeros(len(client), np.bool_)
    for row in rows.tolist():
        one = client[row]
        is_free = owner[one] is None or landed[row] - last[one] > FREE_AFTER_US
        if is_free and principal[row] is not None and landed[row] >= last[one]:
            owner[one] = principal[row]
        foreign[row] = None not in (principal[row], owner[one]) and principal[row] != owner[one]
        if not foreign[row]:
            last[one] = max(last[one], landed[row])
    return foreign
