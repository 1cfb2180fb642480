"""Findings as alerts of Alertmanager (API v2): sent again while they are open, and ended when they are resolved."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import latest_rows
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.notify.outbox import ChangeRow, Outbox, as_text, plain_row
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

log = logging.getLogger(__name__)

# Labels are an alert's identity: what changes while it is open, other than severity and owner, isn't among them.
LABELS = {
    "alertname": "finding",
    "severity": "severity",
    "cluster": "cluster_id",
    "scope": "scope",
    "subject": "subject",
    "application": "application",
    "owner": "owner",
    "finding_id": "finding_id",
}
ANNOTATIONS = (
    "evidence", "advice", "client_id", "principal", "measure", "instances", "instances_affected", "worst_instance",
    "window_start",
)  # fmt: skip
# What the latest evaluation says of a finding that is open, though no change was recorded.
NEWEST = ("evidence", "advice", "measure", "instances", "instances_affected", "worst_instance", "window_start")
LONGEST_LABEL = 256
LONGEST_ANNOTATION = 2000


class Alert(TypedDict):
    """An alert as Alertmanager takes it; times are text (RFC 3339)."""

    labels: dict[str, str]
    annotations: dict[str, str]
    startsAt: str
    endsAt: str


class Alerts(Outbox[Alert]):
    """The alerts that an Alertmanager has of this lake; those that are to be ended there wait."""

    def __init__(self, lake: str, sink: str, match: Match, writes: bool = True) -> None:
        self._lake = lake
        super().__init__(lake, sink, match, writes)

    def changed(self, row: ChangeRow, before: ChangeRow | None, /) -> None:
        if before is not None and (row["change"] == "resolved" or labels_of(before) != labels_of(row)):
            self._end(row, before)

    def left(self, row: ChangeRow, before: ChangeRow, /) -> None:
        del self.open[row["finding_id"]]
        self._end(row, before)

    def _end(self, row: ChangeRow, before: ChangeRow) -> None:
        known = row["recorded_at"]
        self.waiting.append(_alert(labels_of(before), row, known, min(row["at"], known)))

    def alerts(self, now: datetime, expire_seconds: int) -> list[Alert]:
        """All alerts to send now. Those that are open have the evidence of the latest evaluation."""
        newest, ends = self._newest(), as_text(now + timedelta(seconds=expire_seconds))
        alerts = [
            _alert(labels_of(row), {**row, **newest.get(finding_id, {})}, as_text(now), ends)
            for finding_id, row in self.open.items()
        ]
        firing = [alert["labels"] for alert in alerts] if self.waiting else []
        return alerts + [alert for alert in self.waiting if alert["labels"] not in firing]

    def _newest(self) -> dict[str, dict[str, Any]]:
        try:
            rows = latest_rows(self._lake)
            return {key: plain_row({name: row[name] for name in NEWEST}) for key, row in rows.items()}
        except (TelemetryLakeError, OSError) as error:
            log.warning("notify: %s: alerts have the evidence of their last change: %s", self.sink, error)
            return {}

    def done(self) -> None:
        """Alertmanager has the alerts."""
        if self.waiting:
            self.waiting = []
            self.write()


def labels_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The labels of a row with the columns of `LABELS`, without empty ones, which are as if absent."""
    return {label: _text(row[column], LONGEST_LABEL) for label, column in LABELS.items() if row[column]}


def _alert(labels: dict[str, str], row: Mapping[str, Any], now: str, ends: str) -> Alert:
    annotations = {name: _text(row[name], LONGEST_ANNOTATION) for name in ANNOTATIONS if row[name] is not None}
    starts = min(row["opened_at"], now)
    return {
        "labels": labels,
        "annotations": annotations | {"change": row["change"]},
        "startsAt": starts,
        "endsAt": max(starts, ends),
    }


def _text(value: Any, longest: int) -> str:
    """A value without control characters, which clients may have put into their names."""
    text = printable(str(value))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
