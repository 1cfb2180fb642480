"""Rules I1 to I4: attributes normalised across clients, and the stable 64-bit ids of clients and series."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from udfs.decoded import ATTRIBUTES

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Pairs = tuple[tuple[str, str], ...]

# Java's Selector tags `node-<id>`; librdkafka sends `node.id` and franz-go `node_id` as int.
NODE_KEYS = ("node_id", "node.id")
NODE_ID = re.compile(r"(?:node-)?(-?[0-9]{1,10})")
# Java connects to a group's coordinator under the id Integer.MAX_VALUE - id.
COORDINATOR_BASE = 2147483647
LOWEST_COORDINATOR = 2147473647

FRANZ_GO_SCOPE = "kgo"
CACHED_BYTES = 1024


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
    """Apply I4 to attribute lists as sent: what differs in order, or in how a client names a node, becomes equal."""
    # Long texts would fill the memory that short ones need a little of.
    short = (set_bytes(sets) <= CACHED_BYTES).tolist()
    done = [
        (_normalised if is_short else _normalised.__wrapped__)(tuple(pairs))
        for pairs, is_short in zip(sets.to_pylist(), short, strict=True)
    ]
    return AttributeSets(
        maps=pa.array([list(pairs) for pairs, _, _ in done], ATTRIBUTES),
        hashes=np.array([digest for _, digest, _ in done], np.uint64),
        duplicate=np.array([duplicate for _, _, duplicate in done], np.bool_),
    )


@lru_cache(maxsize=100_000)
def _normalised(pairs: Pairs) -> tuple[Pairs, int, bool]:
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
