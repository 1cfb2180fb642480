"""``telemetry-lake forget``: what it refuses, what it prints, and who may not run beside it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, NOTIFY, UPKEEP, only, only_job
from kafka_telemetry_lake.pipelines.doctor.lake_checks import check_erasures
from kafka_telemetry_lake.pipelines.forget import erasure as erasure_module
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure, unfinished
from kafka_telemetry_lake.pipelines.forget.subject import Request
from kafka_telemetry_lake.pipelines.lake import erased_files as erased_files_module
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from kafka_telemetry_lake.pipelines.lake.erased_files import ErasedFiles, erased_files
from kafka_telemetry_lake.pipelines.lake.fence import JOB
from tests.support.erasable_lake import NOON, age_logs, end_history, lake_of, named, traces
from tests.support.lake_tables import table
from tests.support.landing_records import GOOD_ID
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(["forget", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "client_instance, principal: name one of them: --client-instance ID or --principal NAME"),
        (["--client-instance", GOOD_ID, "--principal", "User:a"], "client_instance, principal: name one of them"),
        (
            ["--client-instance", "AAAAAAAAAAAAAAAAAAAAAA"],
            "client_instance: Value error, allowed: a client instance id",
        ),
        (["--client-instance", f"{GOOD_ID}x"], "client_instance: Value error, allowed: a client instance id"),
        (["--client-instance", "8c7787c3-a2cf-423d-ab9d-a3fb411ceb9a"], "client_instance: Value error, allowed"),
        (
            ["--principal", "alice"],
            "principal: Value error, allowed: a principal as Kafka prints it, such as User:alice",
        ),
        (["--principal", "User:"], "principal: Value error, allowed"),
        (["--principal", "User:a\nb"], "principal: Value error, allowed"),
        (["--client-instance", GOOD_ID], "no lake at "),
    ],
)
def test_a_wrong_request_or_no_lake_is_refused_before_any_work(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "--lake", str(tmp_path / "none"), *words)
    assert (code, error.startswith(f"telemetry-lake: {line}")) == (2, True), error
    assert list(tmp_path.iterdir()) == []


def test_what_the_lake_does_not_have_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=1)
    stream.batch(named(fleet.round(), [], "c1"))
    lake = ["--lake", str(stream.lake)]
    assert run(capsys, *lake, "--client-instance", GOOD_ID) == (
        0, "", f"forget: the lake has nothing of client {GOOD_ID}\n",
    )  # fmt: skip
    assert run(capsys, *lake, "--principal", "User:nobody")[2] == (
        "forget: the lake has nothing of principal User:nobody (as a pseudonym it is found only with "
        "--personal-data-key)\n"
    )
    code, out, error = run(capsys, *lake, "--client-instance", fleet._ids[0], "--cluster-id", "c2", "--format", "json")
    assert (code, json.loads(out)["removed"]) == (0, [])
    assert error == f"forget: the lake has nothing of client {fleet._ids[0]} of cluster c2; cluster c1 has it\n"


def test_it_reports_what_went_as_a_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream, _, clients = lake_of(tmp_path)
    lake = ["--lake", str(stream.lake)]
    _, out, error = run(capsys, *lake, "--client-instance", clients[2].instance, "--format", "json", "--dry-run")
    planned = json.loads(out)
    assert (planned["erased"]["client_instance"], planned["dry_run"]) == (clients[2].instance, True)
    assert {each["name"]: each["rows"] for each in planned["removed"]}["metric_points"] == 21
    rows = sum(each["rows"] for each in planned["removed"])
    assert error.startswith(f"forget: would remove {rows} rows of client {clients[2].instance}; ")
    code, out, error = run(capsys, *lake, "--client-instance", clients[2].instance)
    assert (code, error.startswith(f"forget: removed {rows} rows of client {clients[2].instance}; ")) == (0, True)
    assert out.splitlines()[0].split() == [
        "name", "rows", "changed_rows", "files", "bytes_before", "bytes_after",
    ]  # fmt: skip
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("pushes")] == [["pushes", "7"]]
    code, _, error = run(capsys, *lake, "--principal", clients[1].principal)
    assert code == 0
    end_history(stream.lake)
    assert traces(stream.lake, [*clients[2].texts, *clients[1].texts]) == set()


@pytest.mark.slow
def test_the_first_maintain_after_a_day_ends_the_history_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _, clients = lake_of(tmp_path)
    lake, client = ["--lake", str(stream.lake)], clients[2]
    code, out, error = run(capsys, *lake, "--status")
    assert (code, out.split()[:4]) == (0, ["erasure", "erased_at", "gone_at", "due"])
    assert error == "forget: 0 erasures; the tables' history has rows of 0 of them\n"
    _, _, error = run(capsys, *lake, "--client-instance", client.instance)
    (waiting,) = erased_files(str(stream.lake))
    assert error.endswith(
        f"; erasure {waiting.erasure}: the tables' history has them until `maintain` runs after "
        f"{waiting.due:%Y-%m-%d %H:%M} UTC\n"
    )
    cli.main(["maintain", *lake])
    code, out, error = run(capsys, *lake, "--status", "--format", "json")
    expected = {"erasure": waiting.erasure, "erased_at": waiting.erased_at, "gone_at": None}
    assert (code, json.loads(out)) == (0, [expected | {"due": waiting.due.isoformat()}])
    assert error == "forget: 1 erasures; the tables' history has rows of 1 of them\n"
    age_logs(stream.lake)
    monkeypatch.setattr(erased_files_module, "RETENTION", timedelta(0))
    assert traces(stream.lake, client.texts)
    cli.main(["maintain", *lake])
    assert traces(stream.lake, client.texts) == set()
    _, out, error = run(capsys, *lake, "--status", "--format", "json")
    assert json.loads(out)[0]["gone_at"] > waiting.erased_at
    assert error == "forget: 1 erasures; the tables' history has rows of 0 of them\n"


def test_nothing_may_write_to_the_lake_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(LocalStream(tmp_path).lake)
    said = (
        f"telemetry-lake: {lake} is in use: stop ingest, notify, maintain and whatever else writes to it, erase, then "
        "start them again"
    )
    for role in (JOB, UPKEEP, FINDINGS, NOTIFY):
        with only_job(lake, "ingest", "") if role == JOB else only(role, lake, ""):
            code, _, error = run(capsys, "--lake", lake, "--client-instance", GOOD_ID)
        holder = f": `ingest`, process {os.getpid()} on {socket.gethostname()} (epoch 1)" if role == JOB else ""
        assert (code, error) == (2, f"{said}{holder}\n"), role


def test_after_an_interrupted_replay_it_says_to_finish_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path)
    (stream.checkpoints / "points-swap.json").write_text("{}")
    code, _, error = run(capsys, "--lake", str(stream.lake), "--client-instance", GOOD_ID)
    assert (code, error) == (
        2, "telemetry-lake: a replay was interrupted: finish it with `telemetry-lake replay`, then erase\n",
    )  # fmt: skip


@pytest.mark.slow
def test_it_finishes_an_interrupted_erasure_of_another_client_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _, clients = lake_of(tmp_path)
    erasure = Erasure(str(stream.lake), str(stream.checkpoints))
    with monkeypatch.context() as patch:
        patch.setattr(Erasure, "_forget_in_state", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erasure.forget(Request(clients[2].instance))
    assert erasure.under_way() == [Request(clients[2].instance)]
    _, _, error = run(capsys, "--lake", str(stream.lake), "--client-instance", clients[1].instance)
    assert error.startswith(f"forget: finished the erasure of client {clients[2].instance}\nforget: removed ")
    end_history(stream.lake)
    assert traces(stream.lake, [*clients[2].texts, *clients[1].texts]) == set()
    assert erasure.under_way() == []


@pytest.mark.slow
def test_the_command_needs_no_spark(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path)
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kafka_telemetry_lake.jobs import cli\n"
        f"sys.exit(cli.main(['forget', '--lake', {str(stream.lake)!r}, '--client-instance', {GOOD_ID!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "the lake has nothing of" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_unfinished_erasure_is_a_warning_of_doctor_that_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    stream = LocalStream(tmp_path)
    stream.batch(Fleet(clients=2).round())
    lake, request = str(stream.lake), Request(None, "User:o'neil", "c 1")
    given = []
    if elsewhere:
        place = tmp_path / "my checkpoints"
        stream.checkpoints.rename(place)
        given = [f"--checkpoints={place}"]
    monkeypatch.chdir(tmp_path)

    def cut(*_: object) -> None:
        raise OSError("the machine stops")

    with monkeypatch.context() as killed:
        killed.setattr(Erasure, "_forget_elsewhere", cut)
        begun = ["--lake", lake, "--principal", "User:o'neil", "--cluster-id", "c 1"]
        begun += ["--checkpoints", "my checkpoints"] if elsewhere else []
        assert run(capsys, *begun)[0] == 1
    assert list(unfinished(lake)) == [request]

    def erasures() -> list[dict[str, str]]:
        cli.main(["doctor", "--lake", lake, "--format", "json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return [check for check in checks if check["name"] == "erasure"]

    (warning,) = erasures()
    assert warning["text"] == "the erasure of principal User:o'neil of cluster c 1 was begun and is not finished"
    command = warning["advice"].split("`")[1]
    assert shlex.split(command)[2:] == ["--lake", lake, "--principal=User:o'neil", "--cluster-id=c 1", *given]
    monkeypatch.chdir("/")
    assert run(capsys, *shlex.split(command)[2:])[0] == 0  # it finishes the erasure
    assert (unfinished(lake), erasures()) == ({}, [])


def test_doctor_says_when_maintain_is_late(tmp_path: Path) -> None:
    lake, begun = str(tmp_path), NOON
    ErasedFiles("0badcafe", begun.isoformat(), None, {"pushes": 3}, {}).write(lake)
    ErasedFiles("00c0ffee", begun.isoformat(), begun.isoformat(), {}, {}).write(lake)
    assert list(check_erasures(lake, begun + timedelta(hours=47))) == []
    (late,) = check_erasures(lake, begun + timedelta(hours=48))
    assert (late.status, late.text) == (
        "warning",
        "old versions of the tables still have what was erased, in 1 of the lake's erasures; `maintain` "
        f"could have ended that since {begun + timedelta(days=1):%Y-%m-%d %H:%M} UTC",
    )
    assert late.advice == f"run `telemetry-lake maintain --lake {lake}`, each day"


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (erasure_module, "commit"),
        pytest.param(Erasure, "_forget_in_state", marks=pytest.mark.slow),
        pytest.param(Erasure, "_forget_elsewhere", marks=pytest.mark.slow),
    ],
)
def test_an_erasure_whose_lake_is_taken_over_has_not_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    """The job that takes over copies the checkpoints: the client may be in its state, and stays until the next run."""
    stream, _, clients = lake_of(tmp_path)
    lake, client = str(stream.lake), clients[1]
    erase = ["--lake", lake, "--client-instance", client.instance]
    before = {name: len(table(stream.lake, name)) for name in ("pushes", "metric_points")}
    real = getattr(owner, step)
    with ExitStack() as job, monkeypatch.context() as patch:

        def later(*args: object) -> object:
            patch.setattr(owner, step, real)
            own = job.enter_context(only_job(lake, "ingest", "busy", take_over=True))
            own_checkpoints(lake, None, own)
            return real(*args)

        patch.setattr(owner, step, later)
        code, _, error = run(capsys, *erase)
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith("telemetry-lake: forget: the lake was taken over by `ingest`, process ")
    assert list(unfinished(lake)) == [Request(client.instance)]
    if step == "commit":
        assert {name: len(table(stream.lake, name)) for name in before} == before
    assert run(capsys, *erase)[0] == 0
    end_history(stream.lake)
    assert traces(stream.lake, client.texts) == set()


def test_an_erasure_that_another_build_has_begun_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = LocalStream(tmp_path)
    note = stream.lake / "_forget" / "0a1b2c3d.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"format": 2, "who": "another build's field"}))
    code, _, error = run(capsys, "--lake", str(stream.lake), "--client-instance", GOOD_ID)
    assert (code, error) == (
        2, f"telemetry-lake: {note} has format 2, and this build reads format 1 only: finish the erasure with the "
        "build that has begun it, whose `telemetry-lake doctor` says how\n",
    )  # fmt: skip
