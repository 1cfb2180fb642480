"""Computes quota usage from brokers' samples: follows table `quota_samples`, writes windows of `quota_usage`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.quotas.windows import WINDOWS, WindowFollower, at, replace_windows
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_SAMPLES
from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, micros, quota_usage
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

STREAM = "quota_usage"
APP_ID = "kafka-telemetry-lake:broker_usage"
PAUSE_S = 30.0  # between two steps of the job
TIMES = pa.schema([("time", TIMESTAMP)])
MINUTE_S = 60


def sample_windows(lake: str, fence: Fence | None = None) -> WindowFollower:
    """What computes the windows of brokers' samples."""
    return WindowFollower(Lake(lake, fence), QUOTA_SAMPLES, STREAM, APP_ID, TIMES, minutes_of, replace_usage)


def minutes_of(samples: pa.Table) -> list[int]:
    """Unix seconds of the minutes that the times of samples are in, ascending, each once."""
    return sorted(MINUTE_S * number for number in np.unique(micros(samples["time"]) // (MINUTE_S * 1_000_000)).tolist())


def replace_usage(lake: Lake, minutes: Sequence[int], versions: Mapping[str, int]) -> None:
    """Recompute the windows of these minutes (Unix seconds, ascending) from all stored samples of brokers.

    Args:
        versions: of applications (`txn`), which the commit carries.
    """
    stored = lake.rows(QUOTA_SAMPLES)

    def usage_of(start: int, end: int) -> Iterator[pa.Table]:
        for hour in range(start, end, 3600):
            low, high = (pa.scalar(at(edge), TIMESTAMP) for edge in (hour, min(hour + 3600, end)))
            within = (ds.field("time") >= low) & (ds.field("time") < high)
            samples_of_hour = stored.to_table(SAMPLES_IN.names, filter=within).cast(SAMPLES_IN)
            for seconds in WINDOWS:
                yield quota_usage(samples_of_hour, seconds)

    replace_windows(lake, ["broker"], minutes, usage_of, versions)
