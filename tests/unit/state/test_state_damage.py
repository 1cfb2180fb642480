"""A damaged state file, manifest or snapshot is one line that says what to do, and the way out gives the same lake."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.notes import sealed
from kafka_telemetry_lake.pipelines.replay.rebuild import Rebuilt, rebuild_state
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot, Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.conversion.state import (
    SCHEMAS,
    DamagedStateError,
    ShardState,
)
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.expired_logs import expire_logs
from tests.support.ledger import Fleet
from tests.support.local_stream import SHARDS, LocalStream
from tests.unit.conversion.test_state import full_state
from tests.unit.replay.test_replay import rows_of

pytestmark = pytest.mark.lake

NAME = "shard-00000-batch-0000000000-00000000.state"


@pytest.fixture(autouse=True)
def _new_workers() -> None:
    state_chain._cached.clear()


def test_every_flipped_bit_of_a_state_file_is_an_error() -> None:
    data = full_state().to_bytes(NAME)
    bits = random.Random(17)
    places = [(place, 1 << bits.randrange(8)) for place in range(len(data))]
    places += [(bits.randrange(len(data)), 1 << bits.randrange(8)) for _ in range(250)]
    for place, bit in places:
        damaged = bytearray(data)
        damaged[place] ^= bit
        with pytest.raises((DamagedStateError, OtherFormatError)):
            ShardState.from_bytes(bytes(damaged), NAME)


def test_a_cut_or_lengthened_state_file_is_an_error() -> None:
    data = full_state().to_bytes(NAME)
    for wrong in (*(data[:size] for size in range(len(data))), data + b"\0", data + data):
        with pytest.raises((DamagedStateError, OtherFormatError)):
            ShardState.from_bytes(wrong, NAME)


def test_a_state_file_under_another_name_is_an_error() -> None:
    with pytest.raises(DamagedStateError, match="checksum"):
        ShardState.from_bytes(full_state().to_bytes(NAME), NAME.replace("00000-batch", "00001-batch"))


def damage(path: Path, place: int = -100) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.unlink()  # mapped pages of this process stay as they are
    path.write_bytes(data)


def test_the_error_names_file_and_command_in_one_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(full_state().to_bytes(NAME))
    damage(tmp_path / NAME)
    with pytest.raises(StateError) as raised:
        ShardFiles(str(tmp_path), 0).read([NAME])
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 500  # what the job's last line has room for
    assert NAME in message
    assert "is damaged (its checksum is wrong)" in message
    assert "`telemetry-lake replay --rebuild-state`" in message


def mangled(content: dict[str, Any], draw: random.Random) -> bytes:
    """A note that is not what was written."""
    data = json.dumps(content).encode()
    kind = draw.randrange(4)
    if kind == 0:
        return data[: draw.randrange(len(data))]
    if kind == 1:
        place = draw.randrange(len(data))
        return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
    name = draw.choice(sorted(content))
    if kind == 2:
        return json.dumps({each: value for each, value in content.items() if each != name}).encode()
    others: tuple[Any, ...] = (
        None, True, -1, 1 << 80, 0.5, "x", [], {}, [[]], {"0": 7}, {"-1": ["a.state"]}, {"0": ["../a.state"]},
        {"9" * 5000: []}, "[" * 5000,
    )  # fmt: skip
    return json.dumps(content | {name: draw.choice(others)}).encode()


@pytest.mark.slow
def test_mangled_manifests_are_one_line(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path), 2, 2)
    good = Manifest(7, 2, {0: ("a.state",), 1: ("b.state", "c.state")})
    folder.write(good)
    path = tmp_path / "manifest-0000000007.json"
    content = json.loads(path.read_bytes())
    assert folder.before(8) == good
    draw = random.Random(3)
    for _ in range(3000):
        data = mangled(content, draw)
        path.write_bytes(data)
        same = _same_json(data, content)
        if same:
            assert folder.before(8) == good
            continue
        with pytest.raises(StateError) as raised:
            folder.before(8)
        assert "\n" not in str(raised.value)
    wrong: tuple[Any, ...] = ({"2": ["a.state"]}, {"0": "a.state"}, {"0": ["a"]}, {"x": []}, [], None)
    for states in wrong:
        path.write_text(json.dumps(sealed({"shards": 2, "states": states})))
        with pytest.raises(StateError, match=r"manifest-0000000007.json .* is damaged \(.*--rebuild-state"):
            folder.before(8)


def _same_json(data: bytes, content: Any) -> bool:
    try:
        return bool(json.loads(data) == content and "true" not in data.decode())
    except ValueError:
        return False


@pytest.mark.slow
def test_mangled_snapshots_are_one_line(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path)
    stream.batch(Fleet(clients=2).round())
    stream.snapshot()

    def read() -> list[Snapshot]:
        return Snapshots(str(stream.checkpoints)).all()

    (good,) = read()
    (path,) = (stream.checkpoints / "points-snapshots").glob("*/snapshot.json")
    content = json.loads(path.read_bytes())
    draw = random.Random(5)
    for _ in range(1000):
        data = mangled(content, draw)
        path.write_bytes(data)
        if _same_json(data, content):
            continue
        with pytest.raises(StateError, match="Delete its folder") as raised:
            read()
        assert "\n" not in str(raised.value)
    path.write_text(json.dumps(content))
    assert read() == [good]


def run_shards(task: ShardTask, shards: Sequence[int]) -> Iterable[Mapping[str, Any]]:
    for batch in task([pa.record_batch({"id": shards})]):
        yield from batch.to_pylist(maps_as_pydicts="strict")


def rebuild(stream: LocalStream) -> Rebuilt:
    state_chain._cached.clear()  # the command is another process
    return rebuild_state(str(stream.lake), str(stream.checkpoints), DEFAULT_LIMITS, 1, run_shards)


def state_of(stream: LocalStream) -> dict[str, Any]:
    """All rows of the state after the last batch, by shard and table."""
    manifest = stream.state.before(stream.batch_id)
    found: dict[str, Any] = {}
    for shard in range(SHARDS):
        parts: StateParts = ShardFiles(stream.state.uri, shard).read(manifest.states.get(shard, ())).state
        whole = parts.rows_of(np.sort(parts.client_columns().client))
        found |= {f"{shard} {name}": getattr(whole, name).to_pylist() for name in SCHEMAS}
    return found


def twins(tmp_path: Path, rounds: int) -> tuple[LocalStream, LocalStream, Fleet]:
    """Two lakes with the same pushes."""
    damaged, right, fleet = LocalStream(tmp_path / "damaged"), LocalStream(tmp_path / "right"), Fleet()
    for _ in range(rounds):
        both(damaged, right, fleet)
    return damaged, right, fleet


def both(damaged: LocalStream, right: LocalStream, fleet: Fleet) -> None:
    records = fleet.round()
    damaged.batch(records)
    right.batch(records)


def assert_goes_on(stream: LocalStream, right: LocalStream, fleet: Fleet) -> None:
    assert state_of(stream) == state_of(right)
    both(stream, right, fleet)
    assert rows_of(stream.lake) == rows_of(right.lake)


def a_state_file(stream: LocalStream, shard: int = 1) -> Path:
    return stream.checkpoints / "points-state" / stream.state.before(stream.batch_id).states[shard][0]


@pytest.mark.slow
def test_pushes_that_are_not_judged_yet_are_left_to_the_stream(tmp_path: Path) -> None:
    stream, right, fleet = twins(tmp_path, 3)
    waiting = fleet.round()
    before = set(stream.paths())
    stream.land(waiting)
    landed = sorted(set(stream.paths()) - before)
    DeltaTable(PUSHES.uri(str(stream.lake))).optimize.compact()  # they are in one file with the judged ones
    a_state_file(stream, 0).unlink()
    assert rebuild(stream).shards == [0]
    assert not (stream.lake / "pushes" / "_replay").exists()
    assert state_of(stream) == state_of(right)
    stream.judge(landed)
    right.batch(waiting)
    assert rows_of(stream.lake) == rows_of(right.lake)


@pytest.mark.slow
def test_a_rebuild_begins_at_the_newest_whole_snapshot(tmp_path: Path) -> None:
    stream, right, fleet = twins(tmp_path, 2)
    stream.snapshot()
    both(stream, right, fleet)
    stream.snapshot()
    both(stream, right, fleet)
    older, newer = Snapshots(str(stream.checkpoints)).all()
    (damaged, *_) = set(newer.states[1]) - set(older.states[1])
    for name in (damaged, stream.state.before(stream.batch_id).states[1][-1]):
        damage(stream.checkpoints / "points-state" / name)
    done = rebuild(stream)
    assert done.snapshot == older
    assert_goes_on(stream, right, fleet)


@pytest.mark.slow
def test_a_batch_that_spark_has_not_marked_as_done_runs_again(tmp_path: Path) -> None:
    """Its rows and its manifest are there; the state is rebuilt as it was before it."""
    stream, right, fleet = twins(tmp_path, 3)
    points = stream.checkpoints / "points"
    (points / "commits").mkdir(parents=True)
    for batch_id in range(2):
        (points / "commits" / str(batch_id)).touch()
    (points / "metadata").write_text('{"id": "test"}')
    last = sorted(set(stream.paths()))
    damage(a_state_file(stream))
    stream.batch_id = 2
    assert a_state_file(stream, 1).exists()
    damage(a_state_file(stream, 0))
    done = rebuild(stream)
    assert done.batch_id == 1
    newest = DeltaTable(PUSHES.uri(str(stream.lake)))
    newest.load_as_version(newest.version() - 1)
    stream.judge(sorted(set(last) - {path.split("/pushes/")[-1] for path in newest.file_uris()}))
    assert rows_of(stream.lake) == rows_of(right.lake)
    assert_goes_on(stream, right, fleet)


@pytest.mark.slow
def test_a_damaged_manifest_is_made_anew_too(tmp_path: Path) -> None:
    stream, right, fleet = twins(tmp_path, 4)
    damage(stream.checkpoints / "points-state" / "manifest-0000000003.json", -20)
    damage(stream.checkpoints / "points-state" / "manifest-0000000002.json", -20)
    with pytest.raises(StateError, match=r"manifest-0000000003\.json"):
        stream.judge([])
    assert rebuild(stream).shards == [0, 1]
    assert_goes_on(stream, right, fleet)


def test_a_rebuild_needs_no_log(tmp_path: Path) -> None:
    stream, right, fleet = twins(tmp_path, 2)
    stream.snapshot()
    both(stream, right, fleet)
    expire_logs(stream.lake)
    damage(a_state_file(stream))
    done = rebuild(stream)
    assert (done.shards, done.snapshot is not None) == ([1], True)
    assert rebuild(stream).shards == []
    assert not (stream.checkpoints / "points" / "rebuild.parquet").exists()
    assert_goes_on(stream, right, fleet)


def test_what_can_not_be_rebuilt_says_what_else_to_do(tmp_path: Path) -> None:
    stream, _, _ = twins(tmp_path, 2)
    damage(a_state_file(stream))
    note = stream.checkpoints / "points" / "offsets-before.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"version": 3, "ranges": [{"source": "test"}]}))
    with pytest.raises(StateError, match=r"began on a lake that had points already.*--checkpoints"):
        rebuild(stream)
    note.unlink()
    DeltaTable(PUSHES.uri(str(stream.lake))).delete("partition = 0")
    with pytest.raises(StateError, match=r"no longer has \d+ of the pushes that it includes .*--checkpoints"):
        rebuild(stream)
    for path in (stream.checkpoints / "points-state").glob("manifest-*"):
        path.write_bytes(b"")
    with pytest.raises(StateError, match=r"no manifest below .* can be read: restore"):
        rebuild(stream)
