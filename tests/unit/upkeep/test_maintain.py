"""Upkeep without Spark: what is dropped, what stays, and that neither rows nor replays suffer."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.ingest import push_files
from kafka_telemetry_lake.pipelines.ingest.row_order import BY_CLIENT
from kafka_telemetry_lake.pipelines.lake import stored_pushes
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.replay.replay import ReplayError, replay
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.pipelines.upkeep import maintenance as maintenance_module
from kafka_telemetry_lake.pipelines.upkeep import merging
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.pipelines.upkeep.merging import merged
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.support.landing_records import record
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, run_tasks, stream_of

pytestmark = pytest.mark.lake

EVENING, NEXT_DAY = date(2026, 11, 20), date(2026, 11, 21)
ALL_EVENING = 60  # pushes of a client until a few seconds before midnight


def maintenance(stream: LocalStream, today: date = NEXT_DAY, hours: int = 0, **days: int) -> Maintenance:
    return Maintenance(str(stream.lake), str(stream.checkpoints), MaintenanceSettings(days, 64 << 20, hours, 7), today)


def maintain(stream: LocalStream, today: date = NEXT_DAY, hours: int = 0, **days: int) -> dict[str, Any]:
    job = maintenance(stream, today, hours, **days)
    return {name: job.maintain(name) for name in job.tables()}


def files(stream: LocalStream, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(stream.lake / name)).get_add_actions()).to_pylist()
    return found


@pytest.mark.slow
def test_small_files_of_past_days_become_one_and_the_rows_stay(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 20, 6)
    before = table(stream.lake, "pushes").sort_by([(name, "ascending") for name in BY_CLIENT])
    done = maintain(stream)
    assert done["pushes"].compacted_files == 6
    assert done["metric_points"].compacted_files == 12  # of two shards
    for name in ("pushes", "metric_points", "push_outcomes", "metric_rollups_1m"):
        assert len(files(stream, name)) == 1, name
    assert check(stream.lake, fleet.ledger).problems == []
    (one,) = files(stream, "pushes")
    assert pq.ParquetFile(stream.lake / "pushes" / one["path"]).num_row_groups == 1
    assert table(stream.lake, "pushes").drop_columns(["landed_date"]).equals(before.drop_columns(["landed_date"]))
    points = table(stream.lake, "metric_points")
    clients = points["client_instance_id"].to_pylist()
    assert sum(a != b for a, b in itertools.pairwise(clients)) == len(set(clients)) - 1  # each one's are together
    stream.batch(fleet.round())
    assert check(stream.lake, fleet.ledger).problems == []
    replay(str(stream.lake), str(stream.checkpoints), None, DEFAULT_LIMITS, 1, run_tasks)
    assert check(stream.lake, fleet.ledger).problems == []


def test_retention_drops_whole_days_of_the_named_tables_only(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 3, (ALL_EVENING, 5))
    outcomes = table(stream.lake, "push_outcomes").num_rows
    done = maintain(stream, pushes=1, metric_points=2)
    assert done["pushes"].dropped_days == ("2026-11-20",)
    assert {name for name, each in done.items() if each.dropped_days} == {"pushes"}
    assert set(table(stream.lake, "pushes")["landed_date"].cast(pa.string()).to_pylist()) == {"2026-11-21"}
    assert table(stream.lake, "push_outcomes").num_rows == outcomes
    # Once more changes nothing.
    version = DeltaTable(str(stream.lake / "pushes")).version()
    assert maintain(stream, pushes=1)["pushes"].dropped_days == ()
    assert DeltaTable(str(stream.lake / "pushes")).version() == version
    stream.batch(fleet.round())


def test_pushes_that_are_not_judged_yet_stay(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    stream.batch(fleet.round())
    stream.land(fleet.round(pushes=ALL_EVENING))
    late = date(2027, 1, 1)
    assert maintain(stream, today=late, pushes=1)["pushes"].dropped_days == ()
    stream.judge([row["path"] for row in files(stream, "pushes")][:2])
    assert check(stream.lake, fleet.ledger).lost == 0


def test_days_with_as_many_outcomes_as_pushes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    stream.batch(fleet.round(pushes=ALL_EVENING))
    asked: list[str] = []
    ask = stored_pushes.ask

    def counted(query: str, **tables: Any) -> list[tuple[Any, ...]]:
        asked.append(query)
        return ask(query, **tables)

    monkeypatch.setattr(maintenance_module, "ask", counted)
    assert (maintenance(stream)._unprocessed_days(NEXT_DAY), asked) == ([], [])
    stream.land(fleet.round(pushes=5))  # of the next day
    assert maintenance(stream)._unprocessed_days(NEXT_DAY) == []
    assert maintenance(stream)._unprocessed_days(date(2026, 12, 1)) == ["2026-11-21"]
    stream.judge([path for path in stream.paths() if "2026-11-21" in path])
    DeltaTable(str(stream.lake / "pushes")).delete(
        "partition = 1"
    )  # by hand: numbers differ, but none lacks its outcome
    asked.clear()
    assert maintenance(stream)._unprocessed_days(date(2026, 12, 1)) == []
    assert len(asked) == 2


def test_a_replay_from_the_beginning_is_refused_once_pushes_were_dropped(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 3, (ALL_EVENING, 5))
    maintain(stream, pushes=1, metric_points=1, push_outcomes=1, quarantine=1)
    with pytest.raises(ReplayError, match="before 2026-11-21"):
        replay(str(stream.lake), str(stream.checkpoints), None, DEFAULT_LIMITS, 1, run_tasks)


def test_a_snapshot_whose_later_pushes_are_dropped_goes_with_them(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    stream.batch(fleet.round())
    stream.snapshot()
    stream.batch(fleet.round(pushes=ALL_EVENING))
    stream.snapshot()
    stream.batch(fleet.round(pushes=5))
    maintain(stream, pushes=1)
    assert [snapshot.batch_id for snapshot in Snapshots(str(stream.checkpoints)).all()] == [1]


def test_files_that_a_snapshot_needs_survive_vacuum_without_a_log(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 3, 3)
    stream.snapshot()
    (snapshot,) = Snapshots(str(stream.checkpoints)).all()
    rows = snapshot.dataset(Lake(str(stream.lake)), PUSH_OUTCOMES).count_rows()
    for _ in range(3):
        stream.batch(fleet.round())
    killed = stream.lake / "push_outcomes" / "landed_date=2026-11-20" / "part-of-a-killed-task.zstd.parquet"
    killed.write_bytes(b"")
    maintain(stream)
    assert not killed.exists()
    expire_logs(stream.lake)
    done = maintain(stream)
    assert {each.problems for each in done.values()} == {()}
    assert rows > 0
    assert snapshot.dataset(Lake(str(stream.lake)), PUSH_OUTCOMES).count_rows() == rows
    assert len(list((stream.lake / "push_outcomes").glob("landed_date=*/*"))) == 6 + 1
    assert maintenance(stream, today=date(2026, 12, 24)).drop_snapshots() == 1
    assert maintain(stream)["push_outcomes"].vacuumed_files == 6


def test_files_of_the_last_hours_survive_vacuum(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 3, 8)
    assert {each.compacted_files for each in maintain(stream, today=EVENING).values()} == {0}, "today is left alone"
    done = maintain(stream, hours=1)["metric_points"]
    assert (done.compacted_files, done.vacuumed_files) == (16, 0)  # of two shards


def land_zeros(stream: LocalStream, files: int, pushes: int, size: int) -> None:
    """Files of pushes of `size` zeros, whose offsets alternate between the files: each file is small on disk."""
    for number in range(files):
        records = [
            record(number + files * n, bytes(size)) | {"timestamp": datetime(2026, 11, 20, 12, tzinfo=UTC)}
            for n in range(pushes)
        ]
        stream.land(records)


@pytest.mark.slow
def test_pushes_of_more_than_two_gib_are_compacted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = LocalStream(tmp_path)
    land_zeros(stream, files=6, pushes=72, size=5 << 20)  # 2.2 GB; 32 bits of offsets end at 2.1
    monkeypatch.setattr(Maintenance, "_unprocessed_days", lambda *_: [])
    job = Maintenance(str(stream.lake), str(stream.checkpoints), MaintenanceSettings({}, 1 << 30, 0, 7), NEXT_DAY)
    pool_before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pool_before)
    pa.set_memory_pool(pool)
    try:
        done = job.maintain("pushes")
    finally:
        pa.set_memory_pool(pool_before)
    assert (done.compacted_files, done.problems) == (6, ())
    (one,) = files(stream, "pushes")
    read = pq.ParquetFile(stream.lake / "pushes" / one["path"])
    assert read.read(["offset"])["offset"].to_pylist() == list(range(6 * 72))
    assert read.metadata.num_row_groups >= 2_200_000_000 // push_files.SLICE_BYTES
    assert pool.max_memory() < 1 << 30


@pytest.mark.slow
def test_a_table_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream, _ = stream_of(tmp_path, 20, 6)

    def fails(table: Table, *rest: Any) -> Any:
        if table is PUSHES:
            raise pa.ArrowInvalid("offset overflow\nwhile concatenating")
        return merged(table, *rest)

    monkeypatch.setattr(merging, "merged", fails)
    assert cli.main(["maintain", "--lake", str(stream.lake)]) == 1
    problem = "pushes: compaction: ArrowInvalid: offset overflow while concatenating"
    assert capsys.readouterr().err == f"telemetry-lake: maintain: {problem}; run it again\n"
    assert len(files(stream, "pushes")) == 6
    assert len(files(stream, "metric_points")) == 1


def test_outcomes_stay_where_the_retention_of_their_pushes_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = stream_of(tmp_path, 3, (ALL_EVENING, 5))
    monkeypatch.setattr(Maintenance, "_drop_snapshots_that_need", lambda *_: 1 / 0)
    done = maintain(stream, pushes=1, push_outcomes=1, metric_points=1)
    assert done["pushes"].problems == ("retention: ZeroDivisionError: division by zero",)
    assert "skipped because it failed for pushes" in done["push_outcomes"].problems[0]
    assert done["push_outcomes"].dropped_days == ()
    assert done["metric_points"].dropped_days == ("2026-11-20",)


@pytest.mark.slow
def test_a_killed_day_of_pushes_goes_on_after_the_files_that_were_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, fleet = stream_of(tmp_path, 3, 8)
    sizes = pa.table(DeltaTable(str(stream.lake / "pushes")).get_add_actions())["size_bytes"].to_pylist()
    target = 2 * max(sizes) + 1  # two or three files make one
    settings = MaintenanceSettings({}, target, 168, 7)
    job = Maintenance(str(stream.lake), str(stream.checkpoints), settings, NEXT_DAY)
    rearrange, done = TableLog.rearrange, list[TableLog]()

    def killed(log: TableLog, *rest: Any) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(log)
        rearrange(log, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "rearrange", killed)
        with pytest.raises(KeyboardInterrupt):
            job.maintain("pushes")
    assert len(files(stream, "pushes")) in (4, 5, 6)
    assert check(stream.lake, fleet.ledger).problems == []
    assert {name: job.maintain(name).problems for name in job.tables()} == dict.fromkeys(job.tables(), ())
    assert check(stream.lake, fleet.ledger).problems == []
