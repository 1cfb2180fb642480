"""Follows table `metric_points`: appends clients' quota reports to `quota_reports`, and computes their windows.

It runs in a thread of the driver, without Spark's engine. The commit of reports carries the position in
`metric_points`, that of their windows the one in `quota_reports`, so each goes on where it was.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.operator_task import without
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.lake.transactions import append
from kafka_telemetry_lake.pipelines.quotas.client_reports import minutes_of, read_reports, replace_estimates
from kafka_telemetry_lake.pipelines.quotas.windows import WindowFollower
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened

log = logging.getLogger(__name__)

STREAM = "quota_reports"
APP_ID = "kafka-telemetry-lake:client_reports"
PAUSE_S = 60.0  # a push covers minutes, and a step has fixed costs
STEP_BYTES = 256 << 20  # of metric_points; about a twentieth of the points are quota reports
NOTED_EVERY = timedelta(hours=1)  # the position, if points have no reports: each is a commit
SPANS = pa.schema([QUOTA_REPORTS.schema.field(name) for name in ("time", "delta_start")])


def knows_quotas(lake: str) -> bool:
    """Whether the lake has table `quotas`, which is needed to relate clients' usage to their limits."""
    return DeltaTable.is_deltatable(QUOTAS.uri(lake))


class ReportFollower:
    """The quota reports of one lake. One process at a time.

    Args:
        fence: the claim under which the tables are written.
        opened: tables of the lake that are open already.
    """

    def __init__(self, lake: str, fence: Fence | None = None, opened: Opened = NOT_OPENED) -> None:
        self._lake, self._fence = lake, fence
        tables = {each.name: opened.get(each.name) or each.create(lake) for each in (QUOTA_REPORTS, QUOTA_USAGE)}
        read = partial(read_reports, lake)
        self._follower = Follower(
            lake, METRIC_POINTS, Gap.GO_ON, STREAM, read, most_bytes=STEP_BYTES, fence=fence, opened=opened
        )
        self._windows = WindowFollower(
            lake, QUOTA_REPORTS, f"{STREAM}:windows", f"{APP_ID}:windows", SPANS, minutes_of, replace_estimates, fence,
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
            delta = DeltaTable(QUOTA_REPORTS.uri(self._lake))
            append(QUOTA_REPORTS, delta, reports, position.transactions(APP_ID), self._fence)
            log.info("%s: %d reports", STREAM, reports.num_rows)
            self._noted = position

    def _unstored(self, reports: pa.Table) -> pa.Table:
        if reports.num_rows == 0:
            return reports
        bounds = pc.min_max(reports["landed_at"]).as_py()
        within = (pads.field("landed_at") >= bounds["min"]) & (pads.field("landed_at") <= bounds["max"])
        stored = DeltaTable(QUOTA_REPORTS.uri(self._lake)).to_pyarrow_dataset().to_table(list(IDENTITY), filter=within)
        return without(reports, stored)
