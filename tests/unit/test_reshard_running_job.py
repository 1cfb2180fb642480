"""``telemetry-lake reshard`` beside a running job, which changes its shards itself, between two batches."""

from __future__ import annotations

import contextlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs import reshard as command_module
from kafka_telemetry_lake.jobs.locks import LakeBusyError, only_job
from kafka_telemetry_lake.jobs.reshard_settings import ReshardSettings
from kafka_telemetry_lake.jobs.settings import parse
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state import reshard_batch
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.reshard_request import ReshardRequest
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream
from tests.support.operator_alone import Job, without_spark
from tests.unit.test_reshard import KilledError, killed_at, rows_of, stream_in

pytestmark = pytest.mark.lake


def ask(stream: LocalStream, shards: int) -> None:
    ReshardRequest(str(stream.lake)).ask(shards)


def test_a_running_job_changes_its_shards_between_two_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    fleet, straight = Fleet(clients=12), LocalStream(tmp_path / "straight")
    rounds = [fleet.round() for _ in range(4)]
    job = Job(tmp_path / "job", iter(rounds).__next__)
    for shards, records in zip((None, 8, 3, 3), rounds, strict=True):
        if shards is not None:
            ask(job.stream, shards)
        job.batch()
        straight.batch(records)
        assert job.operator.shards == (shards or 2)
        assert ReshardRequest(job.lake).asked() is None
    assert rows_of(job.stream.lake) == rows_of(straight.lake)
    assert check(job.stream.lake, fleet.ledger).problems == []
    assert StateFolder(job.stream.state.uri, None, 1).batch_ids()[-1] == 5  # four batches, two changes


def test_a_job_that_is_killed_while_it_changes_its_shards_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    first = Job(tmp_path / "0", Fleet(clients=6).round)
    first.batch()
    ask(first.stream, 3)
    rows, shards, killed = list[Any](), set[int](), 0
    while True:
        shutil.copytree(tmp_path / "0", folder := tmp_path / f"{killed + 1}")
        job = Job(folder, (fleet := Fleet(clients=6)).round)
        fleet.round()
        with killed_at(killed) as steps, contextlib.suppress(KilledError):
            job.batch()
        if len(steps) == killed:
            job.start()
            shards.add(StateFolder(job.stream.state.uri, None, 1).before(job.operator._next_number()).shards)
            job.operator.catch_up()
        rows.append(rows_of(job.stream.lake))
        assert (job.operator.shards, ReshardRequest(job.lake).asked()) == (3, None)
        if len(steps) < killed:
            break
        killed += 1
    assert shards == {2, 3}
    assert all(each == rows[0] for each in rows)


def test_a_change_that_cannot_be_is_refused_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    job = Job(tmp_path)
    job.batch()

    def cannot(*_: object) -> None:
        raise StateError("a state file is missing")

    monkeypatch.setattr(reshard_batch, "redistribute", cannot)
    with only_job(job.lake, "ingest", "busy"), ThreadPoolExecutor(1) as pool:
        command = pool.submit(cli.main, ["reshard", "--lake", job.lake, "--shards", "3"])
        while ReshardRequest(job.lake).asked() is None:
            time.sleep(0.01)
        job.batch()
        assert command.result() == 1
    assert capsys.readouterr().err == "telemetry-lake: reshard: a state file is missing\n"
    job.batch()
    assert (job.operator.shards, ReshardRequest(job.lake).refusal()) == (2, None)


def test_the_command_waits_for_the_job_or_does_it_itself_when_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr(command_module, "LOOK_S", 0.1)
    monkeypatch.setattr(command_module, "ASK_S", 0.01)
    stream = stream_in(tmp_path)
    stream.batch(Fleet(clients=6).round())
    with caplog.at_level("INFO"), ThreadPoolExecutor(1) as pool:
        with only_job(str(stream.lake), "ingest", "busy"):
            command = pool.submit(cli.main, ["reshard", "--lake", str(stream.lake), "--shards", "3"])
            while ReshardRequest(str(stream.lake)).asked() is None:
                time.sleep(0.01)
            ReshardRequest(str(stream.lake)).delete()  # as the job does
            assert command.result() == 0
        with only_job(str(stream.lake), "ingest", "busy"):
            command = pool.submit(cli.main, ["reshard", "--lake", str(stream.lake), "--shards", "5"])
            while ReshardRequest(str(stream.lake)).asked() is None:
                time.sleep(0.01)
        assert command.result() == 0
    said = [record.getMessage() for record in caplog.records if record.name == "telemetry-lake"]
    assert said[:2] == [
        "reshard: a job runs on the lake: it changes the shards before its next batch, after the next push",
        "reshard: done: the job goes on with 3 shards",
    ]
    assert " clients from 2 shards to 5 in " in said[-1]
    assert ReshardRequest(str(stream.lake)).asked() is None


@pytest.mark.parametrize("refused", [False, True])
def test_what_the_job_answers_between_two_rounds_of_looks_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: bool
) -> None:
    monkeypatch.setattr(command_module, "LOOK_S", 0.02)
    monkeypatch.setattr(command_module, "ASK_S", 0.01)
    stream, rounds = stream_in(tmp_path), 0
    stream.batch(Fleet(clients=6).round())
    request = ReshardRequest(str(stream.lake))

    def busy(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            assert request.asked() == 3
            if refused:
                request.refuse("nowhere")
            else:
                request.delete()
        assert rounds < 3, "it asks again"
        raise LakeBusyError

    monkeypatch.setattr(command_module, "only_job", busy)
    assert cli.main(["reshard", "--lake", str(stream.lake), "--shards", "3"]) == (1 if refused else 0)
    assert capsys.readouterr().err == ("telemetry-lake: reshard: nowhere\n" if refused else "")
    assert request.asked() is None


def test_a_command_that_is_interrupted_withdraws_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_in(tmp_path)
    stream.batch(Fleet(clients=6).round())

    def interrupted(_: float) -> None:
        assert ReshardRequest(str(stream.lake)).asked() == 3
        raise KeyboardInterrupt

    # Only this module's: other threads go on sleeping.
    monkeypatch.setattr(command_module, "time", SimpleNamespace(sleep=interrupted, monotonic=float))
    with only_job(str(stream.lake), "ingest", "busy"), pytest.raises(KeyboardInterrupt):
        command_module.run_job(parse(ReshardSettings, ["--lake", str(stream.lake), "--shards", "3"], "test"))
    assert ReshardRequest(str(stream.lake)).asked() is None
