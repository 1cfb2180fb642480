"""A pass of `maintain` that was killed goes on where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake

DAYS, TODAY = ("2026-11-20", "2026-11-21"), date(2026, 11, 22)
ALL_EVENING = 60  # pushes of a client until a few seconds before midnight
Step = tuple[str, str]  # a table and a landed date


class KilledError(BaseException):
    """Nothing in the code handles it, as nothing handles SIGKILL."""


def maintain(lake: Path, target_bytes: int = 64 << 20) -> None:
    settings = MaintenanceSettings({}, target_bytes, 168, 7)
    job = Maintenance(str(lake), str(lake / "_checkpoints"), settings, TODAY)
    for name in job.tables():
        assert job.maintain(name).problems == (), name


@contextmanager
def steps(kill_at: int | None = None) -> Iterator[list[Step]]:
    """What is compacted meanwhile; the process is killed just before it commits this step."""
    done: list[Step] = []

    def step(table: str, day: str) -> None:
        if len(done) == kill_at:
            raise KilledError
        done.append((table, day))

    with pytest.MonkeyPatch.context() as patch:
        compact, rearrange = TableOptimizer.compact, TableLog.rearrange

        def optimize(optimizer: TableOptimizer, **options: Any) -> Any:
            ((_, _, day),) = options["partition_filters"]
            step(Path(optimizer.table.table_uri).name, day)
            return compact(optimizer, **options)

        patch.setattr(TableOptimizer, "compact", optimize)

        def commit(log: TableLog, rows: Any, files: Any) -> None:
            step(log.table.name, rows[0]["partition"]["landed_date"])
            rearrange(log, rows, files)

        patch.setattr(TableLog, "rearrange", commit)
        yield done


def live_files(lake: Path, name: str) -> int:
    return len(DeltaTable(str(lake / name)).file_uris())


@pytest.mark.slow
def test_a_killed_pass_goes_on_where_it_stopped(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    for pushes in (*[ALL_EVENING // 5] * 5, *[2] * 5):
        stream.batch(fleet.round(pushes=pushes))
    shutil.copytree(stream.lake, tmp_path / "whole")
    with steps() as in_all:
        maintain(tmp_path / "whole")
    assert [step for step in in_all if step[0] == "pushes"] == [("pushes", day) for day in DAYS]
    assert [step for step in in_all if step[0] == "metric_points"] == [("metric_points", day) for day in DAYS]
    tables = {name for name, _ in in_all}
    for kill_at in (1, len(in_all) - 1):
        copy = shutil.copytree(stream.lake, tmp_path / f"killed-{kill_at}")
        with steps(kill_at) as before, pytest.raises(KilledError):
            maintain(copy)
        assert check(copy, fleet.ledger).problems == []  # nothing is lost meanwhile either
        with steps() as after:
            maintain(copy)
        assert before + after == in_all  # no day twice, none left out
        assert check(copy, fleet.ledger).problems == []
        assert {name: live_files(copy, name) for name in tables} == dict.fromkeys(tables, 2)


def test_a_day_of_pushes_goes_on_after_the_files_that_were_committed(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    for _ in range(8):
        stream.batch(fleet.round())
    sizes = pa.table(DeltaTable(str(stream.lake / "pushes")).get_add_actions())["size_bytes"].to_pylist()
    target = 2 * max(sizes) + 1  # two or three files make one
    with steps(kill_at=2), pytest.raises(KilledError):
        maintain(stream.lake, target)
    assert live_files(stream.lake, "pushes") in (4, 5, 6)
    assert check(stream.lake, fleet.ledger).problems == []
    maintain(stream.lake, target)
    assert check(stream.lake, fleet.ledger).problems == []
