"""The state of findings, as far as messages depend on it: open, acknowledged, muted, and what a sink knows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import xxhash

from kafka_telemetry_lake.pipelines.notify.file import Row

SAID = ("until", "by", "why")  # columns of what a person said


@dataclass
class Finding:
    """A finding that is open, muted, or still open for a sink.

    Attributes:
        row: of the last change.
        until: end of the mute; None: until it is unmuted.
        queued: a message that it is open waits.
        sent: the sink was sent that it is open, and not yet that it is resolved.
        labels: with which an Alertmanager was sent it.
    """

    row: Row = field(default_factory=dict)
    open: bool = False
    acknowledged: bool = False
    muted: bool = False
    until: str | None = None
    queued: bool = False
    sent: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def is_announced(self) -> bool:
        """Whether sinks should know of it."""
        return self.open and not self.acknowledged and not self.muted

    @property
    def is_over(self) -> bool:
        """Whether nothing about it matters to a later change."""
        return not (self.open or self.muted or self.sent or self.labels)

    def apply(self, row: Row) -> None:
        """Take over a change."""
        self.row = row
        match row["change"]:
            case "opened":
                self.open = True
            case "resolved":
                self.open, self.acknowledged = False, False
            case "acknowledged":
                self.acknowledged = True
            case "muted":
                self.muted, self.until = True, row["until"]
            case "unmuted":
                self.muted, self.until = False, None

    def end_of_mute(self, now: str) -> Row | None:
        """The change that the end of its mute is; None while there is none to end."""
        if not self.muted or self.until is None or self.until > now:
            return None
        return self.row | dict.fromkeys(SAID) | {"change": "unmuted", "at": self.until}


def change_id(row: Row) -> str:
    """A digest of what makes a change: the same for ever, also if it is read or sent again. 32 hex digits."""
    parts = (row["finding_id"], row["change"], row["severity"], row["at"], row["until"])
    return xxhash.xxh3_128_hexdigest("\0".join(part or "" for part in parts).encode())


def as_text(moment: datetime) -> str:
    """A time in UTC. Such texts sort as their times do."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def plain_row(row: Mapping[str, Any]) -> Row:
    """A row of the table as JSON has it: times are text, and a number that isn't finite is NULL."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return as_text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
