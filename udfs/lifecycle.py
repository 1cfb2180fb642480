"""The life of client instances, judged by where and when their pushes landed: who is there, left, fell silent, is back.

A client is judged in the order of its pushes' offsets, by landing times (µs) that no client's clock can bend. The clock
of a partition is the greatest landing time up to an offset: a client is silent once its partition's clock has passed
its deadline. So the events follow from the records alone, however they are cut into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.identity import client_keys, column_hashes, mix
from udfs.lifecycle_events import Event, Found
from udfs.lifecycle_rows import ACTIVE, SILENT, TERMINATED, TEXTS, UNSUBSCRIBED
from udfs.lifecycle_silence import NEVER, silences, thresholds
from udfs.lifecycle_state import Clients, objects_of, texts_of, told_of
from udfs.rows import PUSH_KEY
from udfs.subscriptions import CLIENTS as ATTRIBUTES

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# What is read of table `pushes`: no payload.
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
Clocks = dict[int, int]
# Between a client's timer and Kafka's record time lie network, broker and the receiver's queue.
TOLERANCE_MS = 100
# The first push after GetTelemetrySubscriptions comes after 0.5 to 1.5 intervals.
LONGEST_FIRST_INTERVAL = 1.5
SAME_PACE = 0.75  # of the interval: two pushes that are closer don't come from one timer


@dataclass(frozen=True)
class Step:
    """What a step found: the clients that changed, by slot, and the events in order."""

    changed: Int64s
    events: Found


def advance(clients: Clients, clocks: Clocks, pushes: pa.Table, versions: pa.Table, step: int) -> Step:
    """Take pushes into the clients' state, and find who has fallen silent by the clocks after them.

    Args:
        clients, clocks: state after the step before; changed in place. Clocks are by partition code, µs.
        pushes: columns of `LIFECYCLE_IN`, any order; offsets of a partition lie after those of earlier steps.
        versions: rows of table `subscriptions`; may be empty.
        step: number of the step.
    """
    pushes = pushes.filter(pushes["client_instance_id"].is_valid())
    found = Found.none()
    touched = np.zeros(0, np.int64)
    if pushes.num_rows:
        pushes = pushes.sort_by([(name, "ascending") for name in ("source", "topic", "partition", "offset")])
        chain = _Chain(clients, clocks, pushes.combine_chunks())
        found = chain.judge(versions)
        touched = chain.touched
        chain.store(step)
    swept, silent = sweep(clients, clocks, versions, step)
    return Step(np.union1d(touched, swept), Found.all_of([found, silent]))


def sweep(clients: Clients, clocks: Clocks, versions: pa.Table, step: int) -> tuple[Int64s, Found]:
    """Find the clients whose deadline their partition's clock has passed; gives their slots and events."""
    size = max(clocks, default=-1) + 1
    by_code = np.array([clocks.get(code, 0) for code in range(size)] + [0], np.int64)
    clock = by_code[clients["partition"]]
    state = clients["state"]
    due = np.flatnonzero((clock > clients["deadline"]) & (state != TERMINATED))
    if versions.num_rows:  # who isn't asked may be asked again by now
        due = np.union1d(due, np.flatnonzero((state == UNSUBSCRIBED) & (clients["deadline"] == NEVER)))
    if len(due) == 0:
        return due, Found.none()
    silent_at, unsubscribed_at = silences(
        attributes_of(clients, due),
        clients.objects["cluster_id"][due].tolist(),
        clients["last_seen"][due],
        clients["push_interval_ms"][due],
        versions,
    )
    silent = clock[due] > silent_at
    unsubscribed = ~silent & (clock[due] > unsubscribed_at)
    before = state[due].copy(), clients["deadline"][due].copy()
    awaited_until = np.where(unsubscribed, silent_at, np.minimum(silent_at, unsubscribed_at))
    clients["deadline"][due] = np.where(silent, NEVER, awaited_until)
    clients["state"][due] = np.select([silent, unsubscribed], [SILENT, UNSUBSCRIBED], ACTIVE)
    clients["silent_at"][due] = np.where(silent, silent_at, 0)
    changed = due[(before[0] != clients["state"][due]) | (before[1] != clients["deadline"][due])]
    clients["step"][changed] = step
    gone = due[silent]
    return changed, Found.of(
        Event.WENT_SILENT, gone, silent_at[silent], clients["last_seen"][gone], clients["partition"][gone],
        clients["offset"][gone], clients["push_interval_ms"][gone], thresholds(clients["push_interval_ms"][gone]),
    )  # fmt: skip


class _Chain:
    """A step's pushes, client by client in the order of offsets; at each client's head, its state before them."""

    def __init__(self, clients: Clients, clocks: Clocks, pushes: pa.Table) -> None:
        self.clients, self.pushes = clients, pushes
        ids = [pushes[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
        keys, first, inverse = np.unique(client_keys(*ids), return_index=True, return_inverse=True)
        slots = clients.slots(keys)
        self.is_new = slots < 0
        slots[self.is_new] = clients.add(keys[self.is_new])
        for name in ("cluster_id", "client_instance_id"):
            clients.objects[name][slots[self.is_new]] = texts_of(pushes[name])[first[self.is_new]]
        self.touched = slots
        heads, rows = len(keys), pushes.num_rows
        owner = np.concatenate([np.arange(heads), inverse.reshape(-1)])
        self.order = np.argsort(owner, kind="stable")
        self.owner, self.head, self.row = owner[self.order], self.order < heads, self.order - heads
        self.slot = slots[self.owner]
        self.ends = np.append(np.flatnonzero(np.diff(self.owner)), heads + rows - 1)

        landed = np.maximum(pushes["landed_at"].cast(pa.int64()).to_numpy(), 0)
        partition, clock = _follow(clients, clocks, pushes, landed)
        broker, port = self._number("broker_id", -1), self._number("client_port", -1)
        origin = _hash(pushes, ("client_id", "client_software_name", "principal", "client_address"))
        connection = mix(mix(origin, broker.astype(np.uint64)), port.astype(np.uint64)).view(np.int64)
        self.broker_bits = clients.broker_bits(broker)
        self.landed = self._column("last_seen", landed)
        self.clock = self._column("last_seen", clock)
        self.partition = self._column("partition", partition)
        self.offset = self._column("offset", self._number("offset", -1))
        self.broker, self.port = self._column("broker_id", broker), self._column("client_port", port)
        self.origin = self._column("origin", origin.view(np.int64))
        self.connection = self._column("connection", connection)
        state = self._column("state", self._number("terminating", 0) * TERMINATED)
        self.flag = ~self.head & (state == TERMINATED)
        self.seen = _running_max(self.landed, self.owner)
        # One that landed before another of its client that was read earlier tells of the past, and changes no state.
        self.late = ~self.head & (self.landed < np.append(0, self.seen[:-1]))
        self.push = ~self.head & ~self.late
        # A push that doesn't say its interval has the last one told.
        interval = self._column("push_interval_ms", self._number("push_interval_ms", 0))
        self.interval = interval[self._latest(self.push & (interval > 0))]
        holds = self._latest(self.push)
        self.last, self.previous = holds[self.ends], np.append(0, holds[:-1])
        self.first = self.push & self.head[self.previous] & self.is_new[self.owner]
        self.follows = self.push & ~self.first
        self.state_before = state[self.previous]
        self.gap = self.landed - self.seen[self.previous]

    def _number(self, name: str, missing: int) -> Int64s:
        column: Int64s = self.pushes[name].cast(pa.int64()).fill_null(missing).to_numpy()
        return column

    def _column(self, name: str, of_pushes: Int64s) -> Int64s:
        """What the client's state says at the heads, what the pushes say elsewhere."""
        return np.concatenate([self.clients[name][self.touched], of_pushes])[self.order]

    def _latest(self, which: Bools) -> Int64s:
        """For each push or head, the latest of its client up to it that is one of `which`; else its head."""
        latest: Int64s = np.maximum.accumulate(np.where(which | self.head, np.arange(len(which)), 0))
        return latest

    def judge(self, versions: pa.Table) -> Found:
        """The events of the pushes; keeps for `store` what they change."""
        previous, push = self.previous, self.push
        silent_at, unsubscribed = self._silences(versions)
        was_silent = silent_at != NEVER
        newly_silent = was_silent & (self.state_before != SILENT)
        ended = self.follows & (self.state_before == TERMINATED)
        # KIP-714: a terminating flag right after another is ignored until the push interval has passed.
        repeated = ended & self.flag & (self.gap < 1000 * self.interval[previous])
        self.resumed = was_silent | unsubscribed | (ended & ~self.flag)
        self.terminated = push & self.flag & ~repeated
        self._count_missed(unsubscribed)
        duplicate = self._duplicates()
        came_from = np.select([was_silent, unsubscribed], [SILENT, UNSUBSCRIBED], TERMINATED)
        back = previous[newly_silent]
        threshold = thresholds(self.interval[back])
        return Found.all_of(
            [
                self._events(Event.FIRST_SEEN, self.first, self.broker, self.port),
                Found.of(
                    Event.WENT_SILENT, self.slot[newly_silent], silent_at[newly_silent], self.seen[back],
                    self.partition[back], self.offset[back], self.interval[back], threshold,
                ),
                self._events(Event.RESUMED, self.resumed, came_from, self.gap, silent_at),
                self._events(Event.TERMINATED, self.terminated, self.interval, self.gap),
                self._events(Event.DUPLICATE_INSTANCE, duplicate, self.port, self.port[previous]),
                self._software_changes(),
            ]
        )  # fmt: skip

    def _events(self, kind: Event, which: Bools, first: Int64s, second: Int64s, third: Int64s | None = None) -> Found:
        return Found.of(
            kind, self.slot[which], self.landed[which], self.landed[which], self.partition[which], self.offset[which],
            first[which], second[which], None if third is None else third[which],
        )  # fmt: skip

    def _silences(self, versions: pa.Table) -> tuple[Int64s, Bools]:
        """When each push's client had fallen silent before it (`NEVER`: not), and whether nobody asked it then."""
        clients, previous = self.clients, self.previous
        silent_at = np.full(len(self.push), NEVER)
        unsubscribed = np.zeros(len(self.push), np.bool_)
        known = self.follows & (self.state_before == SILENT)  # only a head is silent
        silent_at[known] = clients["silent_at"][self.slot[known]]
        due = self.seen[previous] + thresholds(self.interval[previous])
        awaited = (self.state_before == ACTIVE) | (self.state_before == UNSUBSCRIBED)
        rows = np.flatnonzero(self.follows & awaited & (self.clock > due))
        if len(rows):
            base = previous[rows]
            at, nobody = silences(
                self._attributes(base), clients.objects["cluster_id"][self.slot[rows]].tolist(), self.seen[base],
                self.interval[base], versions,
            )  # fmt: skip
            gone = self.clock[rows] > at
            silent_at[rows[gone]] = at[gone]
            unsubscribed[rows] = ~gone & (self.clock[rows] > nobody)
        return silent_at, unsubscribed

    def _attributes(self, rows: Int64s) -> pa.Table:
        """What subscriptions are matched against, of these pushes or heads: columns of ``subscriptions.CLIENTS``."""
        table = attributes_of(self.clients, self.slot[rows])
        is_push = pa.array(~self.head[rows])
        own = self.pushes.take(pa.array(np.maximum(self.row[rows], 0)))
        for place, name in enumerate(_NAMED):
            told = own[name].cast(pa.string())
            table = table.set_column(place, ATTRIBUTES.field(place), pc.if_else(is_push, told, table.column(place)))
        return table

    def _count_missed(self, unsubscribed: Bools) -> None:
        """Pushes that the gaps should have held, at least; those that are read late are taken off."""
        before = self.interval[self.previous]
        longest = np.maximum(np.maximum(self.interval, before), 1)
        anew = (self.connection != self.connection[self.previous]) | (self.interval != before)
        patience = np.where(anew, LONGEST_FIRST_INTERVAL, 1.0)
        missed = np.floor((self.gap / 1000 + TOLERANCE_MS) / longest - patience).clip(0).astype(np.int64)
        counts = self.follows & (before > 0) & (self.state_before != TERMINATED) & ~unsubscribed
        self.missed = np.where(counts, missed, np.where(self.late, -1, 0))
        self.missed_ms = self.missed * np.where(self.interval > 0, longest, 0)

    def _duplicates(self) -> Bools:
        """The first push of each episode that shows two senders: A, B, A, where one client would have stayed with B."""
        clients, previous = self.clients, self.previous
        before_that = np.where(self.head, clients["connection_before"][self.slot], self.connection[previous])[previous]
        gap_before = np.where(self.head, 1000 * clients["gap_ms"][self.slot], self.gap)[previous]
        alternates = self.follows & (self.connection == before_that) & (self.connection != self.connection[previous])
        longer = np.maximum(self.gap, gap_before)
        other_origin = (self.origin != self.origin[previous]) & (longer < thresholds(self.interval))
        # One client keeps one connection to a broker for its pushes, and one timer.
        other_timer = (self.broker == self.broker[previous]) & (longer < SAME_PACE * 1000 * self.interval)
        shown = alternates & (gap_before >= 0) & (other_origin | other_timer)
        episode = np.cumsum(self.resumed)
        start = episode[np.flatnonzero(self.head)]
        known = (clients["duplicated"][self.slot] > 0) & (episode == start[self.owner])
        at = np.flatnonzero(shown & ~known)
        found = np.zeros(len(shown), np.bool_)
        found[at[np.unique(np.stack([self.owner[at], episode[at]]), axis=1, return_index=True)[1]]] = True
        ends = episode[self.ends]
        stays = (clients["duplicated"][self.touched] > 0) & (ends == start)
        stays[self.owner[found & (episode == ends[self.owner])]] = True
        self.duplicated = stays
        return found

    def _software_changes(self) -> Found:
        clients, slots = self.clients, self.touched
        name, version = (clients.objects[f"client_software_{each}"][slots] for each in ("name", "version"))
        held = [None if a is None or b is None else f"{a} {b}" for a, b in zip(name, version, strict=True)]
        told = pc.binary_join_element_wise(
            self.pushes["client_software_name"], self.pushes["client_software_version"], " "
        )
        software = np.concatenate([objects_of(held), texts_of(told)])[self.order]
        known = told_of(software) & self.push
        holds = self._latest(known)
        before = software[np.append(0, holds[:-1])]
        changed = self.follows & known & told_of(before) & (software != before)
        events = self._events(Event.SOFTWARE_CHANGED, changed, self.broker, self.port)
        return events.with_texts(before[changed], software[changed])

    def store(self, step: int) -> None:
        """Bring the clients' columns up to the last pushes."""
        clients, slots, last = self.clients, self.touched, self.last
        counts = np.bincount(self.owner[~self.head], minlength=len(slots))
        clients["pushes"][slots] += counts
        added = {"missed_pushes": self.missed, "missed_ms": self.missed_ms, "resumptions": self.resumed}
        for name, each in added.items():
            clients[name][slots] += _sums(each, self.owner, len(slots))
        bits = np.zeros(len(slots), np.int64)
        rows = np.flatnonzero(~self.head)
        np.bitwise_or.at(bits, self.owner[rows], self.broker_bits[self.row[rows]])
        clients["brokers"][slots] |= bits
        clients["step"][slots] = step
        clients["duplicated"][slots] = self.duplicated
        firsts = np.flatnonzero(self.first)
        clients["first_seen"][self.slot[firsts]] = self.landed[firsts]
        moved = ~self.head[last]
        last, slots = last[moved], slots[moved]
        clients["last_seen"][slots] = self.landed[last]
        for name, column in (
            ("partition", self.partition), ("offset", self.offset), ("push_interval_ms", self.interval),
            ("broker_id", self.broker), ("client_port", self.port), ("origin", self.origin),
            ("connection", self.connection),
        ):  # fmt: skip
            clients[name][slots] = column[last]
        before = self.previous[last]
        clients["connection_before"][slots] = self.connection[before]
        clients["gap_ms"][slots] = np.where(self.first[last], -1, self.gap[last] // 1000)
        ends = self.flag[last]
        flagged = np.flatnonzero(self.terminated)
        clients["terminated_at"][self.slot[flagged]] = self.landed[flagged]  # the last one stays
        clients["terminated_at"][slots[~ends]] = 0
        clients["state"][slots] = np.where(ends, TERMINATED, ACTIVE)
        clients["silent_at"][slots] = 0
        due = self.landed[last] + thresholds(self.interval[last])
        clients["deadline"][slots] = np.where(ends, NEVER, due)
        for name in TEXTS:
            texts = np.concatenate([clients.objects[name][self.touched], texts_of(self.pushes[name])])[self.order]
            told, held = texts[self._latest(self.push & told_of(texts))[self.ends]], clients.objects[name][self.touched]
            changed = told != held  # others keep their text: one object for all that are equal
            clients.objects[name][self.touched[changed]] = told[changed]


_NAMED = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_address",
    "client_port",
)  # fmt: skip


def attributes_of(clients: Clients, slots: Int64s) -> pa.Table:
    """What subscriptions are matched against: columns of ``subscriptions.CLIENTS``."""
    port = clients["client_port"][slots]
    texts = [pa.array(clients.objects[name][slots], pa.string()) for name in _NAMED[:-1]]
    return pa.table([*texts, pa.array(port, mask=port < 0).cast(pa.string())], schema=ATTRIBUTES)


def _follow(clients: Clients, clocks: Clocks, pushes: pa.Table, landed: Int64s) -> tuple[Int64s, Int64s]:
    """Code of each push's partition, and the partition's clock at it; `pushes` in order of partition and offset."""
    places = [pushes[name].combine_chunks().dictionary_encode() for name in ("source", "topic")]
    named = np.stack([place.indices.to_numpy() for place in places] + [pushes["partition"].to_numpy()], axis=1)
    starts = np.append(0, np.flatnonzero((np.diff(named, axis=0) != 0).any(axis=1)) + 1)
    codes, clock = np.zeros(len(landed), np.int64), np.zeros(len(landed), np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(landed)], strict=True):
        source, topic, partition = (pushes[name][start].as_py() for name in ("source", "topic", "partition"))
        code = clients.partition_code((source, topic, partition))
        codes[start:end] = code
        clock[start:end] = np.maximum(np.maximum.accumulate(landed[start:end]), clocks.get(code, 0))
        clocks[code] = int(clock[end - 1])
    return codes, clock


def _hash(pushes: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(pushes.num_rows, np.uint64)
    for name in names:
        hashes = mix(hashes, column_hashes(pushes[name].combine_chunks().dictionary_encode()))
    return hashes


def _running_max(values: Int64s, owner: Int64s) -> Int64s:
    """Greatest value so far within each run of one owner; owners ascend."""
    distinct, rank = np.unique(values, return_inverse=True)
    size = len(distinct)
    greatest = np.maximum.accumulate(owner * size + rank.reshape(-1))
    return distinct[greatest - owner * size]


def _sums(values: npt.NDArray[np.generic], owner: Int64s, size: int) -> Int64s:
    return np.bincount(owner, values.astype(np.float64), size).astype(np.int64)
