"""What becomes of clients whose clock is an hour off, and of 100,000 that fall silent at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN
from tests.support import otlp_builder as otlp
from tests.support.lake_tables import table
from tests.support.otlp_builder import DELTA, Shard, counter, values_of
from tests.unit.lifecycle.test_lifecycle import at, others
from tests.unit.lifecycle.test_lifecycle_lake import LandedLake, many

HOUR = 3600.0


@pytest.mark.slow
@pytest.mark.parametrize("clock", [[0.0] * 4, [HOUR] * 4, [-HOUR] * 4, [0.0, HOUR, -HOUR, 0.0]])
def test_l2_a_clock_that_is_an_hour_off_changes_neither_state_nor_events(tmp_path: Path, clock: list[float]) -> None:
    shard = Shard()
    pushes = [
        otlp.push(second, counter(5, second - 1 + off, second + off, temporality=DELTA), resource={"client_rack": "r"})
        for second, off in enumerate(clock, start=1)
    ]
    rows = [shard.run(each) for each in pushes]
    points = [row for each in rows for row in each.metric_points.to_pylist()]
    assert values_of(points, "landed_at", "time") == [
        (otlp.at(second), otlp.at(second + off)) for second, off in enumerate(clock, start=1)
    ]
    if len(set(clock)) == 1:  # one that jumps loses or doubles what no rule can know
        assert values_of(points, "delta") == [5, 5, 5, 5]
    lake = LandedLake(tmp_path).land(pushes, {"client_rack": "r"}).judge()
    lake.land([otlp.push(90, client_instance_id="other")]).judge()
    client = lake.clients()[otlp.CLIENT]
    assert (client["first_seen"], client["last_seen"], client["state"], client["silent_at"], client["coverage"]) == (
        otlp.at(1), otlp.at(4), "silent", otlp.at(64), 1.0,
    )  # fmt: skip
    own = [row for row in lake.events() if row["client_instance_id"] == otlp.CLIENT]
    assert sorted((row["at"], row["event"]) for row in own) == [
        (otlp.at(1), "first_seen"), (otlp.at(64), "went_silent"),
    ]  # fmt: skip


@pytest.mark.slow
def test_l12_l13_100_000_clients_that_fall_silent_at_once_are_one_event_and_a_bounded_number(tmp_path: Path) -> None:
    count = 100_000
    PUSHES.create(str(tmp_path))
    rows = many(count, 0, 0.0, terminating=False)
    missing = [field for field in PUSHES.schema if field.name not in LIFECYCLE_IN.names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(count, field.type))
    files = TableFiles(PUSHES, str(tmp_path))
    files.write(rows.select(PUSHES.schema.names).cast(PUSHES.schema))
    TableLog(PUSHES, str(tmp_path)).commit(files.close(), "many", 1)
    LandedLake(tmp_path).judge().land([others(600, count)]).judge()
    events = table(tmp_path, "client_events")
    assert Counter(events["event"].to_pylist()) == {
        "first_seen": 10_000 + 1, "went_silent": 10_000, "mass_silence": 1,
    }  # fmt: skip
    (wave,) = events.filter(pc.is_null(events["client_instance_id"])).to_pylist()
    detail = dict(wave["detail"])
    assert (wave["at"], detail["clients"], detail["active_before"], detail["share"]) == (
        at(120), str(count), str(count), "1.000",
    )  # fmt: skip
    states = run_query(str(tmp_path), "SELECT state, count(*) AS n FROM clients GROUP BY state").read_all().to_pylist()
    assert {row["state"]: row["n"] for row in states} == {"silent": count, "active": 1}
