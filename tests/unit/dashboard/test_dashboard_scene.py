"""Rates of a time range: per second of what the range covers of each window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa

from kafka_telemetry_lake.dashboards.address import Selection, step_seconds
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1M, PUSHES
from tests.support.application_lake import put
from tests.support.known_clients import known_clients

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_one_push_is_not_thousands_of_points_a_second(tmp_path: Path) -> None:
    """15 points of a push every minute are a quarter of a point a second; its range is a millisecond."""
    step_s = step_seconds(NOON, NOON + timedelta(milliseconds=1), 60_000)
    assert step_s == 60
    rows = pd.DataFrame({"at_ms": [int(NOON.timestamp() * 1000)], "points": [15]})
    start, stop = Selection("all").bounds(NOON, NOON)
    nobody, lake = known_clients(pa.table({})), LakeReader(str(tmp_path))
    page = Scene(lake, (), Selection("all"), NOON, NOON, start, stop, nobody, step_s)
    assert page.per_second(rows, "points")["points"].tolist() == [0.25]


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
    put(tmp_path, METRIC_ROLLUPS_1M, rows)
    lake = LakeReader(str(tmp_path))

    def at(start: datetime, *clients: str) -> Scene:
        named = {"cluster_id": [None] * len(clients), "client_id": clients}
        chosen = pa.table(named, pa.schema([(name, pa.string()) for name in named]))
        times = (NOON, NOON + 2 * hour, start, start + hour)
        return Scene(lake, lake.versions(), Selection("all"), *times, known_clients(chosen), 60)

    def increase(scene: Scene) -> list[float]:
        found: list[float] = scene.ask("metric_over_time", metrics=["m"], top=0)["increase"].tolist()
        return found

    assert increase(at(NOON + hour, "stayed").earlier(hour)) == [1.0]
    assert increase(at(NOON, "stayed", "left")) == [11.0]
