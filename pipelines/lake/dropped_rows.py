"""Rows in `lost_records` for what retention dropped from a table before its follower had read it.

A follower that was away for longer than a table's log reads the table's files instead. What retention has dropped since
then is in no file any more: the days are known, the number of rows isn't.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.stored_pushes import DROPPED_BEFORE
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.lost_records import DROPPED, LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.table import Table

log = logging.getLogger("telemetry-lake")


def record_dropped(
    lake: str, follower: str, table: Table, version: int, read_at: datetime | None, fence: Fence | None = None
) -> None:
    """Append a row if retention has dropped landed dates since a follower's last look; once for each position.

    Args:
        follower: what reads the table.
        version: of the table, up to which it has read; below 0: it begins, and misses nothing that it had to read.
        read_at: a time before which that was the latest version; None: not known.
    """
    days = DeltaTable(table.uri(lake)).transaction_version(DROPPED_BEFORE)
    first = None if read_at is None else read_at.astimezone(UTC).date()
    if version < 0 or days is None:
        return
    end = date(1970, 1, 1) + timedelta(days=days)
    if first is not None and end <= first:
        return
    row = {
        "source": follower, "topic": table.name, "reason": DROPPED, "first_date": first,
        "last_date": end - timedelta(days=1), "noticed_at": datetime.now(UTC),
    }  # fmt: skip
    rows = pa.Table.from_pylist([row], LOST_RECORDS.schema)
    if append_once(LOST_RECORDS, LOST_RECORDS.create(lake), rows, f"{DROPPED_BEFORE}:{follower}", version, fence):
        log.warning(
            "%s: retention has dropped rows of %s before they were read, of landed dates %s to %s: see table %s",
            follower, table.name, first or "unknown", end - timedelta(days=1), LOST_RECORDS.name,
        )  # fmt: skip
