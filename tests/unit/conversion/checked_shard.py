"""A shard whose rows are compared with the oracle's: examples worked out by hand are then examples of both."""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.udfs.conversion.shard import ShardRows
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from tests.oracle.compare import actual, differences, expected
from tests.oracle.model import SECOND_NS, Settings
from tests.oracle.oracle import Oracle
from tests.oracle.wire import push_of
from tests.support import otlp_builder

TABLES = ("metric_points", "quarantine", "push_outcomes", "client_events")
MICROS = 1_000_000


class Shard(otlp_builder.Shard):
    """`otlp_builder.Shard`, compared batch by batch until a push has what the oracle doesn't know."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self.compares = True
        self._read: set[object] = set()
        self._oracle = Oracle(
            Settings(
                limits.max_points_per_push, limits.redelivery_window_s * SECOND_NS, limits.redelivery_pushes,
                limits.evict_after_s * MICROS, limits.evict_terminated_after_s * MICROS, limits.tombstone_s * MICROS,
            )
        )  # fmt: skip

    def run(self, *pushes: dict[str, Any]) -> ShardRows:
        """Process one micro-batch."""
        rows = super().run(*pushes)
        known = [push_of(push) for push in pushes]
        keys = [push.key for push in known if push is not None]
        is_new = len({*keys, *self._read}) == len(keys) + len(self._read)  # the oracle has no D1
        self.compares = self.compares and None not in known and is_new
        self._read.update(keys)
        if self.compares:
            want = expected([self._oracle.batch([push for push in known if push is not None])])
            found = actual({name: getattr(rows, name).to_pylist() for name in TABLES})
            assert differences(want, found) == ""
        return rows
