"""Notes, in the commit that adds a file of pushes, which shards have pushes in it: other tasks needn't open it.

A note is for the number of shards at the time of writing. With another number it says less, but never too little: of
two numbers of shards a client has the same remainder by their greatest common divisor. A file without a note (of an
earlier release, merged, or of another writer) may hold pushes of all shards.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.sharding import shards_of

TAG = "kafka-telemetry-lake.shards"  # among the tags of Delta's `add`
MOST = 1000  # shards in a note, of all row groups together: each commit has the notes of its files


@dataclass(frozen=True)
class HeldShards:
    """The shards that have pushes in each row group of a file, increasing.

    Attributes:
        shards: number of shards that there were.
    """

    shards: int
    groups: tuple[tuple[int, ...], ...]

    def of(self, shard: int, shards: int) -> list[int]:
        """The row groups that may have pushes of a shard, of so many."""
        both = math.gcd(self.shards, shards)
        return [number for number, held in enumerate(self.groups) if any((each - shard) % both == 0 for each in held)]

    def counted_by(self, shard: int, shards: int) -> list[int]:
        """Those of them whose pushes this shard counts; each row group has one shard that does."""
        both = math.gcd(self.shards, shards)
        return [number for number, held in enumerate(self.groups) if min(each % both for each in held) == shard]

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
