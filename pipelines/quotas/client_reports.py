"""Computes quota usage from clients' own metrics: byte counters and throttle delays.

It follows table `metric_points`, appends clients' quota reports to `quota_reports`, and computes their windows: rows of
`quota_usage` with source `client` and `evidence`, in addition to those from brokers' samples. It runs in a thread of
the driver, without Spark's engine. The commit of reports carries the position in `metric_points`, that of their windows
the one in `quota_reports`, so each goes on where it was.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.ingest.push_files import table_paths
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, without
from kafka_telemetry_lake.pipelines.lake.transactions import append
from kafka_telemetry_lake.pipelines.quotas.windows import WINDOWS, WindowFollower, at, replace_windows
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, NOT_OPENED, Opened
from kafka_telemetry_lake.udfs.quotas.limits import Version, limits_over_time
from kafka_telemetry_lake.udfs.quotas.reports import (
    MAX_INTERVAL_S,
    METRICS,
    POINTS_IN,
    estimated_usage,
    quota_reports,
    throttle_evidence,
)
from kafka_telemetry_lake.udfs.quotas.usage import USAGE, micros
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

log = logging.getLogger(__name__)

EVIDENCE_LASTS_S = 60  # a Java client reports a delay for this long, even if the quota has been removed since
CHUNK_S = 600  # time span of the windows that are computed at once
RECORD = ("source", "topic", "partition", "offset", "landed_at")
STREAM = "quota_reports"
APP_ID = "kafka-telemetry-lake:client_reports"
PAUSE_S = 60.0  # a push covers minutes, and a step has fixed costs
STEP_BYTES = 256 << 20  # of metric_points; about a twentieth of the points are quota reports
NOTED_EVERY = timedelta(hours=1)  # the position, if points have no reports: each is a commit
SPANS = pa.schema([QUOTA_REPORTS.schema.field(name) for name in ("time", "delta_start")])


def read_reports(lake: Lake, uris: Sequence[str]) -> pa.Table:
    """Read the reports (``udfs.quotas.reports.REPORTS``) among the points of some files of `metric_points`."""
    filesystem, root = lake.folder(METRIC_POINTS)
    reports = []
    for path in table_paths(uris, METRIC_POINTS):
        with filesystem.open_input_file(f"{root}/{path}") as stream:
            points = _points(stream)
        reports.append(quota_reports(points, _principals(lake, points)))
    return pa.concat_tables(reports) if reports else QUOTA_REPORTS.schema.empty_table()


def _points(stream: pa.NativeFile) -> pa.Table:
    """The points of a file that may be quota reports. Text is read as dictionaries, at a third of the cost."""
    schema = pq.read_schema(stream)
    names = [name for name in POINTS_IN.names if name in schema.names]
    texts = [name for name in names if pa.types.is_string(schema.field(name).type)]
    texts += [f"attributes.key_value.{side}" for side in ("key", "value") if "attributes" in names]
    file = pq.ParquetFile(stream, read_dictionary=texts)
    groups = [POINTS_IN.empty_table()]
    for number in range(file.num_row_groups):
        points = file.read_row_group(number, names)
        points = points.filter(pc.is_in(points["metric"], pa.array(METRICS)))
        for field in POINTS_IN:
            if field.name not in names:  # the file omits columns whose values are all NULL
                points = points.append_column(field, pa.nulls(points.num_rows, field.type))
        groups.append(points.select(POINTS_IN.names).cast(POINTS_IN))
    return pa.concat_tables(groups)


def _principals(lake: Lake, points: pa.Table) -> pa.ChunkedArray:
    """The principal of each point's push."""
    if points.num_rows == 0:
        return pa.chunked_array([], pa.string())
    records = points.select(RECORD).group_by(list(RECORD)).aggregate([])
    days = pc.unique(pc.cast(records["landed_at"], LANDED_DATE.type))
    files = files_table(lake.table(PUSHES))
    pushes = lake.rows_in(PUSHES, files.filter(pc.is_in(files["day"], days.cast(pa.string()))))
    principals = pa.schema([PUSHES.schema.field(name) for name in (*RECORD, "principal")]).empty_table()
    for partition in pc.unique(records["partition"]).to_pylist():
        span = pc.min_max(records.filter(pc.field("partition") == partition)["offset"]).as_py()
        wanted = pads.field(LANDED_DATE.name).isin(days) & (pads.field("partition") == partition)
        wanted &= (pads.field("offset") >= span["min"]) & (pads.field("offset") <= span["max"])
        rows = pushes.to_table(principals.column_names, filter=wanted)
        principals = pa.concat_tables([principals, rows.cast(principals.schema)])
    numbered = points.select(RECORD).append_column("row", pa.array(range(points.num_rows), pa.int64()))
    return numbered.join(principals, list(RECORD)).sort_by("row")["principal"]


def minutes_of(reports: pa.Table) -> list[int]:
    """Unix seconds of the minutes whose windows these reports affect, ascending."""
    last = micros(reports["time"])
    first = micros(pc.coalesce(reports["delta_start"], reports["time"]))
    near = last - first <= MAX_INTERVAL_S * 1_000_000
    minute = 60 * 1_000_000
    spans = np.unique(np.stack([first[near] // minute, last[near] // minute]), axis=1)
    minutes = {number for start, end in spans.T.tolist() for number in range(start, end + 1)}
    return [60 * number for number in sorted(minutes)]


def replace_estimates(lake: Lake, minutes: Sequence[int], versions: Mapping[str, int]) -> None:
    """Recompute the windows of these minutes (Unix seconds, ascending) from all stored reports of clients.

    Args:
        versions: of applications (`txn`), which the commit carries.
    """
    stored = lake.rows(QUOTA_REPORTS)
    limits: dict[str | None, list[Version]] = defaultdict(list)
    for version_row in lake.create(QUOTAS).to_pyarrow_table().to_pylist():
        limits[version_row["cluster_id"]].append(version_row)

    def usage_of(start: int, end: int) -> Iterator[pa.Table]:
        yield USAGE.empty_table()
        for first in range(start, end, CHUNK_S):
            last = min(first + CHUNK_S, end)
            low, high = pa.scalar(at(first), TIMESTAMP), pa.scalar(at(last), TIMESTAMP)
            furthest = pa.scalar(at(last) + timedelta(seconds=MAX_INTERVAL_S), TIMESTAMP)
            within = (pads.field("time") >= low) & (pads.field("time") <= furthest)
            within &= pads.field("delta_start").is_null() | (pads.field("delta_start") < high)
            reports = stored.to_table(QUOTA_REPORTS.schema.names, filter=within)
            for cluster in pc.unique(reports["cluster_id"]).to_pylist():
                named = pc.field("cluster_id").is_null() if cluster is None else pc.field("cluster_id") == cluster
                yield from cluster_usage(reports.filter(named), limits[cluster], first, last)

    replace_windows(lake, ["client", "evidence"], minutes, usage_of, versions)


def cluster_usage(reports: pa.Table, versions: Sequence[Version], start: int, end: int) -> Iterator[pa.Table]:
    """Compute rows of `quota_usage` for one cluster's windows from start to end (Unix seconds, whole minutes).

    Args:
        reports: columns of ``udfs.quotas.reports.REPORTS``.
        versions: the cluster's rows of table `quotas`.
    """
    for quota_type in pc.unique(reports["quota_type"]).to_pylist():
        mine = reports.filter(pc.field("quota_type") == quota_type)
        moved, delayed = mine.filter(pc.field("bytes").is_valid()), mine.filter(pc.field("throttle_ms").is_valid())
        for seconds in WINDOWS:
            for span in limits_over_time(versions, quota_type, start, end, seconds, EVIDENCE_LASTS_S):
                yield throttle_evidence(delayed, quota_type, span.limits, seconds, span.start, span.end)
            for span in limits_over_time(versions, quota_type, start, end, seconds):
                if span.limits:
                    yield estimated_usage(moved, quota_type, span.limits, seconds, span.start, span.end)


def knows_quotas(lake: str) -> bool:
    """Whether the lake has table `quotas`, which is needed to relate clients' usage to their limits."""
    return Lake(lake).has(QUOTAS)


class ReportFollower:
    """The quota reports of one lake. One process at a time.

    Args:
        fence: the lease under which the tables are written.
        opened: tables of the lake that are open already.
    """

    def __init__(self, lake: str, fence: Fence | None = None, opened: Opened = NOT_OPENED) -> None:
        self._lake = Lake(lake, fence)
        tables = {each.name: opened.get(each.name) or each.create(lake) for each in (QUOTA_REPORTS, QUOTA_USAGE)}
        read = partial(read_reports, self._lake)
        self._follower = Follower(
            lake, METRIC_POINTS, Gap.GO_ON, STREAM, read, most_bytes=STEP_BYTES, fence=fence, opened=opened
        )
        self._windows = WindowFollower(
            self._lake, QUOTA_REPORTS, f"{STREAM}:windows", f"{APP_ID}:windows", SPANS, minutes_of, replace_estimates,
            tables,
        )  # fmt: skip
        self._position = self._noted = self._follower.committed(tables[QUOTA_REPORTS.name], APP_ID)

    def step(self) -> bool:
        """Read the next new points, up to about `STEP_BYTES`; returns whether there were any."""
        for step in self._follower.steps(self._position):
            # After a gap, some may be stored already.
            self._append(self._unstored(step.rows) if step.first is None else step.rows, step.position)
            if step.position != self._position:
                self._position = step.position
                self._windows.catch_up()
                return True
        self._windows.catch_up()
        return False

    def catch_up(self) -> None:
        """Read all points that are stored."""
        while self.step():
            pass

    def _append(self, reports: pa.Table, position: Position) -> None:
        before, now = self._noted.read_at, position.read_at
        if reports.num_rows or before is None or now is None or now - before >= NOTED_EVERY:
            delta = self._lake.table(QUOTA_REPORTS)
            append(QUOTA_REPORTS, delta, reports, position.transactions(APP_ID), self._lake.fence)
            log.info("%s: %d reports", STREAM, reports.num_rows)
            self._noted = position

    def _unstored(self, reports: pa.Table) -> pa.Table:
        if reports.num_rows == 0:
            return reports
        bounds = pc.min_max(reports["landed_at"]).as_py()
        within = (pads.field("landed_at") >= bounds["min"]) & (pads.field("landed_at") <= bounds["max"])
        stored = self._lake.rows(QUOTA_REPORTS).to_table(list(IDENTITY), filter=within)
        return without(reports, stored)
