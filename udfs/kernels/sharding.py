"""Which shard has a client's state: Kafka's own partitioner over the client instance id.

The receiver's producer chooses a landing record's partition by the same hash of the same key. So if the landing topic's
number of partitions is a multiple of the number of shards, all pushes of a partition belong to one shard, and no task
reads a file without using it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int32s, Int64s, UInt8s
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked


def shards_of(client_instance_ids: pa.Array, shards: int) -> Int32s:
    """The shard, 0 to `shards` - 1, of each id (string); NULL goes to shard 0."""
    return shards_at(places_of(client_instance_ids), shards)


def shards_at(places: Int32s, shards: int) -> Int32s:
    """The shard of each place that `places_of` returned."""
    result: Int32s = (places & 0x7FFFFFFF) % np.int32(shards)
    return result


def places_of(client_instance_ids: pa.Array) -> Int32s:
    """What each id (string) has whatever the number of shards: its hash, with the highest bit set; of NULL it is 0.

    Source: Kafka's BuiltInPartitioner.partitionForKey, toPositive(murmur2(key)) modulo the number of partitions.
    """
    texts = client_instance_ids.cast(pa.large_binary())
    result = np.zeros(len(texts), np.int32)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :]
    data = texts.buffers()[2]
    if len(texts) and data is not None:
        bytes_ = np.frombuffer(data, np.uint8) if data.size else np.zeros(0, np.uint8)
        _place(bytes_, offsets, result)
        result[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return result


@kernel
def _place(data: UInt8s, offsets: Int64s, result: Int32s) -> None:
    for i in range(len(result)):
        result[i] = (_murmur2(data, offsets[i], offsets[i + 1]) & 0x7FFFFFFF) - 0x80000000


@linked
def _murmur2(data: UInt8s, start: int, end: int) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, with 32-bit words in 64-bit integers."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = end - start
    h = 0x9747B28C ^ length
    for word in range(length // 4):
        at = start + 4 * word
        low = _byte(data, at) | _byte(data, at + 1) << 8  # little-endian
        k = _times(low | _byte(data, at + 2) << 16 | _byte(data, at + 3) << 24, m)
        k ^= k >> 24
        k = _times(k, m)
        h = _times(h, m) ^ k
    tail = start + (length & ~3)
    if length & 3 == 3:
        h ^= _byte(data, tail + 2) << 16
    if length & 3 >= 2:
        h ^= _byte(data, tail + 1) << 8
    if length & 3 >= 1:
        h = _times(h ^ _byte(data, tail), m)
    h ^= h >> 13
    h = _times(h, m)
    return (h ^ (h >> 15)) & mask


@linked
def _byte(data: UInt8s, at: int) -> int:
    return np.int64(data[at])  # type: ignore[return-value]  # the kernel's int


@linked
def _times(a: int, b: int) -> int:
    """The low 32 bits of a product of 32-bit words, without leaving 64 bits."""
    low = (a & 0xFFFF) * b
    high = ((a >> 16) & 0xFFFF) * b
    return (low + ((high & 0xFFFF) << 16)) & 0xFFFFFFFF
