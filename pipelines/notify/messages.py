"""Messages with changes: for a webhook, and, as a title and lines of text, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apprise
import xxhash

from kafka_telemetry_lake.pipelines.notify.outbox import ChangeRow, Outbox, change_id
from kafka_telemetry_lake.pipelines.query.printable import printable

MOST_CHANGES = 500  # in a message


@dataclass(frozen=True)
class Message:
    """Changes that are sent together.

    Attributes:
        id: 32 hex digits; a message that is sent again has the same id and the same changes.
    """

    id: str
    changes: list[ChangeRow]

    def content(self) -> dict[str, Any]:
        """What a sink is sent: each change with its id and without the columns that are None."""
        changes = [
            {"change_id": change_id(row), **{name: value for name, value in row.items() if value is not None}}
            for row in self.changes
        ]
        return {"id": self.id, "changes": changes}


class Messages(Outbox[ChangeRow]):
    """Changes that wait, and the message of the first of them."""

    def changed(self, row: ChangeRow, _before: ChangeRow | None, /) -> None:
        self.waiting.append(row)

    def left(self, _row: ChangeRow, _before: ChangeRow, /) -> None:
        """Nothing is sent now: the sink was sent that the finding is open, and is sent when it is resolved."""

    def next_message(self) -> Message | None:
        """The message to send now: the one that was not finished, otherwise of all that waits; None: nothing waits."""
        if not self.waiting:
            return None
        if not self.under_way:
            self.under_way = min(len(self.waiting), MOST_CHANGES)
            self.write()
        changes = self.waiting[: self.under_way]
        ids = [self.sink, *map(change_id, changes)]
        return Message(xxhash.xxh3_128_hexdigest("\0".join(ids).encode()), changes)

    def done(self) -> None:
        """The sink has the message."""
        del self.waiting[: self.under_way]
        self.under_way = 0
        self.write()


MOST_LINES = 20
LONGEST_SUBJECT, LONGEST_TEXT = 80, 300
BY_SEVERITY = {"error": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}
RANKS = ("error", "warning", "info")
# Chats make mentions, links and markup of these; clients choose their names.
HARMLESS = str.maketrans({char: f"{char}\u200b" for char in "<@`*_~["})


def title(changes: Sequence[ChangeRow]) -> str:
    """How many findings opened, were resolved and so on."""
    counts = Counter(change["change"] for change in changes)
    return "Kafka clients: " + ", ".join(f"{count} {change}" for change, count in counts.most_common())


def text(changes: Sequence[ChangeRow]) -> str:
    """A line for each change, the severe ones first, and how many more there are."""
    ordered = sorted(changes, key=lambda row: (_rank(row), row["at"]))
    lines = [_line(row) for row in ordered[:MOST_LINES]]
    if len(ordered) > MOST_LINES:
        lines.append(f"and {len(ordered) - MOST_LINES} more: see table finding_changes")
    return "\n\n".join(lines)


def kind(changes: Sequence[ChangeRow]) -> apprise.NotifyType:
    """apprise's type of a message, which most targets show as a colour: that of the worst unresolved finding."""
    unresolved = [row for row in changes if row["change"] != "resolved"]
    if not unresolved:
        return apprise.NotifyType.SUCCESS
    return BY_SEVERITY.get(min(unresolved, key=_rank)["severity"], apprise.NotifyType.INFO)


def _rank(row: ChangeRow) -> int:
    return RANKS.index(row["severity"]) if row["severity"] in RANKS else len(RANKS)


def _line(row: ChangeRow) -> str:
    instances = ""
    if row["instances_affected"] is not None and row["instances"] is not None:
        instances = f", {row['instances_affected']} of {row['instances']} instances"
    subject = _harmless(row["subject"] or "?", LONGEST_SUBJECT)
    about = f"{subject} (cluster {_harmless(row['cluster_id'] or '?', 40)}{instances})"
    head = f"[{row['severity']}] {row['change']}: {_harmless(row['finding'], 80)}, {row['scope']} {about}"
    return "\n".join([head, *(_harmless(each, LONGEST_TEXT) for each in (row["evidence"], row["advice"]) if each)])


def _harmless(value: str, longest: int) -> str:
    shown = printable(value)
    return (shown if len(shown) <= longest else f"{shown[: longest - 1]}…").translate(HARMLESS)
