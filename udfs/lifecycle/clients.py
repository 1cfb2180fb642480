"""The state of every client instance in memory: one column per fact, one slot per client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys_of
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, Objects
from kafka_telemetry_lake.udfs.lifecycle.rows import CLIENT_CHANGES, STATES, TEXTS
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER
from kafka_telemetry_lake.udfs.rows import TEXT_MAP, TIMESTAMP

Partition = tuple[str, str, int]
PLACE = ("source", "topic", "partition")
ORDER = (*PLACE, "offset")

# Columns of numbers, with the value that means NULL in each.
TIMES = {
    "first_seen": 0,
    "last_seen": 0,
    "terminated_at": 0,
    "silent_at": 0,
    "deadline": int(NEVER),
    "signals_at": 0,
    "answered_at": 0,
}
NUMBERS = {
    **TIMES,
    "state": 0, "partition": -1, "offset": -1, "push_interval_ms": 0, "pushes": 0, "missed_pushes": 0, "missed_ms": 0,
    "gap_ms": -1, "connection": 0, "connection_before": 0, "origin": 0, "client_port": -1, "broker_id": -1,
    "brokers": 0, "resumptions": 0, "duplicated": 0, "step": 0, "signals_port": -1, "usual_bootstrap": -1,
    "unheard_pushes": 0, "refused_pushes": 0, "connection_state": 0,
}  # fmt: skip
OBJECTS = ("client_instance_id", "cluster_id", *TEXTS, "labels", "group_member_ids")
INDEX = ("sorted_keys", "sorted_slots")  # the clients' keys, ascending, and the slot of each
BROKER_BITS = 62  # distinct broker ids that fit into column `brokers`; further ones aren't listed
MOST_MEMBERS = 10  # group member ids listed per client
# Separators of labels as one text: between pairs, and between key and value. Member ids, from labels, have none.
PAIR, ITEM = "\x1e", "\x1f"


class Columns:
    """The columns of clients, in the memory of this process.

    Attributes:
        numbers: the columns of `NUMBERS` and `INDEX`.
        objects: the columns of `OBJECTS`; each takes and returns arrays of texts, or None, by arrays of slots.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, Int64s] = {name: np.zeros(0, np.int64) for name in (*NUMBERS, *INDEX)}
        self.objects: dict[str, Any] = {name: np.zeros(0, object) for name in OBJECTS}

    @property
    def capacity(self) -> int:
        """Clients that there is room for."""
        return len(self.numbers["state"])

    def grow(self, capacity: int) -> None:
        """Make room; what is new is NULL."""
        more = capacity - self.capacity
        for name, column in self.numbers.items():
            self.numbers[name] = np.concatenate([column, np.full(more, NUMBERS.get(name, 0))])
        for name, texts in self.objects.items():
            self.objects[name] = np.concatenate([texts, np.full(more, None, object)])

    def take(self, slots: Int64s) -> None:
        """Move these slots to the front, in their order; what is behind them becomes NULL."""
        columns = {**self.numbers, **self.objects}
        missing = {**NUMBERS, **dict.fromkeys(OBJECTS)}
        for name, column in columns.items():
            column[: len(slots)] = column[slots]
            column[len(slots) :] = missing.get(name, 0)


class Clients:
    """The clients of a lake, or of one shard of them. A slot is a position in every column.

    Args:
        columns: where they are.
        size: how many of them are there already, with these partitions and brokers.
    """

    def __init__(
        self,
        columns: Columns | None = None,
        size: int = 0,
        partitions: Iterable[Partition] = (),
        brokers: Iterable[int] = (),
    ) -> None:
        self.columns = columns or Columns()
        self.size = size
        self.partitions: list[Partition] = list(partitions)
        self._partition_codes = {place: code for code, place in enumerate(self.partitions)}
        self.brokers: list[int] = list(brokers)

    @property
    def numbers(self) -> dict[str, Int64s]:
        return self.columns.numbers

    @property
    def objects(self) -> dict[str, Any]:
        return self.columns.objects

    def __getitem__(self, name: str) -> Int64s:
        return self.numbers[name][: self.size]

    def partition_code(self, partition: Partition) -> int:
        code = self._partition_codes.setdefault(partition, len(self.partitions))
        if code == len(self.partitions):
            self.partitions.append(partition)
        return code

    def broker_bits(self, broker_ids: Int64s) -> Int64s:
        """The bit of each broker id in column `brokers`; 0 for -1, unknown."""
        distinct, rows = np.unique(broker_ids, return_inverse=True)
        for broker in distinct.tolist():
            if broker >= 0 and broker not in self.brokers:
                self.brokers.append(broker)
        places = [self.brokers.index(broker) if broker >= 0 else BROKER_BITS for broker in distinct.tolist()]
        bits = np.array([1 << place if place < BROKER_BITS else 0 for place in places], np.int64)
        return bits[rows.reshape(-1)]

    def codes(self, places: pa.Table) -> Int64s:
        """The partition code of each row, of columns source, topic and partition in order."""
        starts = place_starts(places)
        first = places.take(pa.array(starts)).to_pylist()
        codes = [self.partition_code((row["source"], row["topic"], row["partition"])) for row in first]
        return np.repeat(np.array(codes, np.int64), np.diff(np.append(starts, places.num_rows)))

    def slots(self, keys: Int64s) -> Int64s:
        """The slot of each client (`identity.client_keys`); -1 for a new one."""
        if self.size == 0:
            return np.full(len(keys), -1)
        sorted_keys = self["sorted_keys"]
        at = np.minimum(np.searchsorted(sorted_keys, keys), self.size - 1)
        return np.where(sorted_keys[at] == keys, self["sorted_slots"][at], -1)

    def add(self, keys: Int64s) -> Int64s:
        """Add new clients, by distinct keys, and return their slots; all their columns are NULL."""
        slots = np.arange(self.size, self.size + len(keys))
        order = np.argsort(keys)
        places = np.searchsorted(self["sorted_keys"], keys[order])
        sorted_keys = np.insert(self["sorted_keys"], places, keys[order])
        sorted_slots = np.insert(self["sorted_slots"], places, slots[order])
        if self.size + len(keys) > self.columns.capacity:
            self.columns.grow(max(self.size + len(keys), 2 * self.columns.capacity))
        self.size += len(keys)
        self["sorted_keys"][:] = sorted_keys
        self["sorted_slots"][:] = sorted_slots
        return slots

    def keep(self, slots: Int64s) -> None:
        """Forget all clients but those in these slots, ascending, which become the first ones."""
        moved = np.full(self.size, -1)
        moved[slots] = np.arange(len(slots))
        moved = moved[self["sorted_slots"]]
        sorted_keys, sorted_slots = self["sorted_keys"][moved >= 0], moved[moved >= 0]
        self.columns.take(slots)
        self.size = len(slots)
        self["sorted_keys"][:] = sorted_keys
        self["sorted_slots"][:] = sorted_slots

    def rows(self, slots: Int64s) -> pa.Table:
        """Rows of ``CLIENT_CHANGES`` for these clients."""
        numbers = {name: self.numbers[name][slots] for name in NUMBERS}
        texts = {name: column[slots] for name, column in self.objects.items()}
        partitions = [self.partitions[code] for code in numbers["partition"].tolist()]
        elapsed_ms = (numbers["last_seen"] - numbers["first_seen"]) // 1000
        missed_ms = np.maximum(numbers["missed_ms"], 0)
        coverage = 1.0 - np.minimum(missed_ms / np.maximum(elapsed_ms, 1), 1.0)
        columns: dict[str, Any] = {
            **{name: pa.array(texts[name], pa.string()) for name in ("client_instance_id", "cluster_id", *TEXTS)},
            **{name: pa.array(numbers[name], mask=numbers[name] == NUMBERS[name]).cast(TIMESTAMP) for name in TIMES},
            "source": pa.array([each[0] for each in partitions], pa.string()),
            "topic": pa.array([each[1] for each in partitions], pa.string()),
            "partition": pa.array([each[2] for each in partitions], pa.int32()),
            "landed_at": pa.array(numbers["last_seen"]).cast(TIMESTAMP),
            "labels": _each(texts["labels"], label_pairs, TEXT_MAP),
            "group_member_ids": pc.split_pattern(pa.array(texts["group_member_ids"], pa.string()), PAIR),
            "state": STATES.take(pa.array(numbers["state"])),
            "coverage": pa.array(coverage),
            "brokers": _each(numbers["brokers"].astype(object), self._broker_list, pa.list_(pa.int32())),
            "duplicated": pa.array(numbers["duplicated"] > 0, mask=self._may_be_duplicated(slots)),
        }
        for name in ("push_interval_ms", "client_port", "broker_id", "gap_ms", "offset"):
            columns[name] = pa.array(numbers[name], mask=numbers[name] == NUMBERS[name])
        arrays = [columns.get(name, numbers.get(name)) for name in CLIENT_CHANGES.names]
        typed = [pa.array(each).cast(field.type) for each, field in zip(arrays, CLIENT_CHANGES, strict=True)]
        return pa.table(typed, CLIENT_CHANGES)

    def put(self, rows: pa.Table) -> None:
        """Take rows of ``CLIENT_CHANGES``, except those that are older than what is known of their clients."""
        rows = rows.select(CLIENT_CHANGES.names).cast(CLIENT_CHANGES).combine_chunks().sort_by("step")
        keys = client_keys_of(rows)
        _, back = np.unique(keys[::-1], return_index=True)
        newest = np.sort(len(keys) - 1 - back)
        slots = self.slots(keys[newest])
        is_new = slots < 0
        slots[is_new] = self.add(keys[newest[is_new]])
        newer = is_new | (rows["step"].to_numpy()[newest] > self["step"][slots])
        slots, rows = slots[newer], rows.take(pa.array(newest[newer]))
        for name in ("client_instance_id", "cluster_id", *TEXTS):
            self.objects[name][slots] = texts_of(rows[name])
        self.objects["labels"][slots] = texts_of(pa.chunked_array([label_texts(rows["labels"].combine_chunks())]))
        members = pc.binary_join(rows["group_member_ids"].combine_chunks(), PAIR)
        self.objects["group_member_ids"][slots] = texts_of(pa.chunked_array([members]))
        for name, missing in NUMBERS.items():
            if name not in ("state", "partition", "brokers", "duplicated"):
                self.numbers[name][slots] = rows[name].cast(pa.int64()).fill_null(missing).to_numpy()
        self.numbers["state"][slots] = pc.index_in(rows["state"], STATES).to_numpy()
        self.numbers["duplicated"][slots] = rows["duplicated"].fill_null(False).to_numpy()
        self.numbers["partition"][slots] = self.codes(rows.select(PLACE))
        lists = rows["brokers"].to_pylist()
        for broker in sorted({broker for each in lists for broker in each or ()}):
            self.broker_bits(np.array([broker]))
        bits = {broker: 1 << place for place, broker in enumerate(self.brokers[:BROKER_BITS])}
        self.numbers["brokers"][slots] = [sum(bits.get(broker, 0) for broker in each or ()) for each in lists]

    def _may_be_duplicated(self, slots: Int64s) -> Bools:
        """Whether two senders weren't seen, and might not be: address, port or broker of a client are unknown (L11)."""
        has_address = is_set(self.objects["client_address"][slots])
        is_known = has_address & (self.numbers["client_port"][slots] >= 0) & (self.numbers["broker_id"][slots] >= 0)
        unseen: Bools = (self.numbers["duplicated"][slots] == 0) & ~is_known
        return unseen

    def _broker_list(self, bits: int) -> list[int] | None:
        known = sorted(broker for place, broker in enumerate(self.brokers[:BROKER_BITS]) if bits >> place & 1)
        return known or None


def by_offset(table: pa.Table) -> pa.Table:
    """The rows by partition and offset."""
    return table.take(pc.sort_indices(table.select(ORDER), [(name, "ascending") for name in ORDER]))


def place_starts(places: pa.Table) -> Int64s:
    """The rows, of columns source, topic and partition, that have another place than the row before."""
    columns = [places[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in places.column_names]
    is_other = (np.diff(np.stack(columns), axis=1) != 0).any(axis=0)
    return np.flatnonzero(np.append(True, is_other)[: places.num_rows])


def label_pairs(text: str) -> list[tuple[str, str]]:
    """The labels of a text of `label_texts`."""
    parts = [pair.partition(ITEM) for pair in text.split(PAIR)] if text else []
    return [(key, value) for key, _, value in parts]


def label_texts(labels: pa.MapArray) -> pa.Array:
    """Each map of labels as one text; NULL for NULL. Equal labels give equal texts."""
    pairs = pc.binary_join_element_wise(labels.keys, pc.fill_null(labels.items, ""), ITEM)
    return pc.binary_join(pa.ListArray.from_arrays(labels.offsets, pairs, mask=labels.is_null()), PAIR)


def _each(values: Objects, shape: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """`shape` of each value, called once per distinct value; None becomes NULL."""
    shaped: dict[Any, Any] = {None: None}
    for value in values:
        if value not in shaped:
            shaped[value] = shape(value)
    return pa.array([shaped[value] for value in values], kind)


def texts_of(column: pa.ChunkedArray) -> Objects:
    """Texts of a column as Python objects; equal texts are one object."""
    coded = column.combine_chunks().dictionary_encode()
    distinct = objects_of([*coded.dictionary.to_pylist(), None])
    rows: Objects = distinct[coded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)]
    return rows


def is_set(values: Objects) -> Bools:
    """Whether each value is not None."""
    filled: Bools = values != np.array(None)
    return filled


def objects_of(values: list[Any]) -> Objects:
    return np.fromiter(values, object, len(values))
