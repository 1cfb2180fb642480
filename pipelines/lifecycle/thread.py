"""Runs the lifecycle in a thread next to the job's streams, monitored and stopped like a Spark query."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle

LEAST_PAUSE_S = 10.0
# Time that a landed push may take to reach the lake.
GRACE_US = 30_000_000
# Spark's status messages of a query that is waiting for data.
WAITING = ("Waiting for data to arrive", "Waiting for next trigger")


class LifecycleStream:
    """Follows the lake until it is stopped; then it processes the remaining rows and ends.

    Args:
        pause_s: seconds to wait between two steps.
        read_until: returns the time (µs) until which the source is known to have been read; None: not known.
    """

    name = "lifecycle"

    def __init__(self, lifecycle: Lifecycle, pause_s: float, read_until: Callable[[], int | None]) -> None:
        self._lifecycle, self._pause_s, self._read_until = lifecycle, pause_s, read_until
        self._stop = threading.Event()
        self._working = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802  # as StreamingQuery has it
        return self._thread.is_alive()

    @property
    def status(self) -> Mapping[str, bool]:
        return {"isTriggerActive": self._working}

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause_s):
                self._working = True
                now = self._read_until()
                if not self._lifecycle.step() and now is not None:
                    self._lifecycle.step(now)
                self._working = False
            self._lifecycle.catch_up()
        except Exception as error:  # the job reports it, whatever it is
            self._error = error
        finally:
            self._working = False


def is_caught_up(status: Mapping[str, Any]) -> bool:
    """Whether a query of this `StreamingQuery.status` has read all of its source, as of its last poll."""
    return status["message"] in WAITING and not status["isDataAvailable"]


def start_lifecycle(
    lifecycle: Lifecycle, status_of_pushes: Callable[[], Mapping[str, Any]], trigger_s: float
) -> LifecycleStream:
    """Start the lifecycle's thread next to the stream that stores pushes."""

    def read_until() -> int | None:
        return int(1e6 * (time.time() - trigger_s)) - GRACE_US if is_caught_up(status_of_pushes()) else None

    return LifecycleStream(lifecycle, max(LEAST_PAUSE_S, trigger_s), read_until)
