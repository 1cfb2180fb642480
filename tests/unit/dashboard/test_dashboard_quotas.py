"""The timeline of the quotas page: what each entity used of its quota, and how long it was delayed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUOTA_USAGE
from tests.support.application_lake import put
from tests.support.quota_samples import NOON, usage_window

ASKED: dict[str, Any] = {
    "start": NOON, "stop": NOON + timedelta(minutes=2), "step_ms": 60_000, "filters": 0, "entities": 2,
}  # fmt: skip
NOBODY = pa.table({name: pa.array([], pa.string()) for name in ("cluster_id", "client_id", "principal")})


def usage(
    client_id: str, user: str, second: int, used: float, throttle_ms: float, source: str = "broker"
) -> dict[str, Any]:
    of = {"user": user, "client_id": client_id, "source": source, "landed_date": NOON.date()}
    delayed = {"used_percent": used, "throttle_ms": throttle_ms, "throttled": throttle_ms > 0}
    return usage_window(second, **of, **delayed, quota_limit=100.0 + second)


@pytest.fixture
def lake(tmp_path: Path) -> LakeReader:
    rows = [
        usage("greedy", "", 0, 80, 0), usage("greedy", "", 10, 100, 40), usage("greedy", "", 50, 100, 900),
        usage("greedy", "", 60, 100, 20), usage("greedy", "", 10, 5, 9999, "client"), usage("", "ann", 0, 95, 0),
        usage("idle", "", 0, 1, 0), usage("greedy", "", 120, 100, 5000),
    ]  # fmt: skip
    PUSHES.create(str(tmp_path))
    put(tmp_path, QUOTA_USAGE, rows)
    opened = LakeReader(str(tmp_path))
    opened.versions()
    return opened


def test_each_window_has_the_fullest_share_and_the_longest_delay_of_the_best_source(lake: LakeReader) -> None:
    rows = lake.ask("throttling", ASKED, NOBODY).to_pylist()
    noon = int(NOON.timestamp() * 1000)
    shown = [(row["entity"], row["at_ms"] - noon, row["used_percent"], row["throttle_ms"], row["throttled_s"],
              row["quota_limit"]) for row in rows]  # fmt: skip
    assert shown == [
        ("produce: all users, greedy", 0, 100, 900, 20, 150),
        ("produce: all users, greedy", 60_000, 100, 20, 10, 160),
        ("produce: ann, all client ids", 0, 95, 0, 0, 100),  # the third, idle, isn't among the first two
    ]


@pytest.mark.parametrize(
    ("chosen", "entities"),
    [(("c", "idle", "User:bob"), {"idle"}), (("c", "other", "User:ann"), {""}), (("d", "idle", "x"), set())],
)
def test_filters_leave_the_entities_of_the_chosen_clients(
    lake: LakeReader, chosen: tuple[str, ...], entities: set[str]
) -> None:
    clients = pa.Table.from_pylist([dict(zip(NOBODY.column_names, chosen, strict=True))], NOBODY.schema)
    rows = lake.ask("throttling", ASKED | {"filters": 1}, clients)
    assert set(rows["client_id"].to_pylist()) == entities
