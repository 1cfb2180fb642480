"""A snapshot is a note that names state files. They stay as long as it does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import RETAINED_MANIFESTS, StateFolder
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot, Snapshots
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake


@pytest.fixture
def stream(tmp_path: Path) -> LocalStream:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    stream.batch(fleet.round())
    stream.snapshot()
    for _ in range(RETAINED_MANIFESTS + 1):
        stream.batch(fleet.round())
    return stream


def the_snapshot(stream: LocalStream) -> Snapshot:
    (snapshot,) = Snapshots(str(stream.checkpoints)).all()
    return snapshot


def state_files(stream: LocalStream) -> set[str]:
    return {path.name for path in (stream.checkpoints / "points-state").glob("*.state")}


def named(stream: LocalStream) -> set[str]:
    """By the retained manifests."""
    return {name for manifest in stream.state.readable() for names in manifest.states.values() for name in names}


def test_it_copies_no_state_whose_files_stay_until_it_is_dropped(stream: LocalStream) -> None:
    snapshot = the_snapshot(stream)
    folder = stream.checkpoints / "points-snapshots" / snapshot.name
    assert {path.suffix for path in folder.iterdir()} == {".json", ".parquet"}
    own = {name for names in snapshot.states.values() for name in names}
    assert own - named(stream), "else this test shows nothing"
    assert own <= state_files(stream)
    for shard, names in snapshot.states.items():
        ShardFiles(stream.state.uri, shard).check(names)
    Snapshots(str(stream.checkpoints)).drop(snapshot)  # as `maintain` does beside the job
    stream.judge([])
    assert state_files(stream) == named(stream)


def test_a_job_that_starts_finds_out_what_snapshots_need(stream: LocalStream) -> None:
    stream.state = StateFolder(stream.state.uri, None, 1)
    stream.judge([])
    assert {name for names in the_snapshot(stream).states.values() for name in names} <= state_files(stream)


def test_the_size_of_the_state_is_without_snapshots(stream: LocalStream) -> None:
    folder = stream.checkpoints / "points-state"
    assert stream.state.size() == sum((folder / name).stat().st_size for name in named(stream))
    assert stream.state.size() < sum((folder / name).stat().st_size for name in state_files(stream))


def test_one_that_was_cut_off_is_none(stream: LocalStream) -> None:
    (stream.checkpoints / "points-snapshots" / the_snapshot(stream).name / "snapshot.json").unlink()
    assert Snapshots(str(stream.checkpoints)).all() == []
    stream.state = StateFolder(stream.state.uri, None, 1)
    stream.judge([])
    assert state_files(stream) == named(stream)


def test_a_snapshot_is_read_once(stream: LocalStream) -> None:
    snapshots, taken = Snapshots(str(stream.checkpoints)), the_snapshot(stream).taken_at
    assert not snapshots.due(taken, timedelta(days=1))
    path = stream.checkpoints / "points-snapshots" / the_snapshot(stream).name / "snapshot.json"
    path.write_bytes(b"damaged")
    assert not snapshots.due(taken + timedelta(hours=23), timedelta(days=1))
    assert snapshots.due(taken + timedelta(hours=24), timedelta(days=1))
    with pytest.raises(StateError, match="Delete its folder"):
        Snapshots(str(stream.checkpoints)).due(datetime.now(UTC), timedelta(days=1))
