"""A step of the lifecycle while a source is live: a source without records makes its clients silent too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle

LEAST_PAUSE_S = 10.0
# Time that a landed push may take to reach the lake.
GRACE_US = 30_000_000
# Spark's status messages of a query that is waiting for data.
WAITING = ("Waiting for data to arrive", "Waiting for next trigger")


def step(lifecycle: Lifecycle, now: int | None) -> None:
    """One step of the lifecycle, up to the newest push or, if there is none, up to the time that the source has.

    Args:
        now: the time (µs) until which the source is known to have been read; None: not known.
    """
    if not lifecycle.step() and now is not None:
        lifecycle.step(now)


def read_until(status: Mapping[str, Any], trigger_s: float) -> int | None:
    """The time (µs) until which the query of this `StreamingQuery.status` has read its source; None: not known."""
    return int(1e6 * (time.time() - trigger_s)) - GRACE_US if is_caught_up(status) else None


def is_caught_up(status: Mapping[str, Any]) -> bool:
    """Whether a query of this `StreamingQuery.status` has read all of its source, as of its last poll."""
    return status["message"] in WAITING and not status["isDataAvailable"]
