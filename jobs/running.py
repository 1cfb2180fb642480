"""Waits for running streams, and stops them between batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JError

from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

STOP_PATIENCE_S = 30


class JobFailedError(TelemetryLakeError):
    """The job failed while running; the message is the first cause, in one line."""


class StreamFailedError(JobFailedError):
    """A stream ended with an error."""


class Stream(Protocol):
    """What is read of Spark's ``StreamingQuery``, and of threads that run beside them."""

    @property
    def name(self) -> str: ...

    @property
    def isActive(self) -> bool: ...  # noqa: N802  # as StreamingQuery has it

    @property
    def status(self) -> Mapping[str, Any]: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


def work_off(queries: Sequence[Stream], stop: threading.Event) -> None:
    """Wait until all queries have ended, one has failed, or `stop` is set; then stop those that still run.

    Raises:
        StreamFailedError: a stream failed.
    """
    try:
        ended: list[Stream] = []
        while len(ended) < len(queries) and not stop.wait(0.2):
            ended = [query for query in queries if not query.isActive]  # a call of the JVM, which takes CPU time
            for query in ended:
                if (error := query.exception()) is not None and not stop.is_set():
                    raise StreamFailedError(f"stream {query.name} failed: {cause(str(error))}")
    except Py4JError:
        if not stop.is_set():  # a signal to the process group also ends Spark's JVM, maybe before this process
            raise
    finally:
        with contextlib.suppress(Py4JError):
            for query in queries:
                _let_finish(query)
                query.stop()


def _let_finish(query: Stream) -> None:
    """Wait for the current batch to finish: if it were interrupted, the next start would repeat it."""
    deadline = time.monotonic() + STOP_PATIENCE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.1)
