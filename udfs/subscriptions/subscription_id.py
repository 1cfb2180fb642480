"""The broker's SubscriptionId (M9): it identifies the metrics and the push interval last sent to a client.

KIP-714 and ``ClientMetricsManager.computeSubscriptionId``: CRC32C of the requested metrics' text and the interval,
XOR the hash of the client instance id. The text comes from a Java HashSet: it is in the order of hash buckets and, in a
bucket, of insertion. Insertion order depends on the broker's map of subscriptions and on the size that its Java version
gives a copied set. So one set of subscriptions can have several ids, and brokers do differ.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import permutations

import google_crc32c
import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, UInt32s
from kafka_telemetry_lake.udfs.subscriptions.matching import ALL_METRICS, Subscription, push_interval_ms

# java.util.HashMap
SMALLEST_TABLE = 16
LONGEST_CHAIN = 8
SMALLEST_TABLE_WITH_TREES = 64
MOST_PERMUTED = 5


class OrderUnknownError(ValueError):
    """The HashSet's order can't be determined: a bucket of more than 8 elements became a tree."""


@lru_cache(maxsize=4096)
def checksums(matching: tuple[Subscription, ...]) -> frozenset[int]:
    """The possible CRC32Cs, unsigned, of what a broker asks of a client that matches these subscriptions.

    A client's SubscriptionId is one of them XOR its ``instance_hashes``. Empty if the order can't be determined.
    """
    interval = push_interval_ms(each.interval_ms for each in matching)
    return frozenset(google_crc32c.value(f"{text}{interval}".encode()) for text in requested_texts(matching))


def requested_texts(matching: tuple[Subscription, ...]) -> frozenset[str]:
    """The possible texts of the requested metrics, as ``HashSet.toString`` writes them: ``[a, b]``."""
    if any(ALL_METRICS in each.metrics for each in matching):
        return frozenset({f"[{ALL_METRICS}]"})
    texts = set()
    try:
        for java in (17, 21):
            sets = [_copied(each.metrics, java) for each in matching]
            for order in _orders(sets):
                texts.add(f"[{', '.join(_iteration(prefix for each in order for prefix in each))}]")
    except OrderUnknownError:
        return frozenset()
    return frozenset(texts)


def instance_hashes(client_instance_ids: pa.Array) -> Int32s:
    """``Uuid.hashCode`` of each client instance id, as Kafka prints it: 22 characters of URL-safe base64.

    Raises:
        ValueError: an id is NULL or malformed.
    """
    raw = b"".join(base64.urlsafe_b64decode(f"{text}==") for text in client_instance_ids.to_pylist())
    halves = np.frombuffer(raw, ">u8").reshape(len(client_instance_ids), 2)
    mixed = halves[:, 0] ^ halves[:, 1]
    hashes: Int32s = ((mixed >> np.uint64(32)) ^ mixed).astype(np.uint32).view(np.int32)
    return hashes


def subscription_checksums(subscription_ids: Int32s, hashes: Int32s) -> UInt32s:
    """The CRC32C inside each SubscriptionId, given the ``instance_hashes`` of its client."""
    return (subscription_ids ^ hashes).view(np.uint32)


def _orders(sets: Sequence[tuple[str, ...]]) -> Iterable[tuple[tuple[str, ...], ...]]:
    """The orders of insertion of several subscriptions' sets that may differ in their union's order."""
    if len(sets) < 2:
        return [tuple(sets)]
    union = _Table()
    for prefix in (prefix for each in sets for prefix in each):
        union.add(prefix)
    contested: set[str] = set()  # in a bucket with others, of which another set has some too
    for bucket in union.buckets:
        if len(bucket) > 1 and sum(not set(bucket).isdisjoint(each) for each in sets) > 1:
            contested.update(bucket)
    matter = [each for each in sets if not contested.isdisjoint(each)]
    rest = [each for each in sets if contested.isdisjoint(each)]
    if len(matter) > MOST_PERMUTED:
        raise OrderUnknownError(f"{len(matter)} subscriptions share hash buckets")
    return ((*order, *rest) for order in permutations(matter))


def _copied(metrics: tuple[str, ...], java: int) -> tuple[str, ...]:
    """A subscription's metrics in the order of ``new HashSet<>(list)``, whose table size changed with Java 19."""
    size = len(metrics)
    needed = int(size / 0.75) + 1 if java < 19 else -(-size * 4 // 3)
    return tuple(_iteration(metrics, needed))


def _iteration(inserted: Iterable[str], capacity: int = SMALLEST_TABLE) -> list[str]:
    table = _Table(capacity)
    for element in inserted:
        table.add(element)
    return [element for bucket in table.buckets for element in bucket]


class _Table:
    """The table of a ``java.util.HashMap`` of strings: its buckets are lists in the order of insertion."""

    def __init__(self, capacity: int = SMALLEST_TABLE) -> None:
        size = SMALLEST_TABLE
        while size < capacity:
            size *= 2
        self.buckets: list[list[str]] = [[] for _ in range(size)]
        self.elements = 0

    def add(self, element: str) -> None:
        bucket = self.buckets[_spread_hash(element) & (len(self.buckets) - 1)]
        if element in bucket:
            return
        bucket.append(element)
        self.elements += 1
        if len(bucket) > LONGEST_CHAIN:
            if len(self.buckets) >= SMALLEST_TABLE_WITH_TREES:
                raise OrderUnknownError(f"more than {LONGEST_CHAIN} metrics in one hash bucket")
            self._resize()
        if self.elements > len(self.buckets) * 3 // 4:
            self._resize()

    def _resize(self) -> None:
        elements = [element for bucket in self.buckets for element in bucket]
        self.buckets = [[] for _ in range(2 * len(self.buckets))]
        for element in elements:
            self.buckets[_spread_hash(element) & (len(self.buckets) - 1)].append(element)


@lru_cache(maxsize=65_536)
def _spread_hash(text: str) -> int:
    """``HashMap.hash`` of a string: ``String.hashCode``, over UTF-16 units, with its upper half mixed in."""
    code = 0
    for unit in np.frombuffer(text.encode("utf-16-be"), ">u2").tolist():
        code = (31 * code + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)
