"""Replay without Spark: a lake that a wrong decoder has filled is put right, whole or from a snapshot, and cut off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.replay.files import PushFile, batches_of
from kafka_telemetry_lake.pipelines.replay.replay import ReplayError, finish_swap
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import rollup_sums, table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, run_tasks, stream_of

pytestmark = pytest.mark.lake

ROWS = ("metric_points", "quarantine", "push_outcomes", "client_events")


def rows_of(lake: Path) -> dict[str, Any]:
    """All rows of the operator's tables; rollups summed, since their rows follow the batches."""
    found: dict[str, Any] = {
        name: sorted(str(sorted(row.items())) for row in table(lake, name).to_pylist()) for name in ROWS
    }
    return found | {name: rollup_sums(lake, name) for name in ("metric_rollups_1m", "metric_rollups_1h")}


def run(stream: LocalStream, wanted: str | None = None, batch_bytes: int = 1, tasks: Any = run_tasks) -> None:
    replay.replay(str(stream.lake), str(stream.checkpoints), wanted, DEFAULT_LIMITS, batch_bytes, tasks)


def test_each_table_is_swapped_in_one_commit_of_the_generations_own_id(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet()
    stream.batch(fleet.round())
    before = {each.name: DeltaTable(each.uri(str(stream.lake))).version() for each in OPERATOR_TABLES}
    rows = rows_of(stream.lake)
    run(stream)
    run(stream)
    for each in OPERATOR_TABLES:
        delta = DeltaTable(each.uri(str(stream.lake)))
        assert delta.version() == before[each.name] + 2
        assert delta.transaction_version("kafka-telemetry-lake:points:test") in (0, None)
    assert rows_of(stream.lake) == rows


@pytest.mark.parametrize(
    "cut_at",
    [
        pytest.param(at, marks=[] if each in (OPERATOR_TABLES[0], OPERATOR_TABLES[-1]) else pytest.mark.slow)
        for at, each in enumerate(OPERATOR_TABLES)
    ],
)
def test_cut_off_in_the_swap_it_goes_forward_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    stream, fleet = stream_of(tmp_path, 4, 2)
    commit = TableLog.replace

    def cut(log: TableLog, *others: Any) -> bool:
        if log.table is OPERATOR_TABLES[cut_at]:
            raise KeyboardInterrupt
        return commit(log, *others)

    monkeypatch.setattr(TableLog, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        run(stream)
    monkeypatch.undo()
    assert finish_swap(str(stream.lake), str(stream.checkpoints))
    assert not finish_swap(str(stream.lake), str(stream.checkpoints))
    assert check(stream.lake, fleet.ledger).problems == []
    stream.batch(fleet.round())
    assert check(stream.lake, fleet.ledger).problems == []


def test_cut_off_before_the_swap_nothing_has_changed(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 4, 2)

    calls = []

    def dies(task: ShardTask) -> Iterable[Mapping[str, Any]]:
        calls.append(task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run_tasks(task)

    with pytest.raises(KeyboardInterrupt):
        run(stream, tasks=dies)
    assert not finish_swap(str(stream.lake), str(stream.checkpoints))
    assert check(stream.lake, fleet.ledger).problems == []
    stream.batch(fleet.round())
    assert check(stream.lake, fleet.ledger).problems == []


def test_a_snapshot_needs_no_log(tmp_path: Path) -> None:
    stream, fleet, right = LocalStream(tmp_path), Fleet(clients=4), LocalStream(tmp_path / "right")
    rounds = [fleet.round() for _ in range(3)]
    for number, records in enumerate(rounds):
        stream.batch(records)
        right.batch(records)
        if number < 2:
            stream.snapshot()
    for name in ("pushes", "push_outcomes"):
        DeltaTable(str(stream.lake / name)).optimize.compact()
    expire_logs(stream.lake)
    begin = min(record["timestamp"] for record in rounds[1])
    run(stream, wanted=f"landed_at >= '{begin.isoformat()}'")
    assert check(stream.lake, fleet.ledger).problems == []
    assert rows_of(stream.lake) == rows_of(right.lake)
    # It began with the first snapshot. The one after the beginning was of the rows before.
    assert [snapshot.batch_id for snapshot in Snapshots(str(stream.checkpoints)).all()] == [0]
    assert not (stream.lake / "pushes" / "_replay").exists()


def test_a_swap_whose_snapshot_is_gone_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=4)
    stream.batch(fleet.round())
    stream.snapshot()
    later = fleet.round()
    stream.batch(later)
    rows = rows_of(stream.lake)
    begin = min(record["timestamp"] for record in later)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "finish_swap", lambda *_: None)
        run(stream, wanted=f"landed_at >= '{begin.isoformat()}'")
    assert cli.main(["maintain", "--lake", str(stream.lake)]) == 2, "the new rows' files are unreferenced yet"
    (snapshot,) = Snapshots(str(stream.checkpoints)).all()
    Snapshots(str(stream.checkpoints)).drop(snapshot)
    with pytest.raises(ReplayError, match=f"needs snapshot {snapshot.name} of the state, which is gone"):
        finish_swap(str(stream.lake), str(stream.checkpoints))
    assert rows_of(stream.lake) == rows


def test_pushes_that_retention_has_dropped_are_not_replaced_by_nothing(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=4)
    stream.batch(fleet.round())
    stream.snapshot()
    stream.batch(fleet.round(pushes=70))  # until after midnight
    rows = rows_of(stream.lake)
    DeltaTable(PUSHES.uri(str(stream.lake))).delete("landed_date < '2026-11-21'")
    with pytest.raises(ReplayError, match="table pushes no longer has"):
        run(stream)
    assert rows_of(stream.lake) == rows


def test_dropped_days_do_not_come_back_from_a_snapshot(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=4)
    stream.batch(fleet.round(pushes=60))  # the whole evening, up to a few seconds before midnight
    stream.snapshot()
    after = fleet.round()
    stream.batch(after)
    points_before = table(stream.lake, "metric_points")
    for name in ("pushes", *ROWS):
        DeltaTable(str(stream.lake / name)).delete("landed_date < '2026-11-21'")
    begin = min(record["timestamp"] for record in after)
    run(stream, wanted=f"landed_at >= '{begin.isoformat()}'")
    expected = points_before.filter(pc.equal(points_before["landed_date"].cast(pa.string()), "2026-11-21"))
    found = table(stream.lake, "metric_points")
    assert set(found["landed_date"].cast(pa.string()).to_pylist()) == {"2026-11-21"}
    assert found.num_rows == expected.num_rows > 0
    assert pc.sum(found["delta_int"]) == pc.sum(expected["delta_int"])


def test_files_whose_offsets_overlap_are_one_batch() -> None:
    a, b, c, d = (
        PushFile("a", 10, {0: (0, 9)}),
        PushFile("b", 10, {0: (10, 19), 1: (0, 5)}),
        PushFile("c", 10, {0: (5, 7)}),
        PushFile("d", 10, {1: (6, 9)}),
    )
    assert batches_of([a, b, d], 20) == [[a, b], [d]]
    assert batches_of([a, b, d], 1) == [[a], [b], [d]]
    assert batches_of([a, b, c, d], 1) == [[a, b, c], [d]]


def test_events_of_the_lifecycle_stay_and_the_operators_own_are_made_anew(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=8)
    stream.batch(fleet.round(pushes=6))
    note(stream, "first_seen", "too_late")
    stream.snapshot()
    stream.batch(later := fleet.round(pushes=6))
    note(stream, "first_seen", "lost_interval")
    begin = min(record["timestamp"] for record in later).isoformat()
    run(stream, f"landed_at >= '{begin}'")
    assert sorted(table(stream.lake, "client_events")["event"].to_pylist()) == ["first_seen", "first_seen", "too_late"]
    run(stream)
    assert table(stream.lake, "client_events")["event"].to_pylist() == ["first_seen", "first_seen"]


def note(stream: LocalStream, *events: str) -> None:
    """Events that no push of the fleet gives reason for."""
    rows = table(stream.lake, "push_outcomes").slice(0, 1).to_pylist() * len(events)
    rows = [row | {"event": event, "at": row["landed_at"]} for row, event in zip(rows, events, strict=True)]
    write_deltalake(
        str(stream.lake / "client_events"), pa.Table.from_pylist(rows, CLIENT_EVENTS.stored), mode="append",
        partition_by=["landed_date"],
    )  # fmt: skip


def test_a_lake_without_state_has_nothing_to_replay(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="nothing to replay"):
        run(LocalStream(tmp_path))


@pytest.mark.slow
def test_state_swept_by_the_next_batch_keeps_the_replayed(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 4, 5)
    run(stream)
    named = {name for names in StateFolder(stream.state.uri, None, 1).before(5).states.values() for name in names}
    assert named <= {path.name for path in (stream.checkpoints / "points-state").glob("*.state")}
