"""Messages with changes, for webhooks, topics and people: one for each route and interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import xxhash

from kafka_telemetry_lake.pipelines.notify.file import KafkaSink, NotifyFile, Row
from kafka_telemetry_lake.pipelines.notify.findings import Finding, change_id
from kafka_telemetry_lake.pipelines.notify.outbox import Outbox

MOST_WAITING = 10_000  # then no more changes are read; they wait in the table
MOST_CHANGES = 500  # in a message


@dataclass(frozen=True)
class Message:
    """Changes that are sent together.

    Attributes:
        id: 32 hex digits; a message that is sent again has the same id and the same changes.
    """

    id: str
    changes: list[Row]


class Messages(Outbox):
    """Changes that wait for their group's time, and the message that is being sent."""

    def __init__(self, lake: str, sink: str, file: NotifyFile, writes: bool = True, counts_unrouted: bool = False):
        self._waiting: dict[str, dict[str, Any]] = {}  # by the route's number: when it is due, and rows
        self._message: Message | None = None
        self._is_ordered = isinstance(file.sinks[sink], KafkaSink)
        super().__init__(lake, sink, file, writes, counts_unrouted)

    @property
    def out(self) -> dict[str, Any]:
        return {"waiting": self._waiting, "message": None if self._message is None else vars(self._message)}

    @out.setter
    def out(self, content: dict[str, Any]) -> None:
        self._waiting = content["waiting"]
        self._message = None if content["message"] is None else Message(**content["message"])

    def has_room(self) -> bool:
        return sum(len(group["rows"]) for group in self._waiting.values()) < MOST_WAITING

    def changed(self, finding: Finding, row: Row, now: float) -> None:
        routes = self.routes(row)
        if row["change"] == "resolved":
            if not finding.sent and not finding.queued:
                return
            # Who was sent that it is open is sent its end, also if the routes are others by now.
            routes = routes or [(n, each) for n, each in enumerate(self._file.routes) if self.sink in each.sinks]
        if not routes:
            return
        number, route = routes[0]
        # Records of a topic stay in the order of the changes, whichever routes these take.
        key, due = ("0", now) if self._is_ordered else (str(number), now + route.group_seconds)
        group = self._waiting.setdefault(key, {"due": due, "rows": []})
        group["rows"].append(row)
        finding.queued = row["change"] != "resolved"

    def silenced(self, finding: Finding) -> None:
        finding.queued = False
        for number, group in list(self._waiting.items()):
            group["rows"] = [
                row
                for row in group["rows"]
                if row["finding_id"] != finding.row["finding_id"] or (row["change"] == "resolved" and finding.sent)
            ]
            if not group["rows"]:
                del self._waiting[number]

    def seconds_until_due(self, now: datetime) -> float | None:
        """How long nothing is due; None: nothing waits."""
        if self._message is not None:
            return 0.0
        due = min((group["due"] for group in self._waiting.values()), default=None)
        return None if due is None else max(0.0, due - now.timestamp())

    def next_message(self) -> Message:
        """The message to send now: the one that was not finished, otherwise that of the group that is due first."""
        if self._message is None:
            number, group = min(self._waiting.items(), key=lambda item: float(item[1]["due"]))
            rows, group["rows"] = group["rows"][:MOST_CHANGES], group["rows"][MOST_CHANGES:]
            if not group["rows"]:
                del self._waiting[number]
            for row in rows:
                if finding := self.findings.get(row["finding_id"]):
                    finding.sent, finding.queued = row["change"] != "resolved", False
            self._forget({row["finding_id"] for row in rows})
            changes = [{"change_id": change_id(row)} | {k: v for k, v in row.items() if v is not None} for row in rows]
            ids = [self.sink, *(change["change_id"] for change in changes)]
            self._message = Message(xxhash.xxh3_128_hexdigest("\0".join(ids).encode()), changes)
            self.write()
        return self._message

    def done(self) -> None:
        """The sink has the message."""
        self._message = None
        self.write()
