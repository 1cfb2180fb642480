"""Rules I1 to I4: attributes normalised across clients, and the stable 64-bit ids of clients and series."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, UInt64s
from kafka_telemetry_lake.udfs.limits import ATTRIBUTE_CACHE_BYTES
from kafka_telemetry_lake.udfs.otlp.decoded import ATTRIBUTES

Pairs = tuple[tuple[str, str], ...]
Normalised = tuple[Pairs, int, bool]  # sorted by key, hash, whether a key was given twice

# Java's Selector tags `node-<id>`; librdkafka sends `node.id` and franz-go `node_id` as int.
NODE_KEYS = ("node_id", "node.id")
NODE_ID = re.compile(r"(?:node-)?(-?[0-9]{1,10})")
# Java connects to a group's coordinator under the id Integer.MAX_VALUE - id.
COORDINATOR_BASE = 2147483647
LOWEST_COORDINATOR = 2147473647

FRANZ_GO_SCOPE = "kgo"
CACHED_BYTES = 4096  # of a list in the cache; those of Kafka's clients have less
OBJECT_BYTES = 400  # of a pair in the cache, as sent and normalised, without its texts
PAIRS_AT_A_TIME = 50_000


@dataclass(frozen=True)
class AttributeSets:
    """Normalised attribute sets, one per input set.

    `maps`: map<string, string> sorted by key; `hashes`: xxh3-64 of the canonical text; `duplicate`: a key was
    given twice.
    """

    maps: pa.MapArray
    hashes: UInt64s
    duplicate: Bools


def normalise(sets: pa.MapArray) -> AttributeSets:
    """Apply I4 to attribute lists as sent: lists that differ in order, or in how a node is named, become equal."""
    maps: list[pa.MapArray] = []
    hashes, duplicate = np.zeros(len(sets), np.uint64), np.zeros(len(sets), np.bool_)
    # As Python objects a set takes ten times the memory of its columns, so only some are converted at a time.
    passed = sets.offsets.to_numpy().astype(np.int64)
    first = 0
    while first < len(sets) or not maps:
        last = max(first + 1, int(np.searchsorted(passed, passed[first] + PAIRS_AT_A_TIME, "right")) - 1)
        done = _CACHE.normalised(sets[first:last])
        maps.append(pa.array([list(pairs) for pairs, _, _ in done], ATTRIBUTES))
        hashes[first:last] = [digest for _, digest, _ in done]
        duplicate[first:last] = [is_duplicate for _, _, is_duplicate in done]
        first = last
    return AttributeSets(maps[0] if len(maps) == 1 else pa.concat_arrays(maps), hashes, duplicate)


class AttributeCache:
    """A cache of normalised attribute lists. When its texts exceed the limit, it is emptied.

    It limits what pushes can leave in a process's memory, whatever they contain.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._sets: dict[Pairs, Normalised] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sets)

    def normalised(self, sets: pa.MapArray) -> list[Normalised]:
        """`_normalised` of each set."""
        result = []
        for each in sets.to_pylist():
            pairs = tuple(each or ())
            done = self._sets.get(pairs)
            if done is None:
                done = _normalised(pairs)
                size = sum(OBJECT_BYTES + 2 * len(key) + 2 * len(value) for key, value in pairs)
                if size <= CACHED_BYTES:
                    self._add(pairs, done, OBJECT_BYTES + size)
            result.append(done)
        return result

    def _add(self, pairs: Pairs, done: Normalised, size: int) -> None:
        if self.bytes + size > self._most_bytes:
            self._sets.clear()
            self.bytes = 0
        self._sets[pairs] = done
        self.bytes += size


def _normalised(pairs: Pairs) -> Normalised:
    plain: dict[str, str] = {}
    duplicate = False
    for key, value in pairs:
        if key == "member_id":
            renamed = {"group_member_id": value}
        elif key in NODE_KEYS:
            renamed = _node(value)
        else:
            renamed = {key: value}
        duplicate |= any(name in plain for name in renamed)
        plain.update(renamed)
    ordered = tuple(sorted(plain.items()))
    return ordered, text_hash("".join(f"{len(text)}:{text}" for pair in ordered for text in pair)), duplicate


_CACHE = AttributeCache(ATTRIBUTE_CACHE_BYTES)


def set_bytes(sets: pa.MapArray) -> Int64s:
    """Bytes of the keys and values of each set."""
    pairs = pc.add(pc.binary_length(sets.keys), pc.fill_null(pc.binary_length(sets.items), 0))
    passed = np.append(0, np.cumsum(pairs.to_numpy(zero_copy_only=False), dtype=np.int64))
    offsets = sets.offsets.to_numpy()
    sizes: Int64s = passed[offsets[1:]] - passed[offsets[:-1]]
    return sizes


def _node(text: str) -> dict[str, str]:
    match = NODE_ID.fullmatch(text)
    if match is None:
        return {"node_id": text}
    node = int(match.group(1))
    if node < 0:
        return {"node_id": str(node), "node_role": "bootstrap"}
    if LOWEST_COORDINATOR <= node <= COORDINATOR_BASE:
        return {"node_id": str(COORDINATOR_BASE - node), "node_role": "coordinator"}
    return {"node_id": str(node), "node_role": "broker"}


def text_hash(text: str) -> int:
    """xxh3-64 of the UTF-8 text."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def text_hashes(texts: pa.Array) -> UInt64s:
    """`text_hash` of each text; NULL reads as the empty text."""
    data = texts.cast(pa.binary()).fill_null(b"").to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, data), np.uint64, len(data))


def mix(left: Any, right: Any) -> Any:
    """Combine two uint64 hashes, or columns of them, into one (splitmix64's finaliser); the order matters."""
    mixed = left * np.uint64(0x9E3779B97F4A7C15) + right
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def client_keys(cluster_id: pa.Array, client_instance_id: pa.Array) -> Int64s:
    """Stable 64-bit key of each client, of two dictionary<int32, string> arrays; NULL reads as the empty text."""
    keys: UInt64s = mix(column_hashes(cluster_id), column_hashes(client_instance_id))
    return keys.view(np.int64)


def column_hashes(texts: pa.DictionaryArray) -> UInt64s:
    """`text_hash` of each row of a dictionary<int32, string> array; NULL reads as the empty text."""
    hashes = np.append(text_hashes(texts.dictionary), np.uint64(text_hash("")))
    rows: UInt64s = hashes[texts.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)]
    return rows
