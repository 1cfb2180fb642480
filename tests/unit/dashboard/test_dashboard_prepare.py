"""The server asks what the first page needs, before anybody opens it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.lake import PREPARED
from kafka_telemetry_lake.dashboards.prepare import begin_to_prepare
from kafka_telemetry_lake.dashboards.scene import open_scene
from kafka_telemetry_lake.dashboards.screens import problems
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1M, PUSHES
from tests.support.asked_questions import note_questions

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_the_first_page_finds_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = str(tmp_path)
    METRIC_ROLLUPS_1M.create(lake)
    push: Mapping[str, Any] = {"client_instance_id": "i", "client_id": "orders", "landed_at": NOON,
                               "landed_date": NOON.date(), "push_interval_ms": 60_000}  # fmt: skip
    write_deltalake(PUSHES.uri(lake), pa.Table.from_pylist([push], PUSHES.stored), mode="append")
    asked = note_questions(monkeypatch)
    begin_to_prepare(lake).join()
    first_page = {"totals", "instances", "client_windows", "changes", "activity", "clients_over_time", "marks"}
    assert first_page | {*PREPARED} <= {*asked}
    asked.clear()
    scene = open_scene(lake, Selection())
    assert scene is not None
    assert scene.chosen["client_id"].to_pylist() == ["orders"]
    assert problems.changes(scene).empty
    assert asked == []


def test_a_lake_that_is_not_there_is_said_by_the_pages(tmp_path: Path) -> None:
    """The thread says nothing: pytest would fail for what it raises."""
    begin_to_prepare(str(tmp_path / "nothing")).join()
