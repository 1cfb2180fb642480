"""tools.compare_lakes: what it calls the same, and what it says of a difference."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.query.views import view_names
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSHES
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS
from kafka_telemetry_lake.pipelines.tables.table import Table
from tools import compare_lakes
from tools.compare_lakes import Compared, main

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVENTS = [{"landed_at": NOON, "at": NOON, "event": event, "detail": [("key", "value")]} for event in ("a", "b", "b")]


def put(lake: Path, to: Table, rows: list[dict[str, Any]]) -> None:
    days = [{"landed_date": NOON.date()} | row for row in rows]
    write_deltalake(to.create(str(lake)), pa.Table.from_pylist(days, to.stored), mode="append")


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Path, Path]:
    """Two lakes of the same rows, in another order and of another run."""
    a, b = tmp_path / "a", tmp_path / "b"
    for lake, events, run in ((a, EVENTS, "one"), (b, EVENTS[::-1], "two")):
        put(lake, PUSHES, [])
        put(lake, CLIENT_EVENTS, events)
        put(lake, PIPELINE_METRICS, [{"stream": "points", "batch_id": 1, "run_id": run, "seconds": float(len(run))}])
    return a, b


NAMES = ("pushes", "client_events", "pipeline_metrics", "pipeline_health")


def test_order_runs_and_clocks_are_no_difference(lakes: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*map(str, lakes), *NAMES]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "same      pushes: 0 and 0 rows",
        "same      client_events: 3 and 3 rows",
        "same      pipeline_metrics: 1 and 1 rows",
        "same      pipeline_health: 0 and 0 rows",
        "0 of 4 differ",
    ]


def test_a_row_more_or_less_is_a_difference(lakes: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(str(lakes[1] / "client_events")).delete("event = 'b'")
    put(lakes[1], CLIENT_EVENTS, EVENTS[1:2])
    assert main([*map(str, lakes), *NAMES]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[1:3] == ["DIFFERENT client_events: 3 and 2 rows", "    1 rows are only in A"]
    assert "'event': 'b'" in out[3]
    assert out[-1] == "1 of 4 differ"


def test_another_value_names_its_column(lakes: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    put(lakes[0], PUSHES, [{"landed_at": NOON, "payload": b"\x00", "offset": 1}])
    put(lakes[1], PUSHES, [{"landed_at": NOON, "payload": b"\x01", "offset": 1}])
    assert main([*map(str, lakes), "pushes"]) == 1
    out = capsys.readouterr().out
    assert "    columns that differ, row by row in order: payload\n" in out
    assert "1 rows are only in A" in out
    assert "1 rows are only in B" in out


def test_all_tables_and_views_are_compared_a_missing_table_too(
    lakes: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(lakes[1] / "client_events")
    views, compare = set[str](), compare_lakes.compared

    def compared(a: str, b: str, name: str, is_view: bool) -> Compared:
        if is_view:
            views.add(name)
        return compare(a, b, name, is_view) if name in NAMES else Compared((0, 0), [])

    monkeypatch.setattr(compare_lakes, "compared", compared)
    assert main([*map(str, lakes)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "DIFFERENT client_events: 3 and 0 rows" in lines
    assert views == view_names()
    assert {"pushes:", "metric_points:", "clients:"} < {line.split()[1] for line in lines}
