"""Follows table `metric_points`: appends clients' quota reports to `quota_reports`, and computes their windows again.

It runs in a thread of the driver, without Spark's engine. A note in the folder of `quota_reports` says how far it has
read. Where the log of `metric_points` no longer has the next commits, it reads the files that were written since, and
passes over the reports that are stored already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.operator_task import without
from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit, FollowedTable
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY
from kafka_telemetry_lake.pipelines.lake.stored_files import files_since
from kafka_telemetry_lake.pipelines.lake.transactions import append_once, has_committed
from kafka_telemetry_lake.pipelines.quotas.client_reports import minutes_of, read_reports, replace_estimates
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened

log = logging.getLogger(__name__)

STREAM = "quota_reports"
APP_ID = "kafka-telemetry-lake:client_reports"
PAUSE_S = 60.0  # a push covers minutes, and a step has fixed costs
STEP_BYTES = 256 << 20  # of metric_points; about a twentieth of the points are quota reports
FIELDS = ("read", "step", "guarded", "under_way")
ANEW = "delete it, and all points are read again (nothing is stored twice)"


@dataclass(frozen=True)
class Read:
    """How far all points are read: up to a version of `metric_points`, at a time (ISO 8601)."""

    version: int
    at: str


@dataclass(frozen=True)
class Step:
    """A step under way: how far it reads, and the minutes (Unix seconds) whose windows it computes."""

    read: Read
    minutes: tuple[int, ...]


@dataclass(frozen=True)
class Position:
    """What the note says.

    Attributes:
        step: number of the last step that is done.
        guarded: some of the reports that come next may be stored already.
    """

    read: Read
    step: int
    guarded: bool
    under_way: Step | None = None


def knows_quotas(lake: str) -> bool:
    """Whether the lake has table `quotas`, which is needed to relate clients' usage to their limits."""
    return DeltaTable.is_deltatable(QUOTAS.uri(lake))


class ReportFollower:
    """The quota reports of one lake. One process at a time.

    Args:
        fence: the claim under which the tables are written.
        opened: tables of the lake that are open already.

    Raises:
        OtherFormatError: the note has another format.
    """

    def __init__(self, lake: str, fence: Fence | None = None, opened: Opened = NOT_OPENED) -> None:
        self._lake, self._fence = lake, fence
        for table in (METRIC_POINTS, QUOTA_REPORTS, QUOTA_USAGE):
            if table.name not in opened:
                table.create(lake)
        self._points = FollowedTable(METRIC_POINTS.uri(lake))
        self._note = FencedNote(QUOTA_REPORTS.uri(lake), "_client_reports", FIELDS, ANEW, fence)
        self._position = self._read_note() or self._first_position()
        if (step := self._position.under_way) is not None:
            self._finish(step)

    def step(self) -> bool:
        """Read the next new points, up to about `STEP_BYTES`; returns whether there were any."""
        commits, at = list[Commit](), _now()
        try:
            for commit in self._points.commits(self._position.read.version):
                commits.append(commit)
                if sum(each.size for each in commits) >= STEP_BYTES:
                    break
            reports = read_reports(self._lake, [file for commit in commits for file in commit.files])
        except (LogGapError, FileNotFoundError) as error:
            log.info("%s: reads the stored points, not their commits: %s", STREAM, error)
            self._read_files()
            return True
        if commits:
            self._store(reports, Read(commits[-1].version, at))
        elif self._position.guarded:
            self._write_note(replace(self._position, guarded=False))
        return bool(commits)

    def catch_up(self) -> None:
        """Read all points that are stored."""
        while self.step():
            pass

    def _read_files(self) -> None:
        """Read every file that may have been written since the position, in parts of a step each."""
        at, points = _now(), DeltaTable(METRIC_POINTS.uri(self._lake))
        read = self._position.read
        read_at = datetime.fromisoformat(read.at)
        record_dropped(self._lake, STREAM, METRIC_POINTS, read.version, read_at, self._fence)
        files = files_since(points, read_at)
        self._write_note(replace(self._position, guarded=True))
        for paths in _parts(files):
            self._store(read_reports(self._lake, paths), self._position.read)
        self._write_note(replace(self._position, read=Read(points.version(), at)))

    def _unstored(self, reports: pa.Table) -> pa.Table:
        if reports.num_rows == 0:
            return reports
        bounds = pc.min_max(reports["landed_at"]).as_py()
        within = (pads.field("landed_at") >= bounds["min"]) & (pads.field("landed_at") <= bounds["max"])
        stored = DeltaTable(QUOTA_REPORTS.uri(self._lake)).to_pyarrow_dataset().to_table(list(IDENTITY), filter=within)
        return without(reports, stored)

    def _store(self, reports: pa.Table, read: Read) -> None:
        """Append reports, compute their windows, and note how far all is read then."""
        minutes = tuple(minutes_of(reports))  # a crash may have come between stored reports and their windows
        if self._position.guarded:
            reports = self._unstored(reports)
        if not (minutes or reports.num_rows):
            self._write_note(replace(self._position, read=read))
            return
        began = time.monotonic()
        step = Step(read, minutes)
        self._write_note(replace(self._position, under_way=step))
        delta = DeltaTable(QUOTA_REPORTS.uri(self._lake))
        append_once(QUOTA_REPORTS, delta, reports, APP_ID, self._position.step + 1, self._fence)
        self._finish(step)
        log.info(
            "%s: step %d: %d reports, %.1f s",
            STREAM, self._position.step, reports.num_rows, time.monotonic() - began,
        )  # fmt: skip

    def _finish(self, step: Step) -> None:
        """Compute the windows of a step whose reports are stored. One that was cut off before is begun again."""
        number, position = self._position.step + 1, replace(self._position, under_way=None)
        if has_committed(DeltaTable(QUOTA_REPORTS.uri(self._lake)), APP_ID, number):
            replace_estimates(self._lake, step.minutes, APP_ID, number, self._fence)
            position = replace(position, read=step.read, step=number)
        self._write_note(position)

    def _first_position(self) -> Position:
        """Where a lake without a note begins: before all points."""
        reports, usage = (DeltaTable(table.uri(self._lake)) for table in (QUOTA_REPORTS, QUOTA_USAGE))
        step = max(table.transaction_version(APP_ID) or 0 for table in (reports, usage))
        return Position(Read(-1, f"{datetime.fromtimestamp(0, UTC)}"), step, reports.count() > 0)

    def _read_note(self) -> Position | None:
        content = self._note.read()
        if content is None:
            return None
        step = content.pop("under_way")
        under_way = step and Step(Read(**step["read"]), tuple(step["minutes"]))
        return Position(Read(**content.pop("read")), **content, under_way=under_way)

    def _write_note(self, position: Position) -> None:
        if position != self._position:
            self._note.write(asdict(position))
            self._position = position


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _parts(files: pa.Table) -> Iterator[list[str]]:
    """The paths of files, in the order of their writing, in parts of about `STEP_BYTES`."""
    part, size = list[str](), 0
    for row in files.select(["path", "size_bytes", "modification_time"]).sort_by("modification_time").to_pylist():
        part.append(unquote(row["path"]))
        size += row["size_bytes"]
        if size >= STEP_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
