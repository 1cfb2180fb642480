"""Findings as alerts of Alertmanager (API v2): sent again while they are open, and ended when they are resolved."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from kafka_telemetry_lake.pipelines.findings.evaluator import latest_rows
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile, Row
from kafka_telemetry_lake.pipelines.notify.findings import Finding, as_text, plain_row
from kafka_telemetry_lake.pipelines.notify.outbox import Outbox
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
    "window_start", "by", "why", "until",
)  # fmt: skip
# What the latest evaluation says of a finding that is open, though no change was recorded.
NEWEST = ("evidence", "advice", "measure", "instances", "instances_affected", "worst_instance", "window_start")
LONGEST_LABEL = 256
LONGEST_ANNOTATION = 2000

Alert = dict[str, Any]


class Alerts(Outbox):
    """The alerts that an Alertmanager has of this lake, and those to be ended there."""

    def __init__(self, lake: str, sink: str, file: NotifyFile, writes: bool = True, counts_unrouted: bool = False):
        self._lake = lake
        self._ending: list[Alert] = []
        super().__init__(lake, sink, file, writes, counts_unrouted)

    @property
    def out(self) -> dict[str, Any]:
        return {"ending": self._ending}

    @out.setter
    def out(self, content: dict[str, Any]) -> None:
        self._ending = content["ending"]

    def has_room(self) -> bool:
        return True

    def changed(self, finding: Finding, row: Row, now: float) -> None:
        """Nothing waits: alerts are what the findings are when they are sent."""

    def silenced(self, finding: Finding) -> None:
        """As for changes."""

    def alerts(self, now: datetime, expire_seconds: int) -> list[Alert]:
        """All alerts to send now. Those that are open have the evidence of the latest evaluation.

        Labels are stored before they are sent, so that an alert can be ended whenever the process ended.
        """
        open_alerts, is_new = [], False
        newest = self._newest()
        for finding_id, finding in list(self.findings.items()):
            row = finding.row
            labels = labels_of(row) if finding.is_announced and self.routes(row) else {}
            if labels != finding.labels:
                if finding.labels:
                    self._ending.append(_alert(finding.labels, row, now, min(row["at"], as_text(now))))
                finding.labels, is_new = labels, True
            if labels:
                shown = row | newest.get(finding_id, {})
                open_alerts.append(_alert(labels, shown, now, as_text(now + timedelta(seconds=expire_seconds))))
            self._forget([finding_id])
        firing = {tuple(alert["labels"].items()) for alert in open_alerts}
        self._ending = [alert for alert in self._ending if tuple(alert["labels"].items()) not in firing]
        if is_new:
            self.write()
        return open_alerts + self._ending

    def _newest(self) -> dict[str, Row]:
        try:
            rows = latest_rows(self._lake)
            return {key: plain_row({name: row[name] for name in NEWEST}) for key, row in rows.items()}
        except (TelemetryLakeError, OSError) as error:
            log.warning("notify: %s: alerts have the evidence of their last change: %s", self.sink, error)
            return {}

    def done(self) -> None:
        """Alertmanager has the alerts."""
        if self._ending:
            self._ending = []
            self.write()


def labels_of(row: Row) -> dict[str, str]:
    """The labels of a finding, without empty ones, which are as if absent."""
    return {label: _text(row[column], LONGEST_LABEL) for label, column in LABELS.items() if row[column]}


def _alert(labels: dict[str, str], row: Row, now: datetime, ends: str) -> Alert:
    annotations = {name: _text(row[name], LONGEST_ANNOTATION) for name in ANNOTATIONS if row[name] is not None}
    starts = min(row["opened_at"], as_text(now))
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
