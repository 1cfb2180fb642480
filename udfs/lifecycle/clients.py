"""The state of every client instance in memory: one column per fact, one slot per client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, Objects
from kafka_telemetry_lake.udfs.lifecycle.rows import CLIENT_CHANGES, STATES, TEXTS
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER
from kafka_telemetry_lake.udfs.rows import TEXT_LIST, TEXT_MAP, TIMESTAMP

Partition = tuple[str, str, int]

# Columns of numbers, with the value that means NULL in each.
TIMES = {
    "first_seen": 0, "last_seen": 0, "terminated_at": 0, "silent_at": 0, "deadline": int(NEVER), "signals_at": 0,
    "answered_at": 0,
}  # fmt: skip
NUMBERS = {
    **TIMES,
    "state": 0, "partition": -1, "offset": -1, "push_interval_ms": 0, "pushes": 0, "missed_pushes": 0, "missed_ms": 0,
    "gap_ms": -1, "connection": 0, "connection_before": 0, "origin": 0, "client_port": -1, "broker_id": -1,
    "brokers": 0, "resumptions": 0, "duplicated": 0, "step": 0, "signals_port": -1, "usual_bootstrap": -1,
    "unheard_pushes": 0, "refused_pushes": 0, "connection_state": 0,
}  # fmt: skip
OBJECTS = ("client_instance_id", "cluster_id", *TEXTS, "labels", "group_member_ids")
BROKER_BITS = 62  # distinct broker ids that fit into column `brokers`; further ones aren't listed
MOST_MEMBERS = 10  # group member ids listed per client
PAIR, ITEM = "\x1e", "\x1f"  # separators of labels as one text: between pairs, and between key and value


class Clients:
    """The clients of a lake. A slot is a position in every column; a client's slot never changes."""

    def __init__(self) -> None:
        self.size = 0
        self.numbers = {name: np.zeros(0, np.int64) for name in NUMBERS}
        self.objects: dict[str, Objects] = {name: np.zeros(0, object) for name in OBJECTS}
        self.partitions: list[Partition] = []
        self._partition_codes: dict[Partition, int] = {}
        self._brokers: list[int] = []
        self._sorted_keys = np.zeros(0, np.int64)
        self._sorted_slots = np.zeros(0, np.int64)

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
            if broker >= 0 and broker not in self._brokers:
                self._brokers.append(broker)
        places = [self._brokers.index(broker) if broker >= 0 else BROKER_BITS for broker in distinct.tolist()]
        bits = np.array([1 << place if place < BROKER_BITS else 0 for place in places], np.int64)
        return bits[rows.reshape(-1)]

    def slots(self, keys: Int64s) -> Int64s:
        """The slot of each client (`identity.client_keys`); -1 for a new one."""
        if self.size == 0:
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self._sorted_keys, keys), self.size - 1)
        return np.where(self._sorted_keys[at] == keys, self._sorted_slots[at], -1)

    def add(self, keys: Int64s) -> Int64s:
        """Add new clients, by distinct keys, and return their slots; all their columns are NULL."""
        slots = np.arange(self.size, self.size + len(keys))
        self._grow(self.size + len(keys))
        self.size += len(keys)
        order = np.argsort(keys)
        places = np.searchsorted(self._sorted_keys, keys[order])
        self._sorted_keys = np.insert(self._sorted_keys, places, keys[order])
        self._sorted_slots = np.insert(self._sorted_slots, places, slots[order])
        return slots

    def _grow(self, size: int) -> None:
        capacity = len(self.numbers["state"])
        if size <= capacity:
            return
        more = max(size, 2 * capacity) - capacity
        for name, missing in NUMBERS.items():
            self.numbers[name] = np.concatenate([self.numbers[name], np.full(more, missing)])
        for name in OBJECTS:
            self.objects[name] = np.concatenate([self.objects[name], np.full(more, None, object)])

    def rows(self, slots: Int64s) -> pa.Table:
        """Rows of ``CLIENT_CHANGES`` for these clients."""
        numbers = {name: column[slots] for name, column in self.numbers.items()}
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
            "group_member_ids": _each(texts["group_member_ids"], list, TEXT_LIST),
            "state": STATES.take(pa.array(numbers["state"])),
            "coverage": pa.array(coverage),
            "brokers": _each(numbers["brokers"].astype(object), self._broker_list, pa.list_(pa.int32())),
            "duplicated": pa.array(numbers["duplicated"] > 0),
        }
        for name in ("push_interval_ms", "client_port", "broker_id", "gap_ms", "offset"):
            columns[name] = pa.array(numbers[name], mask=numbers[name] == NUMBERS[name])
        arrays = [columns.get(name, numbers.get(name)) for name in CLIENT_CHANGES.names]
        typed = [pa.array(each).cast(field.type) for each, field in zip(arrays, CLIENT_CHANGES, strict=True)]
        return pa.table(typed, CLIENT_CHANGES)

    @classmethod
    def of_rows(cls, rows: pa.Table, partitions: Iterable[Partition] = ()) -> Clients:
        """The clients of rows of ``CLIENT_CHANGES``, of each the newest row. `partitions` get the first codes."""
        clients = cls()
        for place in partitions:
            clients.partition_code(place)
        rows = rows.select(CLIENT_CHANGES.names).cast(CLIENT_CHANGES).combine_chunks().sort_by("step")
        ids = [rows[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
        keys = client_keys(*ids)
        _, back = np.unique(keys[::-1], return_index=True)
        newest = np.sort(len(keys) - 1 - back)
        rows = rows.take(pa.array(newest))
        slots = clients.add(keys[newest])
        for name in ("client_instance_id", "cluster_id", *TEXTS):
            clients.objects[name][slots] = texts_of(rows[name])
        labels = [None if pairs is None else label_text(pairs) for pairs in rows["labels"].to_pylist()]
        clients.objects["labels"][slots] = objects_of(labels)
        members = [None if each is None else tuple(each) for each in rows["group_member_ids"].to_pylist()]
        clients.objects["group_member_ids"][slots] = objects_of(members)
        for name, missing in NUMBERS.items():
            if name not in ("state", "partition", "brokers", "duplicated"):
                clients.numbers[name][slots] = rows[name].cast(pa.int64()).fill_null(missing).to_numpy()
        clients.numbers["state"][slots] = pc.index_in(rows["state"], STATES).to_numpy()
        clients.numbers["duplicated"][slots] = rows["duplicated"].fill_null(False).to_numpy()
        places = zip(*(rows[name].to_pylist() for name in ("source", "topic", "partition")), strict=True)
        clients.numbers["partition"][slots] = [clients.partition_code(place) for place in places]
        lists = rows["brokers"].to_pylist()
        for broker in sorted({broker for each in lists for broker in each or ()}):
            clients.broker_bits(np.array([broker]))
        bits = {broker: 1 << place for place, broker in enumerate(clients._brokers[:BROKER_BITS])}
        clients.numbers["brokers"][slots] = [sum(bits.get(broker, 0) for broker in each or ()) for each in lists]
        return clients

    def _broker_list(self, bits: int) -> list[int]:
        return sorted(broker for place, broker in enumerate(self._brokers[:BROKER_BITS]) if bits >> place & 1)


def label_text(pairs: list[tuple[str, str]]) -> str:
    """Labels as one text: equal labels give equal texts."""
    return PAIR.join(f"{key}{ITEM}{value}" for key, value in pairs)


def label_pairs(text: str) -> list[tuple[str, str]]:
    """The labels of a `label_text`."""
    parts = [pair.partition(ITEM) for pair in text.split(PAIR)] if text else []
    return [(key, value) for key, _, value in parts]


def label_texts(labels: pa.MapArray) -> pa.Array:
    """`label_text` of each map of labels; NULL for NULL."""
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
    return np.fromiter((value is not None for value in values), np.bool_, len(values))


def objects_of(values: list[Any]) -> Objects:
    return np.fromiter(values, object, len(values))
