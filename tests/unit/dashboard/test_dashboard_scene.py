"""Rates of a time range: per second of what the range covers of each window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.dashboards.address import Selection, step_seconds
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1M, PUSHES
from tests.support.known_clients import known_clients

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def scene(lake: Path, first: datetime, last: datetime, step_s: int) -> Scene:
    start, stop = Selection("all").bounds(first, last)
    return Scene(
        LakeReader(str(lake)), (), Selection("all"), first, last, start, stop, known_clients(pa.table({})), step_s
    )


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


def test_what_is_compared_is_of_the_same_clients_and_not_the_earlier_pages_answer(tmp_path: Path) -> None:
    """Who pushed an hour ago aren't who push now: the page of an hour ago has its own answer."""
    PUSHES.create(str(tmp_path))
    hour = timedelta(hours=1)
    rows = [
        {
            "client_id": client, "metric": "m", "window_start": NOON, "attribute_keys": "", "points": 1,
            "increase": increase, "covered_s": 60.0, "landed_date": NOON.date(),
        }
        for client, increase in (("stayed", 1.0), ("left", 10.0))
    ]  # fmt: skip
    write_deltalake(
        METRIC_ROLLUPS_1M.uri(str(tmp_path)), pa.Table.from_pylist(rows, METRIC_ROLLUPS_1M.stored), mode="append"
    )
    lake = LakeReader(str(tmp_path))

    def at(start: datetime, *clients: str) -> Scene:
        named = {"cluster_id": [None] * len(clients), "client_id": clients}
        chosen = pa.table(named, pa.schema([(name, pa.string()) for name in named]))
        return Scene(
            lake,
            lake.versions(),
            Selection("all"),
            NOON,
            NOON + 2 * hour,
            start,
            start + hour,
            known_clients(chosen),
            60,
        )

    def increase(scene: Scene) -> list[float]:
        found: list[float] = scene.ask("metric_over_time", metrics=["m"], top=0)["increase"].tolist()
        return found

    assert increase(at(NOON + hour, "stayed").earlier(hour)) == [1.0]
    assert increase(at(NOON, "stayed", "left")) == [11.0]
