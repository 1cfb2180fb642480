"""Reads table `finding_changes` step by step. A position has the time of the latest change before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.notify.file import Row
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES

ROWS = 5_000  # whole commits are read until they have this many rows


class Changes:
    """The changes of a lake's findings.

    Args:
        follower: the name under which changes that retention dropped unread are recorded; None: they are not.
    """

    def __init__(self, lake: str, follower: str | None) -> None:
        self._lake = lake
        self._follower = Follower(
            lake, FINDING_CHANGES, Gap.GO_ON, follower, FINDING_CHANGES.schema, most_rows=ROWS
        )  # fmt: skip

    def after(self, position: Position) -> tuple[Position, list[Row]]:
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

    def every(self) -> tuple[Position, list[Row]]:
        """All changes in order, and the position after them."""
        table = FINDING_CHANGES.open(self._lake)
        if table is None:
            return Position(), []
        rows = table.to_pyarrow_table(columns=FINDING_CHANGES.schema.names)
        return _read(Position(), Position(table.version(), str(table.metadata().id)), [rows])


def _read(before: Position, after: Position, parts: Iterable[pa.Table]) -> tuple[Position, list[Row]]:
    rows = pa.concat_tables(part.cast(FINDING_CHANGES.schema) for part in parts)
    latest = max((at for at in (before.read_at, pc.max(rows["recorded_at"]).as_py()) if at is not None), default=None)
    in_order = sorted(map(plain_row, rows.to_pylist()), key=lambda row: (row["recorded_at"], row["at"]))
    return replace(after, read_at=latest), in_order


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
