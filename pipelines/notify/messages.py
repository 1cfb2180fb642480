"""Messages with changes, for a webhook and for people."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from kafka_telemetry_lake.pipelines.notify.changes import change_id
from kafka_telemetry_lake.pipelines.notify.file import Row
from kafka_telemetry_lake.pipelines.notify.outbox import Outbox

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
    """Changes that wait, and the message of the first of them."""

    def changed(self, row: Row, _before: Row | None, /) -> None:
        self.waiting.append(row)

    def left(self, _row: Row, _before: Row, /) -> None:
        """Who was sent that it is open is sent its end."""

    def next_message(self) -> Message | None:
        """The message to send now: the one that was not finished, otherwise of all that waits; None: nothing waits."""
        if not self.waiting:
            return None
        if not self.under_way:
            self.under_way = min(len(self.waiting), MOST_CHANGES)
            self.write()
        changes = [
            {"change_id": change_id(row)} | {name: value for name, value in row.items() if value is not None}
            for row in self.waiting[: self.under_way]
        ]
        ids = [self.sink, *(change["change_id"] for change in changes)]
        return Message(xxhash.xxh3_128_hexdigest("\0".join(ids).encode()), changes)

    def done(self) -> None:
        """The sink has the message."""
        del self.waiting[: self.under_way]
        self.under_way = 0
        self.write()
