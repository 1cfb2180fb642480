"""Sends what is due to one sink, or all that there is to all sinks: one that is slow or down delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

from kafka_telemetry_lake.pipelines.notify.delivery import Delivery
from kafka_telemetry_lake.pipelines.runtime.retries import describe, pause_after

log = logging.getLogger(__name__)


def send_due(delivery: Delivery, poll_s: float, ended: threading.Event) -> None:
    """Send what is due in the next `poll_s`, or until `ended` is set.

    Raises:
        SinkDownError: the sink didn't take a message; the next call sends it again.
    """
    while not ended.is_set():
        pause = delivery.step(datetime.now(UTC), at_once=False)
        if pause is None or pause > poll_s:
            return
        ended.wait(pause)


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
    with closing(delivery):
        while not stop.is_set():
            try:
                pause = delivery.step(datetime.now(UTC), at_once=True)
            except Exception as error:
                failures += 1
                pause, reason = pause_after(failures, error), describe(error)
                if time.monotonic() + pause > deadline:
                    return reason
                log.warning("notify: %s: %s; tried again in %.0f s", delivery.name, reason, pause)
            else:
                if pause is None:
                    return None
                failures = 0 if pause == 0 else failures
            stop.wait(pause)
    return None
