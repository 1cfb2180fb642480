"""Follows a Delta table from a position: its new rows in steps of bounded size, also where its log has a gap.

A gap is one of these: the log has forgotten the next commit, the files of a commit are gone (merged and deleted), the
table was made again, or it ends before the position (it was restored from an earlier time). What follows then is said
once, by the `Gap` of a follower, and what retention has dropped unread is recorded here.

Whose result is a commit of a Delta table stores its `Position` in that commit: `Position.transactions` and
`Follower.committed`. Others keep it in a note (`lake.notes`): `Position.stored` and `Position.of`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import LogGapError, StateError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_files import files_since, files_table
from kafka_telemetry_lake.pipelines.lake.stored_pushes import DROPPED_BEFORE
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.lost_records import DROPPED, LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened, Table

log = logging.getLogger(__name__)

GAPS_S = 60.0  # a log that had no gap is looked through for one again after so long: it keeps commits for a day
Read = Callable[[Sequence[str]], pa.Table]  # rows of files, named as paths below the table
ANOTHER = "another"  # id of a table that isn't known any more


class Gap(Enum):
    """What follows a gap in a table's log.

    Attributes:
        GO_ON: steps with the rows of all files that may have been written since the position, read or not.
        ANEW: one step without rows: its consumer begins anew with what the table has now.
        STOP: an error that says what to do.
    """

    GO_ON = "go on"
    ANEW = "anew"
    STOP = "stop"


@dataclass(frozen=True)
class Position:
    """How far a table is read.

    Attributes:
        version: the rows of all commits up to it are read; -1: nothing is.
        table: the table's id; "": not known yet.
        read_at: UTC; a time before which that was the latest version; None: not known.
    """

    version: int = -1
    table: str = ""
    read_at: datetime | None = None

    @staticmethod
    def of(content: Mapping[str, Any]) -> Position:
        """The position of a note. Raises ``KeyError``, ``TypeError`` or ``ValueError``: it has none."""
        at = content["read_at"]
        return Position(int(content["version"]), str(content["table"]), at and datetime.fromisoformat(at))

    def stored(self) -> dict[str, Any]:
        """What a note has of it."""
        return {
            "version": self.version,
            "table": self.table,
            "read_at": self.read_at and self.read_at.isoformat(),
        }

    def transactions(self, app_id: str) -> dict[str, int]:
        """The versions of applications (`txn`) that a commit carries which is the result of reading up to it."""
        if self.version < 0 or self.read_at is None:
            return {}
        return {f"{app_id}:{self.table}": self.version, _read_at(app_id): int(self.read_at.timestamp() * 1000)}


FIELDS = ("version", "table", "read_at")  # of `Position.stored`


@dataclass(frozen=True)
class Step:
    """The next rows of a table.

    Attributes:
        position: when they are read.
        first: the version of the first commit; None: they follow a gap, and some may have been read before.
        rows: the columns and rows that were asked for; empty: none were, and files are named only.
        files: as paths below the table.
        number: of rows in the files.
        size: of the files in bytes.
        held: of `pushes`: which shards a file holds, where that is known.
    """

    position: Position
    first: int | None
    rows: pa.Table
    files: tuple[str, ...] = ()
    number: int = 0
    size: int = 0
    held: Mapping[str, HeldShards] = field(default_factory=dict)


class Follower:
    """Follows one table. Not for several threads.

    Args:
        name: of the consumer, under which rows are recorded that retention dropped unread; None: they aren't.
        columns: that are read, NULL where a file lacks one; or what reads files; None: they are named, not read.
        needed: condition of the rows.
        most_bytes: of a step's files, `most_rows` of its rows: the commit that reaches it is the last one.
        remedy: what to do about a gap, if its policy is to stop.
        fence: the lease under which is recorded what retention dropped.
        checked: the table is there, and its format and id have been looked at.
        opened: tables of the lake that are open already.
    """

    def __init__(
        self, lake: str, table: Table, gap: Gap, name: str | None = None, columns: pa.Schema | Read | None = None, *,
        needed: pc.Expression | None = None, most_bytes: float = float("inf"), most_rows: float = float("inf"),
        remedy: str = "", fence: Fence | None = None, checked: bool = False, opened: Opened = NOT_OPENED,
    ) -> None:  # fmt: skip
        self._lake, self._table, self._gap, self._name = Lake(lake, fence), table, gap, name
        self._columns, self._needed = columns, needed
        self._most_bytes, self._most_rows = most_bytes, most_rows
        self._remedy = remedy
        self._commits = FollowedTable(table.uri(lake))
        self._id = "" if checked else None  # of the table, once it was looked at; "": by another one
        if self._id is None and table.name in opened:
            self._id = str(opened[table.name].metadata().id)
        self._seen: tuple[int, float] | None = None  # the version that was the latest, and when (monotonic)

    def now(self) -> Position:
        """The position of who has read all that the table has; creates the table."""
        at, delta = utc_now(), self._lake.create(self._table)
        return Position(delta.version(), str(delta.metadata().id), at)

    def committed(self, result: DeltaTable, app_id: str) -> Position:
        """The position that the last commit of an application to the table of its results has."""
        milliseconds = result.transaction_version(_read_at(app_id))
        if milliseconds is None or not self._exists():
            return Position()
        version = result.transaction_version(f"{app_id}:{self._id}")
        read_at = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return Position(-1, ANOTHER, read_at) if version is None else Position(version, self._id or "", read_at)

    def steps(self, position: Position, until: int | None = None, *, whole: bool = False) -> Iterator[Step]:
        """All new rows. Steps after a gap have the position before it, but for the last one.

        Args:
            until: the last version to read; None: the latest.
            whole: in one step, of whatever size.

        Raises:
            StateError: there is a gap, and its policy is to stop; or the log is damaged.
            OtherFormatError: the table has another format.
        """
        while True:
            at = utc_now()
            if not self._exists():
                return
            try:
                if position.table not in ("", self._id):
                    raise LogGapError(f"{self._commits.uri}: the table was made again")
                step = self._next(position, until, at, whole=whole)
            except (LogGapError, FileNotFoundError) as gap:
                for step in self._after_gap(position, until, at, gap):
                    yield step
                    position = step.position
                continue
            if step is None:
                return
            yield step
            position = step.position

    def next(self, position: Position, until: int | None = None, *, whole: bool = False) -> Step | None:
        """The first of `steps`; None: there is nothing new."""
        return next(self.steps(position, until, whole=whole), None)

    def has(self, files: Sequence[str]) -> bool:
        """Whether all of these files of the table are still there."""
        return self._commits.missing(files) is None

    def _exists(self) -> bool:
        """Whether there is the table; at the first look its format is checked, too."""
        if self._id is None and (table := self._table.open(self._lake.uri)) is not None:
            self._id = str(table.metadata().id)
        return self._id is not None

    def _next(self, position: Position, until: int | None, at: datetime, *, whole: bool) -> Step | None:
        files, rows, size, first, held = list[str](), 0, 0, None, dict[str, HeldShards]()
        version = position.version
        if until is None and self._is_quiet(version):
            return None
        for commit in self._commits.commits(version, until):
            first = commit.version if first is None else first
            version, rows, size = commit.version, rows + commit.rows, size + commit.size
            files += commit.files
            held |= commit.held
            if not whole and (size >= self._most_bytes or rows >= self._most_rows):
                break
        if first is None:
            self._seen = (version, time.monotonic()) if until is None else None
            return None
        end = Position(version, self._id or "", at)
        if self._columns is None and until is None and (missing := self._commits.missing(files)) is not None:
            raise FileNotFoundError(missing)
        return Step(end, first, self._read(files), tuple(files), rows, size, held)

    def _is_quiet(self, version: int) -> bool:
        """Whether nothing has come since the last look, which found this to be the latest version."""
        if self._seen is None or self._seen[0] != version or time.monotonic() - self._seen[1] > GAPS_S:
            return False
        return not self._commits.has(version + 1)

    def _read(self, files: list[str]) -> pa.Table:
        if self._columns is None:
            return pa.table({})
        if not isinstance(self._columns, pa.Schema):
            return self._columns(files)
        if not files:
            return self._columns.empty_table()
        return self._commits.dataset(files, self._columns).to_table(filter=self._needed)

    def _after_gap(self, position: Position, until: int | None, at: datetime, gap: Exception) -> Iterator[Step]:
        if self._gap is Gap.STOP:
            raise StateError(f"{gap}: {self._remedy}") from gap
        log.warning("%s: reads what %s has now, not its commits: %s", self._name or "follower", self._table.name, gap)
        self._id = None
        end = replace(self.now(), read_at=at)
        if self._name is not None:
            record_dropped(self._lake, self._name, self._table, position)
        if self._gap is Gap.ANEW:
            yield Step(end, None, self._read([]))
            return
        if until is not None and until < end.version:
            end = replace(end, version=until)
        delta = DeltaTable(self._commits.uri, version=end.version)
        is_same = position.table in ("", end.table) and position.read_at is not None
        files = files_since(delta, position.read_at) if is_same and position.read_at else files_table(delta)
        part, number, size = list[str](), 0, 0
        stored = files.select(["path", "size_bytes", "num_records", "modification_time"])
        for row in stored.sort_by("modification_time").to_pylist():
            if part and (size >= self._most_bytes or number >= self._most_rows):
                yield Step(position, None, self._read(part), tuple(part), number, size)
                part, number, size = [], 0, 0
            part.append(unquote(row["path"]))
            number, size = number + (row["num_records"] or 0), size + row["size_bytes"]
        yield Step(end, None, self._read(part), tuple(part), number, size)


def utc_now() -> datetime:
    return datetime.now(UTC)


def _read_at(app_id: str) -> str:
    return f"{app_id}:read-at"


def record_dropped(lake: Lake, follower: str, table: Table, position: Position) -> None:
    """Append a row to `lost_records` if retention has dropped landed dates since a follower's last look.

    A follower that was away for longer than a table's log reads the table's files instead. What retention has dropped
    since then is in no file any more: the days are known, the number of rows isn't. A position has one row at most.

    Args:
        follower: what reads the table.
        position: how far it has read; of one that begins: it misses nothing that it had to read.
    """
    days, read_at = lake.table(table).transaction_version(DROPPED_BEFORE), position.read_at
    first = None if read_at is None else read_at.astimezone(UTC).date()
    if position.version < 0 or days is None:
        return
    end = date(1970, 1, 1) + timedelta(days=days)
    if first is not None and end <= first:
        return
    row = {
        "source": follower,
        "topic": table.name,
        "reason": DROPPED,
        "first_date": first,
        "last_date": end - timedelta(days=1),
        "noticed_at": datetime.now(UTC),
    }
    rows = pa.Table.from_pylist([row], LOST_RECORDS.schema)
    app_id = f"{DROPPED_BEFORE}:{follower}"
    if append_once(LOST_RECORDS, lake.create(LOST_RECORDS), rows, app_id, position.version, lake.fence):
        log.warning(
            "%s: retention has dropped rows of %s before they were read, of landed dates %s to %s: see table %s",
            follower,
            table.name,
            first or "unknown",
            end - timedelta(days=1),
            LOST_RECORDS.name,
        )
