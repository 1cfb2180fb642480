"""Runs all deliveries, each in its own thread, so that a sink that is slow or down delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.pipelines.notify.delivery import Delivery
from kafka_telemetry_lake.pipelines.notify.http import pause_after
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

log = logging.getLogger(__name__)


def run(
    deliveries: Sequence[Delivery], stop: threading.Event, poll_seconds: float, give_up_seconds: float | None
) -> list[str]:
    """Deliver until there is nothing more to send, or until `stop` is set.

    Args:
        poll_seconds: pause between two looks for new changes.
        give_up_seconds: try a sink for so long; None: follow new changes until `stop` is set, and never give up.

    Returns:
        A line for each sink that was given up.
    """
    problems: dict[str, str] = {}

    def deliver(delivery: Delivery) -> None:
        with closing(delivery):
            if problem := _deliver(delivery, stop, poll_seconds, give_up_seconds):
                problems[delivery.name] = problem

    # Daemons: the process doesn't wait at its end for a sink that is slow to answer.
    threads = [threading.Thread(target=deliver, args=(each,), name="notify", daemon=True) for each in deliveries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [problems[each.name] for each in deliveries if each.name in problems]


def _deliver(
    delivery: Delivery, stop: threading.Event, poll_seconds: float, give_up_seconds: float | None
) -> str | None:
    follow = give_up_seconds is None
    deadline = time.monotonic() + (give_up_seconds or 0)
    failures = 0
    while not stop.is_set():
        try:
            pause = delivery.step(datetime.now(UTC), at_once=not follow)
        except Exception as error:
            failures += 1
            pause = pause_after(failures, error)
            reason = describe(error)
            if not follow and time.monotonic() + pause > deadline:
                return f"{delivery.name}: {reason}"
            log.warning("notify: %s: %s; tried again in %.0f s", delivery.name, reason, pause)
        else:
            if failures and pause != 0:
                log.info("notify: %s: it takes messages again", delivery.name)
                failures = 0
            if pause is None and not follow:
                return None
            if follow:
                pause = poll_seconds if pause is None else min(pause, poll_seconds)
        stop.wait(pause)
    return None


def describe(error: Exception) -> str:
    """An error in one line. Of unexpected ones only the type, because their text may have a URL in it."""
    if isinstance(error, (TelemetryLakeError, DeltaError, OSError)):
        return " ".join(str(error).split())
    return f"{type(error).__name__} at line {_line(error)}"


def _line(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_lineno} of {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}"
