"""Sends messages about findings beside the streams of `ingest`, as `telemetry-lake notify` does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.locks import NOTIFY, LakeBusyError, only
from kafka_telemetry_lake.pipelines.notify.delivery import deliveries
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile, read_notify_file
from kafka_telemetry_lake.pipelines.notify.run import describe, run
from kafka_telemetry_lake.pipelines.notify.topic import Machine
from kafka_telemetry_lake.pipelines.runtime.beside import beside
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES

POLL_S = 5.0
PAUSE_S = 60.0  # after a failure that concerns all sinks
END_PATIENCE_S = 1.0  # a message that is being sent then is sent again by the next start
GIVE_UP_S = 60.0  # of a sink, with --once

log = logging.getLogger("telemetry-lake")


def notifier(
    lake: str, path: Path, stop: threading.Event, *, once: bool
) -> Callable[[SparkSession], AbstractContextManager[None]]:
    """What sends messages while a block runs, to the sinks of a file, with the JVM of a session.

    Raises:
        NotifyFileError: the file is invalid.
    """
    file = read_notify_file(path)
    return lambda spark: notifying(lake, file, lambda: nullcontext(spark), stop, once=once)


@contextmanager
def notifying(lake: str, file: NotifyFile, machine: Machine, stop: threading.Event, *, once: bool) -> Iterator[None]:
    """Send changes of findings while the block runs, or `once` after it. No failure or slow sink ends or delays it.

    Args:
        machine: provides the JVM of producers.
        stop: nothing more is sent once it is set.
    """
    if once:
        yield
        _send(lake, file, machine, stop, GIVE_UP_S)
        return
    with beside("notify", partial(_follow, lake, file, machine), END_PATIENCE_S):
        yield


def _follow(lake: str, file: NotifyFile, machine: Machine, ended: threading.Event) -> None:
    while not ended.is_set():
        _send(lake, file, machine, ended, None)
        ended.wait(PAUSE_S)


def _send(lake: str, file: NotifyFile, machine: Machine, stop: threading.Event, give_up_seconds: float | None) -> None:
    try:
        with only(NOTIFY, lake, ""):
            FINDING_CHANGES.create(lake)
            for problem in run(deliveries(lake, file, machine), stop, POLL_S, give_up_seconds):
                log.warning("notify: %s; the next run sends what it misses", problem)
    except LakeBusyError:
        log.warning("notify: another process sends the messages of this lake; next time again")
    except Exception as error:
        log.error("notify: %s; nothing is sent; next time again", describe(error))
