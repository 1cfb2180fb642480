"""What is read of a lake hour by hour is what view `findings` has of it, by all rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.captured_lake import push_row, write_lake
from tests.support.landing_records import captured

pytestmark = pytest.mark.lake


@pytest.mark.slow
def test_what_is_read_of_an_hour_is_what_the_view_has_of_it(tmp_path: Path) -> None:
    """A rule that looks at other hours would fail here: evaluation reads only the hours that it is about."""
    pushes = [push_row(record) for record in captured().to_pylist()]
    for push in pushes:  # half of the clients an hour later
        push["landed_at"] += timedelta(minutes=50 * (ord(push["client_instance_id"][-1]) % 2))
    path = write_lake(tmp_path / "lake", pa.Table.from_pylist(pushes, PUSHES.schema))
    columns = (
        "cluster_id, window_start, finding, severity, scope, subject, client_id, measure, instances, "
        "instances_affected, worst_instance, evidence, advice"
    )
    whole = run_query(str(path), f"SELECT {columns} FROM findings").read_all().to_pylist()
    assert len(whole) >= 6
    _, landed = LakeHours(str(path)).landed(Position())
    parts: list[dict[str, Any]] = []
    assert len({each.hour for each in landed}) == 2
    for hour in sorted({each.hour for each in landed}):
        with LakeHours(str(path)).hours(hour, hour) as hours:
            for (_, found_in), rows in hours.found().items():
                start = datetime.fromtimestamp(found_in * 3600, UTC)
                parts += [{"window_start": start} | dict(row) for row in rows]

    for row in parts:
        for name in ("principal", "application", "owner"):
            del row[name]

    def key(row: dict[str, Any]) -> str:
        return json.dumps(row, sort_keys=True, default=str)

    assert sorted(parts, key=key) == sorted(whole, key=key)
