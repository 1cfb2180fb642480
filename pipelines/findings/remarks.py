"""What people say about a finding: that they look after it, or that it shall be quiet for a time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.findings.remarks import ACKNOWLEDGED, MUTED, REMARKS, UNMUTED, time_text
from kafka_telemetry_lake.udfs.findings.states import RESOLVED

# The order of a finding's states; see view open_findings.
ORDER = ("opened_at", "at", "window_start", "recorded_at")


class FindingError(CannotRunError):
    """There is no such finding, or what was said doesn't fit its state."""


def remark(
    lake: str, finding_id: str, change: str, now: int, by: str, why: str | None = None, until: int | None = None
) -> dict[str, Any]:
    """Append a person's remark to `finding_changes`; returns its row, with the names of the finding and its subject.

    Args:
        change: one of `REMARKS`. An acknowledgement ends when the finding is resolved, a mute at its time.
        now: µs.
        until: muted: µs.

    Raises:
        FindingError: the id isn't known, an acknowledged finding is resolved, an unmuted one isn't muted, or `until`
            is past.
    """
    if until is not None and until <= now:
        raise FindingError(f"until: {time_text(until)} is past; name a later time")
    rows = _rows_of(lake, finding_id)
    states = [row for row in rows if row["change"] not in REMARKS]
    if not states:
        raise FindingError(
            f"no finding has the id {finding_id}: `telemetry-lake findings --lake {shlex.quote(lake)}` lists them"
        )
    latest = max(states, key=lambda row: [row[name] for name in ORDER])
    if change == ACKNOWLEDGED and latest["change"] == RESOLVED:
        raise FindingError(f"finding {finding_id} is resolved since {time_text(latest['at'])}")
    if change == UNMUTED:
        mutes = [row for row in rows if row["change"] in (MUTED, UNMUTED)]
        last = max(mutes, key=lambda row: row["recorded_at"], default=None)
        if last is None or last["change"] == UNMUTED or last["until"].timestamp() * 1e6 <= now:
            raise FindingError(f"finding {finding_id} isn't muted")
    said = {"change": change, "at": now, "recorded_at": now, "until": until, "by": by, "why": why}
    row = {name: latest.get(name) for name in FINDING_CHANGES.schema.names} | said
    stored = FINDING_CHANGES.with_partition(pa.Table.from_pylist([row], FINDING_CHANGES.schema))
    write_deltalake(FINDING_CHANGES.create(lake), stored, mode="append")
    return row


def summary(row: Mapping[str, Any]) -> str:
    """A line about the row of a remark. Its names are as clients chose them."""
    until = f" until {time_text(row['until'])}" if row["until"] else ""
    return f"{row['finding']} of {row['scope']} {row['subject']} is {row['change']}{until}, by {row['by']}"


def _rows_of(lake: str, finding_id: str) -> list[dict[str, Any]]:
    try:
        changes = DeltaTable(FINDING_CHANGES.uri(lake)).to_pyarrow_dataset()
    except TableNotFoundError:
        return []
    rows: list[dict[str, Any]] = changes.to_table(filter=pads.field("finding_id") == finding_id).to_pylist()
    return rows
