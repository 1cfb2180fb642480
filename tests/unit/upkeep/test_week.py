"""The simulated week of `benchmarks.week`, in small: days pass, and nothing grows with them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import aged, week
from kafka_telemetry_lake.pipelines.upkeep import small_files

pytestmark = [pytest.mark.lake, pytest.mark.slow]


def test_days_pass_and_nothing_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "MANY", 6)
    monkeypatch.setattr(small_files, "CHECKPOINT_COMMITS", 6)
    monkeypatch.setattr(week, "RETENTION_DAYS", 1)
    monkeypatch.setattr(aged, "UPKEEP_EVERY", 3)
    lake = week.Week(tmp_path, 6)
    for day in range(2):
        figures = lake.run(6)
        assert len(lake.days("metric_points")) in (1, 2)
        assert lake.maintain() == []
        last = lake.now.date()  # the next day has begun
        assert last == week.FIRST.date() + timedelta(days=day + 1)
        assert lake.days("metric_points") in ([], [last])
        assert figures["live_files_max"] <= 12
        assert figures["files_in_folders"] < 6 * 30
    assert lake.job.number == 12
    assert lake.job.upkeep_cpu_s > 0
