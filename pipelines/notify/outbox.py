"""What a sink was sent, and what it is still to be sent: a file in the folder of table `finding_changes`.

A message is written there before it is sent, and removed afterwards. After a crash in between it is sent again, with
the same id and content. Each sink has a file of its own, so none waits for another one.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.pipelines.lake.json_files import write_json
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.notify.changes import Changes
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile, Route, Row
from kafka_telemetry_lake.pipelines.notify.findings import Finding, as_text, change_id
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES

log = logging.getLogger(__name__)

FIELDS = ("position", "findings", "out")
START_AGAIN = "delete it, and the sink is sent all open findings again"


class Outbox(ABC):
    """A sink's part of the changes. Subclasses say what becomes of a change, and store that in `out`.

    A new sink starts with the findings that are open, not with the history.

    Args:
        writes: False: nothing is written, for a look at what would be sent.
        counts_unrouted: log how many changes no route takes. One sink's outbox does that for all.

    Raises:
        StateError: the file is damaged.
    """

    def __init__(self, lake: str, sink: str, file: NotifyFile, writes: bool = True, counts_unrouted: bool = False):
        self.sink = sink
        self.findings: dict[str, Finding] = {}
        self._file, self._writes, self._counts_unrouted = file, writes, counts_unrouted
        self._changes = Changes(lake, f"notify:{sink}" if writes else None)
        uri = f"{FINDING_CHANGES.uri(lake)}/_notify"
        self._filesystem, self._folder = filesystem_of(uri)
        self._note = FencedNote(uri, sink, FIELDS, START_AGAIN)
        self._position: Position | None = None
        if writes:
            self._filesystem.create_dir(self._folder)
        self._read()

    def take(self, now: datetime) -> int:
        """Read the next changes, and end mutes whose time is over; returns the number of both."""
        moment = as_text(now)
        if self._position is None:
            return self._start(moment, now.timestamp())
        position, rows = self._changes.after(self._position) if self.has_room() else (self._position, [])
        taken = len(rows)
        unrouted = sum(self._take(row, now.timestamp()) for row in rows)
        for finding in list(self.findings.values()):
            if ended := finding.end_of_mute(moment):
                self._take(ended, now.timestamp())
                taken += 1
        if unrouted and self._counts_unrouted:
            log.warning("notify: %d changes fit no route; they are only in table %s", unrouted, FINDING_CHANGES.name)
        if position != self._position or taken:
            self._position = position
            self.write()
        return taken

    def _start(self, moment: str, now: float) -> int:
        self._position, rows = self._changes.every()
        for row in rows:
            self.findings.setdefault(row["finding_id"], Finding()).apply(row)
        for finding in self.findings.values():
            if ended := finding.end_of_mute(moment):
                finding.apply(ended)
            if finding.is_announced:
                self.changed(finding, finding.row | {"change": "opened", "at": finding.row["opened_at"]}, now)
        self._forget(list(self.findings))
        self.write()
        return sum(finding.is_announced for finding in self.findings.values())

    def _take(self, row: Row, now: float) -> bool:
        """Apply a change; returns whether no route takes it."""
        finding = self.findings.setdefault(row["finding_id"], Finding())
        if finding.row and change_id(finding.row) == change_id(row):
            return False
        was_announced = finding.is_announced
        finding.apply(row)
        kind = row["change"]
        unrouted = False
        if kind in ("opened", "changed") or (kind == "unmuted" and not was_announced):
            if finding.is_announced:
                self.changed(finding, finding.row, now)
                unrouted = not any(self._file.routes_of(finding.row))
        elif kind == "resolved":
            self.changed(finding, finding.row, now)
        elif kind in ("acknowledged", "muted"):
            self.silenced(finding)
        self._forget([row["finding_id"]])
        return unrouted

    def _forget(self, finding_ids: Iterable[str]) -> None:
        for finding_id in finding_ids:
            if finding_id in self.findings and self.findings[finding_id].is_over:
                del self.findings[finding_id]

    def routes(self, row: Row) -> list[tuple[int, Route]]:
        """The routes that take a change to this sink."""
        return [(number, route) for number, route in self._file.routes_of(row) if self.sink in route.sinks]

    @abstractmethod
    def changed(self, finding: Finding, row: Row, now: float) -> None:
        """A finding that is announced has changed, or a finding is resolved."""

    @abstractmethod
    def silenced(self, finding: Finding) -> None:
        """A finding was acknowledged or muted."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether more changes may be read."""

    @property
    @abstractmethod
    def out(self) -> dict[str, Any]:
        """What is to be sent."""

    @out.setter
    @abstractmethod
    def out(self, content: dict[str, Any]) -> None: ...

    def write(self) -> None:
        """Store the state."""
        if not self._writes:
            return
        findings = {finding_id: vars(finding) for finding_id, finding in self.findings.items()}
        assert self._position is not None  # `take` has one
        self._note.write({"position": self._position.stored(), "findings": findings, "out": self.out})

    def park(self, name: str, content: dict[str, Any]) -> str:
        """Store a message that the sink refuses; returns the file's path."""
        path = f"{self._folder}/{self.sink}-refused-{name}.json"
        write_json(self._filesystem, path, content)
        return path

    def _read(self) -> None:
        content = self._note.read()
        if content is None:
            return
        try:
            self._position = Position.of(content["position"])
            self.findings = {finding_id: Finding(**stored) for finding_id, stored in content["findings"].items()}
            self.out = content["out"]
        except (KeyError, TypeError):
            raise StateError(f"{self._note.path} is of another type of sink: {START_AGAIN}") from None
