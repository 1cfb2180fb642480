"""Reads table `finding_changes` commit by commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.notify.file import Row
from kafka_telemetry_lake.pipelines.notify.findings import plain_row
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES

log = logging.getLogger(__name__)

ROWS = 5_000  # whole commits are read until they have this many rows


class Changes:
    """The changes of a lake's findings.

    Args:
        follower: the name under which changes that retention dropped unread are recorded; None: they are not.
    """

    def __init__(self, lake: str, follower: str | None) -> None:
        self._lake, self._follower = lake, follower
        self._uri = FINDING_CHANGES.uri(lake)
        self._table = FollowedTable(self._uri)

    def after(self, version: int, recorded_at: str) -> tuple[int, list[Row]]:
        """The next changes, in order, and the version that they end with.

        If the log no longer has the next commit, they are those recorded at `recorded_at` or later. So none is
        missing, but some may be there again.
        """
        rows: list[dict[str, Any]] = []
        try:
            for commit in self._table.commits(version):
                rows += self._table.read(list(commit.files), FINDING_CHANGES.schema).to_pylist()
                version = commit.version
                if len(rows) >= ROWS:
                    break
        except (LogGapError, FileNotFoundError):
            log.warning("notify: commits of %s are no longer there; its rows are read instead", FINDING_CHANGES.name)
            if self._follower is not None:
                read_at = datetime.fromisoformat(recorded_at).astimezone(UTC) if recorded_at else None
                record_dropped(self._lake, self._follower, FINDING_CHANGES, version, read_at)
            version, every = self.every()
            return version, [row for row in every if row["recorded_at"] >= recorded_at]
        except TableNotFoundError:
            return version, []
        return version, _in_order(rows)

    def every(self) -> tuple[int, list[Row]]:
        """All changes in order, and the version that they end with; -1 if there is no table."""
        try:
            table = DeltaTable(self._uri)
        except TableNotFoundError:
            return -1, []
        return table.version(), _in_order(table.to_pyarrow_table(columns=FINDING_CHANGES.schema.names).to_pylist())


def _in_order(rows: Sequence[dict[str, Any]]) -> list[Row]:
    return sorted(map(plain_row, rows), key=lambda row: (row["recorded_at"], row["at"]))
