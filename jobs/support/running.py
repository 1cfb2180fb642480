"""Waits for the query that is the job, and stops it between batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STOP_PATIENCE_S = 30


class JobFailedError(TelemetryLakeError):
    """The job failed while running; the message is the first cause, in one line."""


class StreamFailedError(JobFailedError):
    """A stream ended with an error."""


class RunningQuery:
    """A started streaming query, which is the job: its failure ends that.

    Args:
        start: starts the query from its checkpoint.
        goes_on: whether it is started again after this failure, and not failed; logs why.
    """

    def __init__(self, start: Callable[[], StreamingQuery], goes_on: Callable[[str], bool] = lambda _: False) -> None:
        self._start, self._goes_on = start, goes_on
        self._query = start()

    @property
    def status(self) -> Mapping[str, Any]:
        """Spark's status of the query, for any thread."""
        return self._query.status

    def work_off(self, stop: threading.Event) -> None:
        """Wait until the query has ended, or `stop` is set; then stop it.

        Raises:
            StreamFailedError: it failed.
        """
        try:
            while not stop.wait(0.2):
                if self._query.isActive:  # a call of the JVM, which takes CPU time
                    continue
                if (error := self._query.exception()) is None or stop.is_set():
                    return
                if not self._goes_on(str(error)):
                    raise StreamFailedError(f"stream {self._query.name} failed: {cause(str(error))}")
                self._query = self._start()
        except Py4JError:
            if not stop.is_set():  # a signal to the process group also ends Spark's JVM, maybe before this process
                raise
        finally:
            with contextlib.suppress(Py4JError):
                self._let_finish()
                self._query.stop()

    def _let_finish(self) -> None:
        """Wait for the current batch to finish: if it were interrupted, the next start would repeat it."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.1)
