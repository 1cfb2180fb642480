"""Rules I1 to I4: attributes normalised across clients, and the stable 64-bit ids of clients and series."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, UInt64s

# Java's Selector tags `node-<id>`; librdkafka sends `node.id` and franz-go `node_id` as int.
NODE_KEYS = ("node_id", "node.id")
RENAMED = (*NODE_KEYS, "member_id")
ROLE_KEY = pa.array(["node_role"])
NODE_ID = re.compile(r"(?:node-)?(-?[0-9]{1,10})")
# Java connects to a group's coordinator under the id Integer.MAX_VALUE - id.
COORDINATOR_BASE = 2147483647
LOWEST_COORDINATOR = 2147473647

FRANZ_GO_SCOPE = "kgo"
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
    # The pairs take several times the memory of their columns meanwhile, so only some are normalised at a time.
    passed = sets.offsets.to_numpy().astype(np.int64)
    first = 0
    while first < len(sets) or not maps:
        last = max(first + 1, int(np.searchsorted(passed, passed[first] + PAIRS_AT_A_TIME, "right")) - 1)
        last = min(last, len(sets))
        some = slice(passed[first], passed[last])
        owner = np.repeat(np.arange(last - first), np.diff(passed[first : last + 1]))
        sent = _renamed(_Pairs(owner, sets.keys[some].dictionary_encode(), sets.items[some]))
        pairs, duplicate[first:last] = _ordered(sent, last - first)
        ends = np.append(0, np.cumsum(np.bincount(pairs.owner, minlength=last - first)))
        offsets = pa.array(ends, pa.int32())
        maps.append(pa.MapArray.from_arrays(offsets, pairs.keys.dictionary_decode(), pairs.values))
        hashes[first:last] = text_hashes(pc.binary_join(pa.ListArray.from_arrays(offsets, _canonical(pairs)), ""))
        first = max(1, last)
    return AttributeSets(maps[0] if len(maps) == 1 else pa.concat_arrays(maps), hashes, duplicate)


class _Pairs(NamedTuple):
    """Attributes, in the order of the sets that they belong to."""

    owner: Int64s
    keys: pa.DictionaryArray
    values: pa.StringArray

    def take(self, rows: Int64s) -> _Pairs:
        index = pa.array(rows)
        return _Pairs(self.owner[rows], self.keys.take(index), self.values.take(index))


def _renamed(sent: _Pairs) -> _Pairs:
    """The pairs under their common names. What names a node becomes its id and, behind it, its role."""
    names = sent.keys.dictionary
    if not pc.any(pc.is_in(names, pa.array(RENAMED))).as_py():
        return sent
    codes = sent.keys.indices.to_numpy()
    is_node = pc.is_in(names, pa.array(NODE_KEYS)).to_numpy(zero_copy_only=False)[codes]
    names = pc.if_else(pc.is_in(names, pa.array(NODE_KEYS)), "node_id", names)
    names = pa.concat_arrays([pc.if_else(pc.equal(names, "member_id"), "group_member_id", names), ROLE_KEY])
    nodes = sent.values.filter(pa.array(is_node)).dictionary_encode()
    ids, roles = _column_pair([node_of(text) for text in nodes.dictionary.to_pylist()])
    values = pc.replace_with_mask(sent.values, pa.array(is_node), ids.take(nodes.indices))
    role = roles.take(nodes.indices)
    has_role = role.is_valid().to_numpy(zero_copy_only=False)
    behind = np.flatnonzero(is_node)[has_role] + 1
    place = np.arange(len(codes) + len(behind))  # of the pairs, then the roles
    return _Pairs(
        np.insert(sent.owner, behind, sent.owner[behind - 1]),
        pa.DictionaryArray.from_arrays(pa.array(np.insert(codes, behind, len(names) - 1)), names),
        pa.concat_arrays([values, role.drop_null()]).take(
            pa.array(np.insert(place[: len(codes)], behind, place[len(codes) :]))
        ),
    )


def _column_pair(rows: list[tuple[str, str | None]]) -> tuple[pa.StringArray, pa.StringArray]:
    return pa.array([first for first, _ in rows], pa.string()), pa.array([second for _, second in rows], pa.string())


def _ordered(sent: _Pairs, sets: int) -> tuple[_Pairs, Bools]:
    """Each set by key, the last of equal keys only; and whether a set had equal keys."""
    rank = pc.rank(sent.keys.dictionary, tiebreaker="dense").to_numpy()[sent.keys.indices.to_numpy()]
    pairs, duplicate = sent, np.zeros(sets, np.bool_)
    same_set = sent.owner[1:] == sent.owner[:-1]
    if (same_set & (rank[1:] <= rank[:-1])).any():
        order = np.lexsort((rank, sent.owner))
        rank, owner = rank[order], sent.owner[order]
        repeated = (owner[1:] == owner[:-1]) & (rank[1:] == rank[:-1])
        duplicate[owner[1:][repeated]] = True
        pairs = sent.take(order[~np.append(repeated, False)[: len(order)]])
    return pairs, duplicate


def _canonical(pairs: _Pairs) -> pa.StringArray:
    """The text of each pair that is hashed: key and value, each behind its number of characters."""

    def measured(texts: pa.StringArray) -> pa.StringArray:
        return pc.binary_join_element_wise(pc.utf8_length(texts).cast(pa.string()), texts, ":")

    keys = measured(pairs.keys.dictionary).take(pairs.keys.indices)
    return pc.binary_join_element_wise(keys, measured(pairs.values), "")


def set_bytes(sets: pa.MapArray) -> Int64s:
    """Bytes of the keys and values of each set."""
    pairs = pc.add(pc.binary_length(sets.keys), pc.fill_null(pc.binary_length(sets.items), 0))
    passed = np.append(0, np.cumsum(pairs.to_numpy(zero_copy_only=False), dtype=np.int64))
    offsets = sets.offsets.to_numpy()
    sizes: Int64s = passed[offsets[1:]] - passed[offsets[:-1]]
    return sizes


def node_of(text: str) -> tuple[str, str | None]:
    """The id and the role of a node."""
    match = NODE_ID.fullmatch(text)
    if match is None:
        return text, None
    node = int(match.group(1))
    if node < 0:
        return str(node), "bootstrap"
    if LOWEST_COORDINATOR <= node <= COORDINATOR_BASE:
        return str(COORDINATOR_BASE - node), "coordinator"
    return str(node), "broker"


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


def client_keys_of(table: pa.Table) -> Int64s:
    """`client_keys` of each row, by its columns cluster_id and client_instance_id (string)."""
    return client_keys(
        *(table[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id"))
    )


def column_hashes(texts: pa.DictionaryArray) -> UInt64s:
    """`text_hash` of each row of a dictionary<int32, string> array; NULL reads as the empty text."""
    hashes = np.append(text_hashes(texts.dictionary), np.uint64(text_hash("")))
    rows: UInt64s = hashes[texts.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)]
    return rows
