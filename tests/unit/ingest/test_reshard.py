"""``telemetry-lake reshard``: the same rows whatever the number of shards, and a crash at any step is harmless."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.ingest import idle_cores
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.locks import only_job
from kafka_telemetry_lake.pipelines.ingest.checkpoint import points_app_id, read_id
from kafka_telemetry_lake.pipelines.ingest.reshard import reshard
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.errors import ShardCountError
from kafka_telemetry_lake.pipelines.replay.rebuild import rebuild_state
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.state import chain, manifest
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.lake_tables import rollup_sums, table
from tests.support.ledger import Fleet, Ledger
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, run_tasks
from tests.support.operator_alone import Job, without_spark

pytestmark = pytest.mark.lake

ROWS = ("metric_points", "quarantine", "push_outcomes", "client_events")


def stream_in(folder: Path) -> LocalStream:
    """Whose commits the job would take for its own."""
    stream = LocalStream(folder)
    (stream.checkpoints / "points").mkdir()
    (stream.checkpoints / "points" / "metadata").write_text(json.dumps({"id": "test"}))
    TableLog(PUSH_OUTCOMES, str(stream.lake)).commit([], read_id(points_app_id(str(stream.checkpoints))), 0, {})
    return stream


def to(stream: LocalStream, shards: int) -> None:
    """To the operator it is a batch."""
    assert reshard(str(stream.lake), str(stream.checkpoints), shards).clients is not None
    stream.batch_id += 1


def rows_of(lake: Path) -> dict[str, Any]:
    """All rows of the operator's tables; rollups summed, since their rows follow the batches."""
    found: dict[str, Any] = {
        name: sorted(str(sorted(row.items())) for row in table(lake, name).to_pylist()) for name in ROWS
    }
    return found | {name: rollup_sums(lake, name) for name in ("metric_rollups_1m", "metric_rollups_1h")}


def state_of(stream: LocalStream, batch_id: int) -> tuple[int, list[int]]:
    """The number of shards that a batch starts with, and the clients in them, whose files are all there."""
    start = StateFolder(stream.state.uri, None, 1).before(batch_id)
    states = [ShardState(**dict(ShardFiles(stream.state.uri, shard).load(names).state.whole()))
              for shard, names in start.states.items()]  # fmt: skip
    return start.shards, sorted(client for state in states for client in column(state.clients, "client").tolist())


@dataclass
class OneRun:
    """Three rounds of a fleet, and a lake in which they are three batches of the same shards."""

    rounds: list[list[dict[str, Any]]]
    ledger: Ledger
    stream: LocalStream
    rows: dict[str, Any]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> OneRun:
    stream, fleet = LocalStream(tmp_path_factory.mktemp("straight")), Fleet(clients=8)
    rounds = [fleet.round() for _ in range(3)]
    for records in rounds:
        stream.batch(records)
    return OneRun(rounds, fleet.ledger, stream, rows_of(stream.lake))


def test_two_to_eight_to_three_in_mid_stream_give_the_rows_of_one_run(tmp_path: Path, straight: OneRun) -> None:
    stream = stream_in(tmp_path)
    for shards, records in zip((None, 8, 3), straight.rounds, strict=True):
        if shards is not None:
            to(stream, shards)
            assert state_of(stream, stream.batch_id)[0] == shards
        stream.batch(records)
    assert rows_of(stream.lake) == straight.rows
    assert check(stream.lake, straight.ledger).problems == []
    assert state_of(stream, 5)[1] == state_of(straight.stream, 3)[1]


class KilledError(BaseException):
    """The process ends here: nothing catches it."""


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """Kill the process before the so-manieth step that writes: a file of state, a manifest, a deletion, the commit."""
    done: list[str] = []

    def counted(name: str, call: Any) -> Any:
        def run(*args: Any, **others: Any) -> Any:
            done.append(name)
            if len(done) == step:
                raise KilledError
            return call(*args, **others)

        return run

    steps = (
        (chain, "write_tables", "state"), (chain, "sync", "sync"), (ShardFiles, "delete", "delete"),
        (manifest, "write_json", "manifest"), (StateFolder, "_sweep", "sweep"), (TableLog, "commit", "commit"),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for owner, attribute, name in steps:
            patch.setattr(owner, attribute, counted(name, getattr(owner, attribute)))
        yield done


@pytest.mark.slow
def test_killed_at_any_step_the_lake_has_the_old_number_or_the_new_one(tmp_path: Path) -> None:
    """And goes on: the command can be run again, or a batch."""
    stream, fleet = stream_in(tmp_path / "0"), Fleet(clients=6)
    stream.batch(fleet.round())
    clients, steps = state_of(stream, 1)[1], list[str]()
    while "commit" not in steps:
        copy = tmp_path / f"{len(steps) + 1}"
        shutil.copytree(tmp_path / "0", copy)
        lake, checkpoints = str(copy / "lake"), str(copy / "lake" / "_checkpoints")
        with killed_at(len(steps) + 1) as done, pytest.raises(KilledError):
            reshard(lake, checkpoints, 3)
        cut = LocalStream.__new__(LocalStream)
        cut.state = StateFolder(f"{checkpoints}/points-state", None, 1)
        assert state_of(cut, 1) == (2, clients)
        assert reshard(lake, checkpoints, 2).clients is None  # it is what it was
        assert StateFolder(f"{checkpoints}/points-state", 2, 1).batch_ids() == [0]
        assert reshard(lake, checkpoints, 3).clients == len(clients)
        assert state_of(cut, 2) == (3, clients)
        steps = done
    assert steps.count("state") > 4
    assert steps[-3:] == ["manifest", "sweep", "commit"]


@pytest.mark.parametrize("begun", [False, True])
def test_after_a_reshard_that_was_killed_before_its_commit_the_old_number_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    without_spark(monkeypatch)
    job = Job(tmp_path)
    job.batch()
    with pytest.raises(ShardCountError, match=r"3 shards requested, but the state below .* has 2"):
        job.operator.require_shards(3)
    if begun:  # a batch that was cut off in its commits has a manifest that counts
        job.cut_off_batch(monkeypatch)
    else:
        with monkeypatch.context() as killed:
            killed.setattr(TableLog, "commit", kill)
            with pytest.raises(KilledError):
                reshard(job.lake, str(job.stream.checkpoints), 3)
        last = job.stream.state.last()
        assert last is not None
        assert (last.batch_id, last.shards) == (1, 3)
    job.start()
    job.operator.require_shards(2)
    assert StateFolder(job.stream.state.uri, None, 1).batch_ids() == [0, 1][: 1 + begun]
    job.batch()
    assert (StateFolder(job.stream.state.uri, None, 1).shards, job.operator.shards) == (2, 2)


def kill(*_: object) -> None:
    raise KilledError


def test_files_of_two_batches_before_stay(tmp_path: Path) -> None:
    """A job that takes over meanwhile may start from them."""
    stream, fleet = stream_in(tmp_path), Fleet(clients=6)
    stream.batch(fleet.round())
    stream.batch(fleet.round())
    before = [state_of(stream, number) for number in (1, 2)]
    to(stream, 5)
    assert [state_of(stream, number) for number in (1, 2)] == before


@pytest.mark.slow
def test_a_replay_from_a_snapshot_of_another_number(tmp_path: Path, straight: OneRun) -> None:
    stream, rounds = stream_in(tmp_path), straight.rounds
    stream.batch(rounds[0])
    stream.snapshot()
    to(stream, 5)
    stream.batch(rounds[1])
    begin = min(record["timestamp"] for record in rounds[1]).isoformat()
    replay(str(stream.lake), str(stream.checkpoints), f"landed_at >= '{begin}'", DEFAULT_LIMITS, 1, run_tasks)
    assert state_of(stream, stream.batch_id)[0] == 5
    stream.batch(rounds[2])
    assert rows_of(stream.lake) == straight.rows
    assert check(stream.lake, straight.ledger).problems == []


def test_a_damaged_state_is_rebuilt_from_a_snapshot_of_another_number(tmp_path: Path, straight: OneRun) -> None:
    stream, rounds = stream_in(tmp_path), straight.rounds
    stream.batch(rounds[0])
    stream.snapshot()
    to(stream, 5)
    stream.batch(rounds[1])
    (name, *_) = StateFolder(stream.state.uri, None, 1).before(3).states[2]
    (Path(stream.state.uri) / name).unlink()

    def run_shards(task: Any, shards: Any) -> Any:
        for batch in task([pa.record_batch({"id": list(shards)})]):
            yield from batch.to_pylist(maps_as_pydicts="strict")

    done = rebuild_state(str(stream.lake), str(stream.checkpoints), DEFAULT_LIMITS, 1 << 20, run_shards)
    assert (done.shards, done.batch_id) == ([2], 2)
    assert done.snapshot is not None
    assert done.snapshot.shards == 2
    stream.batch(rounds[2])
    assert rows_of(stream.lake) == straight.rows


def run(capsys: pytest.CaptureFixture[str], stream: LocalStream, *words: str) -> tuple[int, list[str], str]:
    code = cli.main(["reshard", "--lake", str(stream.lake), *words])
    printed = capsys.readouterr()
    lines = [line.partition(" ")[2] for line in printed.out.splitlines()]
    return code, lines, printed.err.replace(str(stream.lake), "LAKE")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    stream, fleet = stream_in(tmp_path), Fleet(clients=12)
    stream.batch(fleet.round())
    clients = len(state_of(stream, 1)[1])
    with caplog.at_level("INFO"):
        assert run(capsys, stream, "--shards", "3")[0] == 0
        assert run(capsys, stream, "--shards", "3")[0] == 0
    said = [record.getMessage() for record in caplog.records if record.name == "telemetry-lake"]
    assert said[0].startswith("state: read shard 1 of 2: ")
    assert said[2] == "state: wrote shard 1 of 3"
    assert said[-2].startswith(f"reshard: done: {clients} clients from 2 shards to 3 in ")
    assert said[-1] == f"reshard: nothing to do: {stream.lake} has 3 shards"
    with pytest.raises(
        ShardCountError, match=r"8 shards requested, .* has 3: leave --shards out, or run .*--shards 8`"
    ):
        StateFolder(stream.state.uri, 8, 1)


def test_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream, fleet = stream_in(tmp_path), Fleet(clients=6)
    new = run(capsys, stream, "--shards", "3")
    assert (new[0], "no push of LAKE has been judged yet" in new[2]) == (2, True), new
    stream.batch(fleet.round())
    swap = stream.checkpoints / "points-swap.json"
    swap.write_text("{}")
    swapping = run(capsys, stream, "--shards", "3")
    assert (swapping[0], "finish it with `telemetry-lake replay` first" in swapping[2]) == (2, True), swapping
    swap.unlink()
    before = state_of(stream, 1)
    TableLog(METRIC_POINTS, str(stream.lake)).commit([], points_app_id(str(stream.checkpoints)), 1, {})
    shutil.copy(stream.checkpoints / "points-state" / "manifest-0000000000.json",
                stream.checkpoints / "points-state" / "manifest-0000000001.json")  # fmt: skip
    begun = run(capsys, stream, "--shards", "3")
    assert (begun[0], "batch 1 of LAKE was cut off in its commits: start `tele" in begun[2]) == (2, True), begun
    assert state_of(stream, 1) == before
    with only_job(str(stream.lake), "ingest", "busy"):
        busy = run(capsys, stream, "--shards", "3")
    assert busy[0] == 2
    assert busy[2].startswith(
        "telemetry-lake: a job is running on LAKE: stop it, reshard, then start it again: "
        f"`ingest`, process {os.getpid()} on "
    )
    assert state_of(stream, 1) == before
    assert [len(refused[2].splitlines()) for refused in (new, swapping, begun, busy)] == [1] * 4


def test_a_damaged_state_is_refused_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream, fleet = stream_in(tmp_path), Fleet(clients=6)
    stream.batch(fleet.round())
    (name, *_) = StateFolder(stream.state.uri, None, 1).before(1).states[1]
    (Path(stream.state.uri) / name).unlink()
    code, _, error = run(capsys, stream, "--shards", "3")
    assert (code, f"state file {name} below" in error, "replay --rebuild-state" in error) == (2, True, True)
    assert StateFolder(stream.state.uri, None, 1).batch_ids() == [0]


def test_a_job_on_more_cores_than_shards_says_what_would_use_them() -> None:
    flags = ["--source", "files:in", "--lake", "my-lake", "--checkpoints", "c"]
    settings = parse(IngestSettings, flags, "test")
    assert idle_cores(settings, 2, 8) == (
        "2 shards on 8 cores: `telemetry-lake reshard --lake my-lake --checkpoints c --shards 8` would use them"
    )
    assert [idle_cores(settings, shards, 8) for shards in (8, 9)] == [None, None]
    assert idle_cores(parse(IngestSettings, [*flags, "--shards", "2"], "test"), 2, 8) is None
