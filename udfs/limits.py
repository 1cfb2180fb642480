"""All limits on one push, one client and one part of a batch.

docs/limits.md says what happens beyond each limit. A rejection depends on the push alone, never on the rest of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s

MICROS = 1_000_000
NANOS = 1_000_000_000


@dataclass(frozen=True)
class Limits:
    """Bounds of a push, of a client and of the state; docs/rules.md defines the rules named here."""

    # A push, before it is decoded. Most brokers' telemetry.max.bytes bounds only what is compressed (KAFKA-21076).
    max_decompressed_bytes: int = 16 << 20
    # gzip members, lz4 or zstd frames. Clients send one; each costs some microseconds even when it is empty.
    max_frames: int = 1_000
    # snappy-java's blocks have 32 KiB, and never less than 1 KiB.
    max_snappy_blocks: int = 1 << 16

    # A push, decoded.
    max_points_per_push: int = 100_000
    # A name, a scope, the attributes of a point, the labels of a push: bytes.
    max_text_bytes: int = 16 << 10
    # Pairs of one list: OpenTelemetry's AttributeCountLimit is 128 unless configured.
    max_attributes: int = 128
    # Pairs of all points together: five for each point of the largest push.
    max_attributes_per_push: int = 1 << 19
    # Bounds, counts or quantiles of a point, each: the SDKs' exponential histograms have 160 buckets unless configured.
    max_buckets: int = 1024
    # Bounds, counts and quantiles of all points together. One byte of the wire becomes some 100 in columns.
    max_buckets_per_push: int = 1 << 19
    # Text of names, scopes and the client over all rows of a push: a reader of the table gets it once per row.
    max_row_text_bytes: int = 64 << 20
    # Rejected points of a push with a row each; one more row says how many others there are.
    max_listed_points: int = 100
    # Fields and list items of a payload that only the reference decoder reads: Python's objects cost a few us each.
    max_reference_fields: int = 200_000

    # A client: series and histogram buckets in the state.
    max_series_per_client: int = 100_000

    # The state.
    redelivery_window_s: int = 3600
    redelivery_pushes: int = 16
    evict_after_s: int = 86_400
    evict_terminated_after_s: int = 3600
    tombstone_s: int = 30 * 86_400

    # Clocks: how far a point may be ahead of its landing (P8); at most the redelivery window: then D6 rejects no push.
    future_tolerance_s: int = 3600

    # One principal in an hour of landing, 0: any amount; a shard has an equal share of each.
    principal_series_per_hour: int = 200_000_000
    principal_text_bytes_per_hour: int = 64 << 30
    principal_bytes_per_hour: int = 256 << 30

    def of_shard(self, shards: int) -> Limits:
        """The limits with one shard's share of what is a principal's; at least 1 of what is limited."""
        shares = {
            name: getattr(self, name) and max(1, getattr(self, name) // shards)
            for name in ("principal_series_per_hour", "principal_text_bytes_per_hour", "principal_bytes_per_hour")
        }
        return replace(self, **shares)

    def packed(self) -> Int64s:
        """The argument of redelivery's kernel: the window in ns, pushes, and the three ages of eviction in us."""
        seconds = (self.evict_after_s, self.evict_terminated_after_s, self.tombstone_s)
        micros = (value * MICROS for value in seconds)
        return np.array([self.redelivery_window_s * NANOS, self.redelivery_pushes, *micros], np.int64)


@dataclass(frozen=True)
class Budget:
    """The size of a part of a batch: it has at least one push, and ends when one of these sums is reached.

    It limits a task's memory whatever the pushes contain, and changes no row.
    """

    bytes: int = 32 << 20  # decompressed
    pushes: int = 1 << 16
    points: int = 1 << 18
    attributes: int = 1 << 19  # pairs of distinct lists
    buckets: int = 1 << 21
    row_text_bytes: int = 128 << 20  # an Arrow string column takes 2 GiB
    reference_fields: int = 400_000


DEFAULT_LIMITS = Limits()
BUDGET = Budget()
NO_BUDGET = Budget(*[1 << 62] * 7)

# Names and attribute keys that a task's rollups collect before they are written, bytes.
ROLLUP_TEXT_BYTES = 64 << 20
