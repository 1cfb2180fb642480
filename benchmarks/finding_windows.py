"""Whether findings come and go while their fault lasts, and whether the bounds at which they close see to that.

Findings are of hours, and no scenario lasts for many. So short windows of a run are judged as if each were an hour.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.finding_scenarios import Run
from kafka_telemetry_lake.pipelines.findings.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.query.finding_rules import rules
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.dashboard.captured_lake import push_row, write_lake

START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_HOUR = int(START.timestamp()) // 3600


@dataclass
class Windows:
    """Windows from the first to the last with a finding, those with it, and those above where it closes."""

    all: int = 0
    found: int = 0
    above_closing: int = 0


def windows(runs: Iterable[Run], window_s: int) -> dict[str, Windows]:
    """By rule that closes elsewhere than it opens, over the subjects of the scenarios of which it is true."""
    result: dict[str, Windows] = defaultdict(Windows)
    for run in runs:
        pushes = [push_row(record) for record in run.landed.to_pylist()]
        begin = min(push["landed_at"] for push in pushes)
        for push in pushes:
            number, rest = divmod(push["landed_at"] - begin, timedelta(seconds=window_s))
            push["landed_at"] = START + timedelta(hours=number) + rest
        last_hour = FIRST_HOUR + int((max(push["landed_at"] for push in pushes) - START) / timedelta(hours=1))
        with tempfile.TemporaryDirectory() as folder:
            lake = LakeHours(str(write_lake(Path(folder) / "lake", pa.Table.from_pylist(pushes, PUSHES.schema))))
            with lake.hours(FIRST_HOUR, last_hour) as hours:
                found = hours.found()
            asked = {((row["cluster_id"], row["scope"], row["subject"]), row["finding"]) for row in found}
            asked = {each for each in asked if rules()[each[1]].closes and _true(run, each[1], each[0][2])}
            above = lake.lingering(FIRST_HOUR, last_hour, asked)
        for subject, finding in asked:
            of_subject = [row for row in found if (row["cluster_id"], row["scope"], row["subject"]) == subject]
            own = {row["hour"] for row in of_subject if row["finding"] == finding}
            near = {hour for cluster, hour, *rest in above if (cluster, *rest) == (*subject, finding)}
            span = set(range(min(own), max(own) + 1))
            of_rule = result[finding]
            of_rule.all += len(span)
            of_rule.found += len(own)
            of_rule.above_closing += len(span & near)
    return dict(sorted(result.items()))


def _true(run: Run, finding: str, subject: str | None) -> bool:
    return any(one.has(subject) and finding in one.expect for one in run.scenarios)
