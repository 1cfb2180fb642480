"""Sums by window that are kept are those of SQL over the rollups, whatever was asked and committed before."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.dashboards import kept_windows
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1M, PUSHES
from tests.support.application_lake import put

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
METRICS = ["a", "b"]
CLIENTS = pa.table({"cluster_id": [None, "east"], "client_id": ["orders", ""]})
Rows = list[dict[str, Any]]


def rollups(chance: random.Random, minutes: range, count: int = 40) -> Rows:
    """Rows of a few client ids and clusters in these minutes; sums of eighths are exact in any order."""
    return [
        {
            "cluster_id": chance.choice([None, "east", "west"]), "client_id": chance.choice(["orders", "other", None]),
            "metric": chance.choice([*METRICS, "c"]), "window_start": NOON + chance.choice(minutes) * MINUTE,
            "attribute_keys": "", "landed_date": NOON.date(), "points": chance.randrange(5),
            "value_max": chance.choice([None, chance.randrange(-8, 8) / 8]), "resets": chance.randrange(2),
        } | {name: chance.choice([None, chance.randrange(80) / 8]) for name in ("increase", "covered_s", "value_sum")}
        for _ in range(count)
    ]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> LakeReader:
    PUSHES.create(str(tmp_path))
    return LakeReader(str(tmp_path))


def append(lake: LakeReader, rows: Rows) -> None:
    put(Path(lake.uri), METRIC_ROLLUPS_1M, rows)


def asked(start: datetime, stop: datetime, step_s: int = 300) -> dict[str, Any]:
    return {"start": start, "first_window": start.replace(second=0), "stop": stop, "step_ms": step_s * 1000,
            "metrics": METRICS}  # fmt: skip


def rows_of(answer: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in answer.to_pylist()), key=str)


def assert_same(
    lake: LakeReader, parameters: dict[str, Any], chosen: pa.Table = CLIENTS, everybody: bool = False
) -> int:
    """Kept sums are those of the files; returns how many there are."""
    lake.look_again()
    lake.versions()
    kept = lake.windows(parameters, None if everybody else chosen, "minutes")
    of_files = lake.ask("client_windows", parameters, chosen, "minutes", everybody=everybody)
    assert rows_of(kept) == rows_of(of_files)
    return int(kept.num_rows)


def compact(lake: LakeReader, chance: random.Random) -> None:
    DeltaTable(METRIC_ROLLUPS_1M.uri(lake.uri)).optimize.compact()


def erase(lake: LakeReader, chance: random.Random) -> None:
    minute = chance.randrange(60)
    at = (NOON + minute * MINUTE).isoformat()
    DeltaTable(METRIC_ROLLUPS_1M.uri(lake.uri)).delete(f"window_start = '{at}' AND client_id = 'orders'")


def follow(lake: LakeReader, chance: random.Random) -> None:
    append(lake, rollups(chance, range(60, 65), 10))


def come_late(lake: LakeReader, chance: random.Random) -> None:
    append(lake, rollups(chance, range(0, 65, 7), 10))


CHANGES: tuple[Callable[[LakeReader, random.Random], None], ...] = (compact, erase, follow, come_late)


@pytest.mark.parametrize("seed", range(4))
def test_kept_sums_are_those_of_the_rollups(lake: LakeReader, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any ranges, lengths of windows and commits, in any order; of seed 0 only windows are kept that are asked for."""
    chance, steps = random.Random(seed), [60, 300, 300, 900]
    if seed == 0:
        monkeypatch.setattr(kept_windows, "MOST_ROWS", 0)
        steps = [300]
    for minute in range(0, 60, 10):
        append(lake, rollups(chance, range(minute, minute + 12)))
    found = 0
    for _ in range(8):
        start = NOON + timedelta(seconds=chance.randrange(-600, 3000))
        stop = start + timedelta(seconds=chance.randrange(60, 4000))
        found += assert_same(lake, asked(start, stop, chance.choice(steps)), everybody=chance.random() < 0.3)
        if chance.random() < 0.7:
            chance.choice(CHANGES)(lake, chance)
    assert found > 50


def test_a_window_that_is_kept_is_not_read_again(lake: LakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new range reads the windows at its ends; a commit only the file that it added."""
    read = list[tuple[str, datetime, datetime, int | None]]()
    add = kept_windows._WindowSums.add

    def noted(sums: Any, name: str, span: tuple[datetime, datetime], only: Any = None) -> None:
        read.append((name.partition("_")[0], *span, None if only is None else len(only)))
        add(sums, name, span, only)

    monkeypatch.setattr(kept_windows._WindowSums, "add", noted)
    append(lake, rollups(random.Random(7), range(60)))
    at = [NOON + minute * MINUTE for minute in range(61)]
    assert_same(lake, asked(at[2], at[33]))
    assert read == [
        ("shared.windows", at[5], at[30], None),
        ("window", at[2], at[5], None),
        ("window", at[30], at[33], None),
    ]
    read.clear()
    assert_same(lake, asked(at[10], at[33]))
    assert read == [("window", at[30], at[33], None)]
    read.clear()
    append(lake, rollups(random.Random(8), range(20, 22)))
    assert_same(lake, asked(at[10], at[30]))
    assert read == [("new", at[20], at[25], 1)]


def test_what_was_interrupted_leaves_the_kept_sums_as_they_were(
    lake: LakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake, rollups(random.Random(9), range(60)))
    assert_same(lake, asked(NOON, NOON + 30 * MINUTE))
    append(lake, rollups(random.Random(10), range(60)))
    with monkeypatch.context() as broken:
        broken.setattr(kept_windows._WindowSums, "fill", lambda *_: 1 / 0)
        lake.look_again()
        lake.versions()
        with pytest.raises(ZeroDivisionError):
            lake.windows(asked(NOON, NOON + 60 * MINUTE), CLIENTS, "minutes")
    assert assert_same(lake, asked(NOON, NOON + 60 * MINUTE))
