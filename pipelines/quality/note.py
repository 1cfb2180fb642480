"""What a check of the data quality rules has found so far: an interrupted check goes on where it stopped.

A full check of 90 days may take hours. So every few seconds the results up to then are stored in a note in the folder
of table `quality_results`, and a line of progress is printed. A check appends its rows to the table when it has ended,
in one commit; the note is deleted after it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS

FIELDS = ("asked", "checked_at", "number", "tables")
EVERY_S = 5.0
ALL_DAYS = "all"  # in place of a landed date: rules that are asked once for all days
APP_ID = "telemetry-lake-quality"


@dataclass(frozen=True)
class NotedTable:
    """What is known of a table: landed dates that have been checked, and a result of each rule over them."""

    days: frozenset[str | None] = frozenset()
    findings: Sequence[Mapping[str, Any]] = ()


class CheckNote:
    """The note of one check; without a lake it is in memory only.

    Attributes:
        checked_at: when the check began, also if it was interrupted.
    """

    def __init__(self, lake: str | None = None, asked: Mapping[str, Any] | None = None) -> None:
        """Read the note of an interrupted check.

        Args:
            asked: what is to be checked, as JSON. Of a check of something else nothing is used.
        """
        self._lake, self._uri = lake, QUALITY_RESULTS.uri(lake or "")
        self._file = FencedNote(self._uri, "_check", FIELDS, "delete it, and the check begins again")
        self._content: dict[str, Any] = {
            "asked": asked,
            "checked_at": datetime.now(UTC).isoformat(),
            "number": 1,
            "tables": {},
        }
        self.goes_on = False
        if lake is not None and DeltaTable.is_deltatable(self._uri):
            stored = self._file.read()
            if stored is not None and stored["asked"] == asked:
                self._content, self.goes_on = stored, True
            else:  # a number, since a clock may be set back
                self._content["number"] += DeltaTable(self._uri).transaction_version(APP_ID) or 0
        self.checked_at = datetime.fromisoformat(self._content["checked_at"])
        self._stored = time.monotonic()

    def version(self, name: str) -> int | None:
        """The version of a table that the check has read; None: none yet."""
        noted = self._content["tables"].get(name)
        return None if noted is None else noted["version"]

    def table(self, name: str, version: int, since: int | None) -> NotedTable:
        """What is known of a table between these versions; of others nothing can be used."""
        noted = self._content["tables"].get(name)
        if noted is None or (noted["version"], noted["since"]) != (version, since):
            noted = {"version": version, "since": since, "days": [], "findings": []}
            self._content["tables"][name] = noted
        return NotedTable(frozenset(noted["days"]), noted["findings"])

    def checked(self, name: str, day: str | None, findings: list[dict[str, Any]], line: str) -> None:
        """A landed date of a table has been checked: `findings` are the results up to it, `line` says how far it is."""
        noted = self._content["tables"][name]
        noted["days"].append(day)
        noted["findings"] = findings
        if self._lake is not None and time.monotonic() - self._stored >= EVERY_S:
            QUALITY_RESULTS.create(self._lake)
            self._file.write(self._content)
            print(line, file=sys.stderr)
            self._stored = time.monotonic()

    def end(self, rows: pa.Table) -> None:
        """Append the rows of the check to `quality_results`, unless it was interrupted after that; delete the note."""
        assert self._lake is not None
        append_once(QUALITY_RESULTS, QUALITY_RESULTS.create(self._lake), rows, APP_ID, self._content["number"])
        self._file.delete()
