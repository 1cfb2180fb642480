"""Prints what is new in a lake while a job writes it: clients, what happens to them, and findings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka_telemetry_lake.pipelines.query.lake_query import is_lake, run_query
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.sql_text import filled, sql_file

MOST_CLIENTS = 20
HOUR = timedelta(hours=1)
_CLIENTS = sql_file("new_rows", "clients")
_EVENTS = sql_file("new_rows", "events")
_FINDINGS = sql_file("new_rows", "findings")
TEXTS = {
    "terminated": "terminated: it sent its last push",
    "went_silent": "went silent; likely cause: {likely_cause}",
    "rebootstrap": "went back to its bootstrap servers",
    "data_path_dead": "pushes telemetry, but reaches no broker for its records",
    "resumed": "pushes again",
}


class NewRows:
    """What has landed in a lake since a time.

    Args:
        say: prints a line.
        since: landing time; None: a minute ago, as clocks may differ a little.
    """

    def __init__(self, lake: str, say: Callable[[str], None], since: datetime | None = None) -> None:
        self._lake, self._say = lake, say
        self._since = since or datetime.now(UTC) - timedelta(minutes=1)
        self._said: set[Hashable] = set()
        self.events: set[tuple[str, str]] = set()
        """event and client id of all events that were printed"""
        self.findings: set[tuple[str, str]] = set()
        """finding and client id of all findings that were printed"""

    @property
    def clients(self) -> int:
        """Number of client instances that have been printed."""
        return sum(isinstance(each, str) for each in self._said)

    def look(self, *, with_findings: bool = True) -> None:
        """Print what is new. A lake that isn't there yet, or is just being changed, has nothing new."""
        for row in self._rows(_CLIENTS, self._since):
            if self._is_new(row["client_instance_id"]) and self.clients <= MOST_CLIENTS:
                software = f"{row['software']} {row['version']}" if row["software"] else "unknown software"
                pushes = "1 push" if row["pushes"] == 1 else f"{row['pushes']} pushes"
                self._tell(row["client_id"], f"({software}) is in the lake: {pushes}, {row['points']:,} data points")
        for row in self._rows(_EVENTS, self._since):
            text = TEXTS.get(row["event"])
            if text is not None and self._is_new((row["client_instance_id"], row["event"], row["at"])):
                self.events.add((row["event"], row["client_id"]))
                self._tell(row["client_id"], text.format(likely_cause=row["likely_cause"]))
        for row in self._rows(_FINDINGS, self._since - HOUR) if with_findings else ():
            if self._is_new((row["client_id"], row["finding"])):
                self.findings.add((row["finding"], row["client_id"]))
                self._tell(row["client_id"], f"has a finding, {row['finding']}: {row['evidence']}. {row['advice']}")

    def _is_new(self, key: Hashable) -> bool:
        new = key not in self._said
        self._said.add(key)
        return new

    def _tell(self, client_id: str | None, text: str) -> None:
        self._say(printable(f"lake: {client_id or '(no client id)'} {text}"))

    def _rows(self, sql: str, since: datetime) -> Iterable[dict[str, Any]]:
        if not is_lake(self._lake):
            return []
        try:
            rows: list[dict[str, Any]] = (
                run_query(self._lake, filled(sql, {"since": since.isoformat()})).read_all().to_pylist()
            )
        except QueryError:
            return []
        return rows
