"""A clock that was set back: one line about it, and no row, file or snapshot is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.lake.clock import clock_problem
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.upkeep import small_files
from kafka_telemetry_lake.pipelines.upkeep.small_files import SmallFiles
from tests.support.ledger_check import check
from tests.support.local_stream import stream_of


def test_a_clock_that_is_a_day_back_is_one_line(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    assert clock_problem(str(tmp_path), now) is None
    PUSHES.create(str(tmp_path))
    assert clock_problem(str(tmp_path), now) is None
    line = clock_problem(str(tmp_path), now - timedelta(days=1))
    assert line is not None
    assert line.startswith("this machine's clock is 24.0 h behind the last commit of the lake (")
    assert "\n" not in line


def test_upkeep_and_snapshots_go_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, fleet = stream_of(tmp_path, clients=2, batches=2)
    monkeypatch.setattr(small_files, "MANY", 2)
    assert SmallFiles(PUSHES, Lake(str(stream.lake))).merge("2026-11-19") == 2
    stream.snapshot()
    snapshots, day = Snapshots(str(stream.checkpoints)), timedelta(days=1)
    (taken,) = snapshots.all()
    assert not snapshots.due(taken.taken_at - day, day)
    assert snapshots.due(taken.taken_at + day, day)
    assert check(stream.lake, fleet.ledger).problems == []
