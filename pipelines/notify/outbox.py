"""What a sink was sent, and what it is still to be sent: a file in the folder of table `finding_changes`.

The table is read step by step; a position has the time of the latest change before it. What is sent is written to the
file before, and removed afterwards. After a crash in between it is sent again, with the same id and content. Each sink
has a file of its own, so none waits for another one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.udfs.findings.states import FindingRow

ROWS = 5_000  # whole commits are read until they have this many rows


class ChangeRow(FindingRow):
    """A row of table `finding_changes` as JSON has it: times are text (UTC), numbers that aren't finite are None."""

    finding_id: str
    change: str
    at: str
    opened_at: str
    recorded_at: str
    window_start: str
    until: str | None
    by: str | None
    why: str | None


class Changes:
    """The changes of a lake's findings.

    Args:
        follower: the name under which changes that retention dropped unread are recorded; None: they are not.
    """

    def __init__(self, lake: str, follower: str | None) -> None:
        self._lake = lake
        self._follower = Follower(lake, FINDING_CHANGES, Gap.GO_ON, follower, FINDING_CHANGES.schema, most_rows=ROWS)

    def after(self, position: Position) -> tuple[Position, list[ChangeRow]]:
        """The next changes, in order, and the position after them.

        After a gap they are those recorded at the time of the position or later. So none is missing, but some may be
        there again.
        """
        parts = [FINDING_CHANGES.schema.empty_table()]
        for step in self._follower.steps(position):
            is_again = step.first is None and position.read_at is not None
            parts.append(step.rows.filter(pc.field("recorded_at") >= position.read_at) if is_again else step.rows)
            if step.position != position:
                return _read(position, step.position, parts)
        return position, []

    def every(self) -> tuple[Position, list[ChangeRow]]:
        """All changes in order, and the position after them."""
        table = FINDING_CHANGES.open(self._lake)
        if table is None:
            return Position(), []
        # A table of an earlier release may lack columns.
        rows = pa.concat_tables(
            [FINDING_CHANGES.schema.empty_table(), table.to_pyarrow_table()], promote_options="default"
        )
        rows = rows.select(FINDING_CHANGES.schema.names)
        return _read(Position(), Position(table.version(), str(table.metadata().id)), [rows])


def _read(before: Position, after: Position, parts: Iterable[pa.Table]) -> tuple[Position, list[ChangeRow]]:
    rows = pa.concat_tables(part.cast(FINDING_CHANGES.schema) for part in parts)
    latest = max((at for at in (before.read_at, pc.max(rows["recorded_at"]).as_py()) if at is not None), default=None)
    changes = [cast("ChangeRow", plain_row(row)) for row in rows.to_pylist()]
    return replace(after, read_at=latest), sorted(changes, key=lambda row: (row["recorded_at"], row["at"]))


def change_id(row: ChangeRow) -> str:
    """A digest of what makes a change: the same for ever, also if it is read or sent again. 32 hex digits."""
    parts = (row["finding_id"], row["change"], row["severity"], row["at"], row["until"])
    return xxhash.xxh3_128_hexdigest("\0".join(part or "" for part in parts).encode())


def as_text(time: datetime) -> str:
    """A time in UTC. Such texts sort as their times do."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them: times are text (UTC), and a number that isn't finite is None."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return as_text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


FIELDS = ("position", "kind", "open", "waiting", "under_way")
START_AGAIN = "delete it, and the sink is sent all open findings again"
MOST_WAITING = 10_000  # then no more changes are read; they wait in the table


Waiting = TypeVar("Waiting")


class Outbox(ABC, Generic[Waiting]):
    """A sink's part of the changes. A new sink starts with the findings that are open, not with the history.

    Args:
        match: which changes are the sink's.
        writes: False: nothing is written, for a look at what would be sent.

    Attributes:
        open: the latest change of each finding that is open for the sink, by its id.
        waiting: what is to be sent, in order.
        under_way: how many of these are in the message that is being sent.

    Raises:
        StateError: the file is damaged.
    """

    def __init__(self, lake: str, sink: str, match: Match, writes: bool = True) -> None:
        self.sink = sink
        self.open: dict[str, ChangeRow] = {}
        self.waiting: list[Waiting] = []
        self.under_way = 0
        self._match, self._writes = match, writes
        self._changes = Changes(lake, f"notify:{sink}" if writes else None)
        uri = f"{FINDING_CHANGES.uri(lake)}/_notify"
        self._filesystem, self._folder = filesystem_of(uri)
        self._note = FencedNote(uri, sink, FIELDS, START_AGAIN)
        self._position: Position | None = None
        if writes:
            self._filesystem.create_dir(self._folder)
        self._read()

    def take(self) -> bool:
        """Read the next changes; returns whether there may be more."""
        if self._position is None:
            self._start()
            return True
        if len(self.waiting) >= MOST_WAITING:
            return False
        position, rows = self._changes.after(self._position)
        for row in rows:
            self._take(row)
        if position == self._position:
            return False
        self._position = position
        self.write()
        return True

    def _start(self) -> None:
        self._position, rows = self._changes.every()
        latest: dict[str, ChangeRow] = {}
        for row in rows:
            if row["change"] == "resolved":
                latest.pop(row["finding_id"], None)
            elif row["change"] in ("opened", "changed"):
                latest[row["finding_id"]] = row
        for finding_id, row in latest.items():
            if self._match.fits(row):
                self.open[finding_id] = row
                self.changed(row | {"change": "opened", "at": row["opened_at"]}, None)
        self.write()

    def _take(self, row: ChangeRow) -> None:
        finding_id = row["finding_id"]
        before = self.open.get(finding_id)
        match row["change"]:
            case "opened" | "changed" if self._match.fits(row):
                if before is None or change_id(before) != change_id(row):  # else it was read before
                    self.open[finding_id] = row
                    self.changed(row, before)
            case "changed" if before is not None:
                self.left(row, before)
            case "resolved" if before is not None:
                del self.open[finding_id]
                self.changed(row, before)

    @abstractmethod
    def changed(self, row: ChangeRow, before: ChangeRow | None, /) -> None:
        """A finding of the sink has opened, changed or, with a `row` that says so, is resolved.

        Args:
            before: the change before; None: the sink hasn't heard of it.
        """

    @abstractmethod
    def left(self, row: ChangeRow, before: ChangeRow, /) -> None:
        """A finding has changed so that it isn't the sink's any more."""

    def write(self) -> None:
        """Store the state."""
        if not self._writes:
            return
        assert self._position is not None  # `take` has one
        content = (self._position.stored(), type(self).__name__, self.open, self.waiting, self.under_way)
        self._note.write(dict(zip(FIELDS, content, strict=True)))

    def park(self, name: str, content: dict[str, Any]) -> str:
        """Store a message that the sink refuses; returns the file's path."""
        path = f"{self._folder}/{self.sink}-refused-{name}.json"
        write_json(self._filesystem, path, content)
        return path

    def _read(self) -> None:
        content = self._note.read()
        if content is None:
            return
        if content["kind"] != type(self).__name__:
            raise StateError(f"{self._note.path} is of another type of sink: {START_AGAIN}")
        self._position = Position.of(content["position"])
        self.open, self.waiting, self.under_way = content["open"], content["waiting"], content["under_way"]
