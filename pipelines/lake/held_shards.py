"""Notes, in the commit that adds a file of pushes, which shards have pushes in it: other tasks needn't open it.

A note is for the number of shards at the time of writing. With another number it says less, but never too little: of
two numbers of shards a client has the same remainder by their greatest common divisor. A file without a note
(merged, or of another writer) may hold pushes of all shards.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.sharding import shards_of

TAG = "kafka-telemetry-lake.shards"  # among the tags of Delta's `add`
MOST = 1000  # shards in a note, of all row groups together: each commit has the notes of its files


@dataclass(frozen=True)
class ShardGroups:
    """The row groups of a file that each shard opens, by its remainder; one of them counts the pushes of a row group.

    Attributes:
        divisor: of which the remainders are.
    """

    divisor: int
    groups: Mapping[int, Sequence[int]]
    counted: Mapping[int, Sequence[int]]

    def of(self, shard: int) -> Sequence[int]:
        """The row groups that may have pushes of a shard."""
        return self.groups.get(shard % self.divisor, ())

    def counted_by(self, shard: int) -> Sequence[int]:
        """The row groups whose pushes a shard counts."""
        return self.counted.get(shard, ())


@dataclass(frozen=True)
class HeldShards:
    """The shards that have pushes in each row group of a file, increasing.

    Attributes:
        shards: number of shards that there were.
    """

    shards: int
    groups: tuple[tuple[int, ...], ...]

    def for_number(self, shards: int) -> ShardGroups:
        """What the note says of so many shards."""
        both = math.gcd(self.shards, shards)
        groups, counted = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for number, held in enumerate(self.groups):
            remainders = {each % both for each in held}
            for each in remainders:
                groups[each].append(number)
            counted[min(remainders)].append(number)
        return ShardGroups(both, dict(groups), dict(counted))

    def to_json(self) -> str | None:
        """The note; None: it would be too long."""
        if sum(map(len, self.groups)) > MOST:
            return None
        return json.dumps({"shards": self.shards, "groups": self.groups}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> HeldShards:
        content = json.loads(text)
        return HeldShards(content["shards"], tuple(map(tuple, content["groups"])))


def held_shards(client_instance_ids: pa.ChunkedArray, shards: int) -> tuple[int, ...]:
    """The shards of so many that have these ids (string; NULL is an id, too)."""
    places = [shards_of(chunk, shards) for chunk in client_instance_ids.chunks]
    return tuple(np.unique(np.concatenate(places)).tolist())
