"""A batch that was cut off between two commits finds what it reads, however long upkeep ran without the job."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, stream_of

DAYS_LATER = (date(2026, 11, 21), date(2026, 11, 25), date(2027, 3, 1))


def upkeep(stream: LocalStream, today: date) -> None:
    settings = MaintenanceSettings({"pushes": 1}, 64 << 20, 0, 7)
    job = Maintenance(str(stream.lake), str(stream.checkpoints), settings, today)
    for name in job.tables():
        assert job.maintain(name).problems == (), name


@pytest.mark.slow
def test_inputs_of_a_batch_that_was_cut_off_outlast_upkeep_without_the_job(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 20, 6)
    before = set(stream.paths())
    for _ in range(6):
        stream.land(fleet.round())
    inputs = sorted(set(stream.paths()) - before)
    committed = TableLog.commit

    def until_points(log: TableLog, *args: object) -> bool:
        if log.table is not METRIC_POINTS and stream.batch_id == 6:
            raise KeyboardInterrupt
        return committed(log, *args)  # type: ignore[arg-type]  # those of the method

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableLog, "commit", until_points)
        with pytest.raises(KeyboardInterrupt):
            stream.judge(inputs)  # the points are there, their outcomes aren't
    points = DeltaTable(METRIC_POINTS.uri(str(stream.lake))).count()
    for today in DAYS_LATER:
        upkeep(stream, today)
    assert {path for path in inputs if (stream.lake / "pushes" / path).exists()} == set(inputs)
    stream.judge(inputs)
    assert DeltaTable(METRIC_POINTS.uri(str(stream.lake))).count() == points  # not twice
    assert check(stream.lake, fleet.ledger).problems == []
