"""Rates of a time range: per second of what the range covers of each window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa

from kafka_telemetry_lake.dashboards.lake import Lake
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.selection import Selection, step_seconds

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def scene(lake: Path, first: datetime, last: datetime, step_s: int) -> Scene:
    start, stop = Selection("all").bounds(first, last)
    nobody = pa.table({})
    return Scene(Lake(str(lake)), (), Selection("all"), first, last, start, stop, nobody, nobody, step_s)


def rates(lake: Path, first: datetime, last: datetime, step_s: int, *points: tuple[datetime, int]) -> list[float]:
    rows = pd.DataFrame([{"at_ms": int(at.timestamp() * 1000), "points": count} for at, count in points])
    found: list[float] = scene(lake, first, last, step_s).per_second(rows, "points")["points"].tolist()
    return found


def test_one_push_is_not_thousands_of_points_a_second(tmp_path: Path) -> None:
    """15 points of a push every minute are a quarter of a point a second; its range is a millisecond."""
    step_s = step_seconds(NOON, NOON + timedelta(milliseconds=1), 60_000)
    assert step_s == 60
    assert rates(tmp_path, NOON, NOON, step_s, (NOON, 15)) == [0.25]


def test_windows_that_are_half_covered_count_by_what_is_covered(tmp_path: Path) -> None:
    minutes = [(NOON + timedelta(minutes=n), 60) for n in range(3)]
    last = NOON + timedelta(minutes=2, seconds=30, milliseconds=-1)
    assert rates(tmp_path, NOON, last, 60, *minutes) == [1.0, 1.0, 2.0]
    last = NOON + timedelta(minutes=2, seconds=29)
    assert rates(tmp_path, NOON, last, 60, *minutes) == [1.0, 1.0]
