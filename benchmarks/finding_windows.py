"""Whether findings come and go while their fault lasts, and whether the bounds at which they close see to that.

Findings are of hours, and no scenario lasts for many. So short windows of a run are judged as if each were an hour.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from benchmarks.finding_scenarios import Run
from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, PUSHES, QUARANTINE
from kafka_telemetry_lake.udfs.findings.states import HOUR_US
from tests.support.captured_lake import push_row, write_lake

READ = (PUSHES, PUSH_OUTCOMES, METRIC_POINTS, QUARANTINE)
FIRST_HOUR = 490_896  # 2026-01-01


@dataclass
class Windows:
    """Windows from the first to the last with a finding, those with it, and those above where it closes.

    `varies` is the range of the measure, by its mean, in the windows between the first and the last: of the subject of
    which it is largest.
    """

    all: int = 0
    found: int = 0
    above_closing: int = 0
    varies: float = 0.0

    def __add__(self, other: Windows) -> Windows:
        both = (self.all + other.all, self.found + other.found, self.above_closing + other.above_closing)
        return Windows(*both, max(self.varies, other.varies))


def windows(runs: Iterable[Run], window_s: int) -> dict[str, Windows]:
    """By rule that closes elsewhere than it opens, over the subjects of the scenarios of which it is true."""
    result: dict[str, Windows] = defaultdict(Windows)
    for run in runs:
        with tempfile.TemporaryDirectory() as folder:
            pushes = [push_row(record) for record in run.landed.to_pylist()]
            landed = write_lake(Path(folder) / "landed", pa.Table.from_pylist(pushes, PUSHES.schema))
            last_hour = _spread(landed, Path(folder) / "lake", window_s)
            lake = LakeHours(str(Path(folder) / "lake"))
            with lake.hours(FIRST_HOUR, last_hour) as hours:
                found = hours.found()
            asked = {
                ((row["cluster_id"], row["scope"], row["subject"]), row["finding"])
                for rows in found.values()
                for row in rows
            }
            asked = {each for each in asked if rules()[each[1]].closes and _true(run, each[1], each[0][2])}
            above = lake.lingering(FIRST_HOUR, last_hour, asked)
        for subject, finding in asked:
            measures = {
                hour: row["measure"]
                for (_, hour), rows in found.items()
                for row in rows
                if (row["cluster_id"], row["scope"], row["subject"]) == subject and row["finding"] == finding
            }
            own = measures.keys()
            near = {hour for cluster, hour, *rest in above if (cluster, *rest) == (*subject, finding)}
            span = set(range(min(own), max(own) + 1))
            whole = [measure or 0.0 for hour, measure in measures.items() if min(own) < hour < max(own)]
            varies = (max(whole) - min(whole)) / abs(statistics.mean(whole)) if whole and any(whole) else 0.0
            result[finding] += Windows(len(span), len(own), len(span & near), round(varies, 3))
    return dict(sorted(result.items()))


def _spread(landed: Path, lake: Path, window_s: int) -> int:
    """Copy a lake, with each window of landing times in an hour of its own; returns the last hour."""
    tables = {table: DeltaTable(table.uri(str(landed))).to_pyarrow_table() for table in READ}
    begin = pc.min(tables[PUSHES]["landed_at"].cast(pa.int64())).as_py()
    last_hour = FIRST_HOUR
    for table, rows in tables.items():
        since = pc.subtract(rows["landed_at"].cast(pa.int64()), begin)
        number = pc.divide(since, window_s * 1_000_000)
        within = pc.subtract(since, pc.multiply(number, window_s * 1_000_000))
        hours = pc.add(number, FIRST_HOUR)
        landed_at = pc.add(pc.multiply(hours, HOUR_US), within).cast(table.schema.field("landed_at").type)
        moved = rows.select(table.schema.names).set_column(
            table.schema.names.index("landed_at"), "landed_at", landed_at
        )
        write_deltalake(table.create(str(lake)), table.with_partition(moved), mode="append")
        last_hour = max(last_hour, pc.max(hours).as_py() or 0)
    return last_hour


def _true(run: Run, finding: str, subject: str | None) -> bool:
    return any(one.has(subject) and finding in one.expect for one in run.scenarios)
