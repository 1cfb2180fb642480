"""Sends all that there is to all sinks, once: one that is slow or down delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kafka_telemetry_lake.pipelines.notify.delivery import Delivery
from kafka_telemetry_lake.pipelines.runtime.retries import describe, pause_after

log = logging.getLogger(__name__)


def send_all(deliveries: Sequence[Delivery], stop: threading.Event, give_up_s: float) -> list[str]:
    """Deliver until there is nothing more to send, or until `stop` is set.

    Args:
        give_up_s: try a sink for so long.

    Returns:
        A line for each sink that was given up.
    """
    with ThreadPoolExecutor(len(deliveries), "notify") as threads:
        problems = list(threads.map(lambda each: _send_all(each, stop, give_up_s), deliveries))
    return [f"{each.name}: {problem}" for each, problem in zip(deliveries, problems, strict=True) if problem]


def _send_all(delivery: Delivery, stop: threading.Event, give_up_s: float) -> str | None:
    deadline, failures = time.monotonic() + give_up_s, 0
    while not stop.is_set():
        try:
            delivery.deliver(stop)
            return None
        except Exception as error:
            failures += 1
            pause, reason = pause_after(failures, error), describe(error)
            if time.monotonic() + pause > deadline:
                return reason
            log.warning("notify: %s: %s; tried again in %.0f s", delivery.name, reason, pause)
        stop.wait(pause)
    return None
