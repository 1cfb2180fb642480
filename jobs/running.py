"""Streams that run: waiting for their end, stopping them gently, and what made one fail, in one line."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from pipelines.lifecycle_stream import LifecycleStream

STOP_PATIENCE_S = 30
DISK_FULL = "No space left on device"
DATA_LOSS_ADVICE = (
    "-- Records of the landing topic are gone that were not read yet: its retention was too short for the pause, or it "
    "was deleted and made again. Go on without them by one run with --no-fail-on-data-loss, or, for a topic made "
    "again, read it from its beginning with a new --checkpoints folder (nothing is stored twice)."
)


class StreamFailedError(RuntimeError):
    """A stream ended by an error; the message is its first cause, in one line."""


def work_off(queries: Sequence[StreamingQuery | LifecycleStream], stop: threading.Event) -> None:
    """Wait until all queries have ended, one has failed, or a stop is asked for; then none of them runs any more."""
    try:
        while any(query.isActive for query in queries) and not stop.is_set():
            for query in queries:
                if query.exception() is not None:
                    raise StreamFailedError(f"stream {query.name} failed: {cause(str(query.exception()))}")
            stop.wait(0.2)
        for query in queries:
            if query.exception() is not None and not stop.is_set():
                raise StreamFailedError(f"stream {query.name} failed: {cause(str(query.exception()))}")
    except Py4JError:
        if not stop.is_set():  # a supervisor's signal reaches Spark's JVM too, which may be gone before us
            raise
    finally:
        with contextlib.suppress(Py4JError):
            for query in queries:
                _let_finish(query)
                query.stop()


def _let_finish(query: StreamingQuery | LifecycleStream) -> None:
    """Give a running batch a moment: stopped in the middle it would be done again at the next start."""
    deadline = time.monotonic() + STOP_PATIENCE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.1)


def cause(text: str) -> str:
    """What made Spark fail, in one line: the last exception that says something, or what Spark says."""
    told = text.partition("=== Streaming Query ===")[0].partition("terminated with exception: ")
    message = told[2] or told[0]
    exceptions = re.findall(r"^(?:Caused by: )?[\w.]*(?:Error|Exception)\b.{0,40}?: (?!\s*$).+", message, re.MULTILINE)
    line = " ".join((exceptions[-1] if exceptions else message).split())[:500]
    if DISK_FULL in text and DISK_FULL not in line:  # delta-rs names it on another line
        line += f": {DISK_FULL}"
    if "failOnDataLoss" in text or "some data may have been missed" in text:
        line += f" {DATA_LOSS_ADVICE}"
    return line
