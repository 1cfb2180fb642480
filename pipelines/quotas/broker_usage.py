"""Computes quota usage from brokers' samples: follows table `quota_samples`, writes windows of `quota_usage`.

It runs in a thread of the driver, without Spark's engine. A step recomputes the windows of every minute with a new
sample from all stored samples of that minute. So late samples correct their window, and a repeated step gives the same
rows. The commit of a step carries the version of `quota_samples` that it has read up to; the next step, also after a
crash, goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from datetime import time as time_of_day

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import files_of
from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.quotas.windows import WINDOWS, at, replace_windows
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_SAMPLES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, micros, quota_usage
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

log = logging.getLogger(__name__)

STREAM = "quota_usage"
APP_ID = "kafka-telemetry-lake:broker_usage"
PAUSE_S = 30.0  # between two steps of the job
STEP_ROWS = 200_000  # a step reads whole commits until they have this many samples
TIMES = pa.schema([("time", TIMESTAMP)])
MINUTE_S = 60


class BrokerUsage:
    """The windows of one lake. One process at a time: that of the claim `fence`."""

    def __init__(self, lake: str, fence: Fence | None = None) -> None:
        self._lake, self._fence = lake, fence
        self._samples = FollowedTable(QUOTA_SAMPLES.uri(lake))
        self._position: int | None = None  # version of `quota_samples` up to which all windows are computed

    def step(self) -> bool:
        """Recompute the windows of the next new samples; returns whether there may be more."""
        if not DeltaTable.is_deltatable(self._samples.uri):
            return False
        if self._position is None:
            self._position = self._first_position()
        began, version, rows, files = time.monotonic(), self._position, 0, list[str]()
        try:
            for commit in self._samples.commits(self._position):
                version, rows = commit.version, rows + commit.rows
                files += commit.files
                if rows >= STEP_ROWS:
                    break
        except LogGapError as error:
            log.info("quota_usage: the latest days are computed again: %s", error)
            self._position = self._recompute(self._position)
            return True
        if files:
            minutes = minutes_of(self._times(files))
            replace_usage(self._lake, minutes, APP_ID, version, self._fence)
            log.info("quota_usage: %d minutes computed, %.1f s", len(minutes), time.monotonic() - began)
        self._position = version
        return bool(files)

    def catch_up(self) -> None:
        """Compute the windows of all samples that are stored."""
        while self.step():
            pass

    def _times(self, files: list[str]) -> pa.ChunkedArray:
        """The times of the samples in these files; of their whole days, if files were compacted and deleted since."""
        try:
            return self._samples.read(files, TIMES)["time"]
        except FileNotFoundError:  # the job was stopped for long
            days = {date.fromisoformat(file.partition("/")[0].partition("=")[2]) for file in files}
            self._record_dropped(min(days))
            stored = DeltaTable(self._samples.uri).to_pyarrow_dataset()
            return stored.to_table(["time"], filter=ds.field(LANDED_DATE.name).isin(sorted(days)))["time"]

    def _recompute(self, position: int) -> int:
        """Compute the windows of all days since the last window, and return the version that they include."""
        samples = DeltaTable(self._samples.uri)
        stored, version = samples.to_pyarrow_dataset(), int(samples.version())
        windows = DeltaTable(QUOTA_USAGE.uri(self._lake)).to_pyarrow_dataset().filter(ds.field("source") == "broker")
        last = pc.max(windows.to_table([LANDED_DATE.name])[LANDED_DATE.name]).as_py()
        self._record_dropped(last)
        since = last or date.min
        days = sorted({day for row in files_of(samples) if (day := row["partition"][LANDED_DATE.name]) >= f"{since}"})
        # Each commit has a version of its own: less than the table's latest until the last day.
        for group in np.array_split(days, min(len(days), version - position)) if days else ():
            position = version if group[-1] == days[-1] else position + 1
            of_days = ds.field(LANDED_DATE.name).isin([date.fromisoformat(day) for day in group])
            times = stored.to_table(["time"], filter=of_days)["time"]
            replace_usage(self._lake, minutes_of(times), APP_ID, position, self._fence)
        return version

    def _record_dropped(self, since: date | None) -> None:
        """Record the days of samples since a day that retention has dropped; None: since a day that isn't known."""
        assert self._position is not None  # a step has asked for it
        read_at = None if since is None else datetime.combine(since, time_of_day(), UTC)
        record_dropped(self._lake, STREAM, QUOTA_SAMPLES, self._position, read_at, self._fence)

    def _first_position(self) -> int:
        position = QUOTA_USAGE.create(self._lake).transaction_version(APP_ID)
        return -1 if position is None else position


def minutes_of(times: pa.ChunkedArray) -> list[int]:
    """Unix seconds of the minutes that these times are in, ascending, each once."""
    return sorted(MINUTE_S * number for number in np.unique(micros(times) // (MINUTE_S * 1_000_000)).tolist())


def replace_usage(lake: str, minutes: Sequence[int], app_id: str, version: int, fence: Fence | None = None) -> None:
    """Recompute the windows of these minutes (Unix seconds, ascending) from all stored samples of brokers."""
    stored = DeltaTable(QUOTA_SAMPLES.uri(lake)).to_pyarrow_dataset()

    def usage_of(start: int, end: int) -> Iterator[pa.Table]:
        for hour in range(start, end, 3600):
            low, high = (pa.scalar(at(edge), TIMESTAMP) for edge in (hour, min(hour + 3600, end)))
            within = (ds.field("time") >= low) & (ds.field("time") < high)
            samples_of_hour = stored.to_table(SAMPLES_IN.names, filter=within).cast(SAMPLES_IN)
            for seconds in WINDOWS:
                yield quota_usage(samples_of_hour, seconds)

    replace_windows(lake, ["broker"], minutes, usage_of, app_id, version, fence)
