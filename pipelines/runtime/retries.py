"""What is said of an error after which something is tried again, and how long it waits."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

LONGEST_PAUSE_S = 300.0
READABLE = (TelemetryLakeError, DeltaError, duckdb.Error, OSError, pa.ArrowException)  # their text is for people


def pause_after(failures: int, error: BaseException) -> float:
    """Seconds before the next try: doubled with each failure from 1 on, and not the same in all threads and processes.

    No shorter than what the error asks for, in an attribute `retry_after`.
    """
    doubled = min(2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S) * random.uniform(0.5, 1)
    return max(doubled, float(getattr(error, "retry_after", 0)))


def describe(error: BaseException) -> str:
    """An error in one line. Of unexpected ones only the type and place: their text may have a URL or token in it."""
    if isinstance(error, READABLE):
        return " ".join(str(error).split())
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "?" if trace is None else f"{trace.tb_lineno} of {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}"
    return f"{type(error).__name__} at line {place}"
