"""A lake in an S3-compatible store, on a real S3 server: every command, and commits that meet."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.forget.erasure import NOTES, Erasure
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from tests.conftest import Ingest
from tests.support.erasable_lake import fill, lake_of, traces
from tests.support.lake_tables import table
from tests.support.landing_records import captured, write
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.slow

LAKE = f"s3a://{BUCKET}/telemetry/lake"
TABLES = ("pushes", "metric_points", "push_outcomes", "client_events")
Command = Callable[..., str]


@pytest.fixture
def command(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Command:  # fmt: skip
    """Run a command with the store's environment; gives what it says."""
    caplog.set_level("INFO", "telemetry-lake")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)

    def run(*argv: str) -> str:
        if "--master" not in argv:
            caplog.clear()
            assert cli.main([*argv]) == 0
            return "".join([*capsys.readouterr(), *(f"{line}\n" for line in caplog.messages)])
        # A JVM and a session of its own: jars and settings of S3 are there from a session's start.
        done = subprocess.run(
            [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


def test_the_whole_job_and_its_upkeep(command: Command, ingest: Ingest, tmp_path: Path) -> None:
    landed, source = captured().slice(0, 400), tmp_path / "in"
    for number in range(2):  # the second run goes on with the first one's checkpoint and state
        write(source, f"{number}.parquet", landed.slice(number * 200, 200))
        command("ingest", "--source", f"files:{source}", "--source-name", "test", "--lake", LAKE, "--once",
                "--master", "local[2]")  # fmt: skip
        ingest(source, tmp_path / "local")

    for name in TABLES:
        select = f"SELECT count(*) AS n, sum(hash(COLUMNS(* EXCLUDE (landed_date)))) FROM {name}"
        assert run_query(LAKE, select).read_all() == run_query(str(tmp_path / "local"), select).read_all(), name
    assert command("query", "--lake", LAKE, "--format", "csv", "SELECT count(*) AS n FROM clients") == "n\n45\n"
    assert table(tmp_path / "local", "pushes").num_rows == 400

    assert "BROKEN" not in command("quality", "--lake", LAKE)
    assert "push_outcomes: 0 rows new since version" in command("quality", "--lake", LAKE)
    assert "replay: done" in command("replay", "--lake", LAKE, "--master", "local[2]")
    compacted = command("maintain", "--lake", LAKE, "--vacuum-hours", "24")
    assert re.search(r"maintain: pushes: no days dropped, \d+ files compacted", compacted)
    assert "BROKEN" not in command("quality", "--lake", LAKE, "--full")


@pytest.mark.soak
def test_a_client_is_erased_and_a_killed_run_is_finished(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream, _, clients = lake_of(tmp_path)
    fill(stream, clients[1])
    objects = server.folder / BUCKET / "erased"
    shutil.copytree(stream.lake, objects)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"s3a://{BUCKET}/erased"
    words = ["forget", "--lake", uri, f"--client-instance={clients[1].instance}"]
    points = table(objects, "metric_points").num_rows
    with monkeypatch.context() as patch:
        patch.setattr(Erasure, "_forget_in_state", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cli.main(words)
    assert cli.main(words) == 0
    assert run_query(uri, "SELECT count(*) AS n FROM metric_points").read_all()["n"].to_pylist() == [points - 18]
    assert traces(objects, clients[1].texts) == {"pages/index.html"}  # a longer name has one of them
    assert not (objects / NOTES).exists()


def test_writers_that_meet_lose_no_commit(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"s3a://{BUCKET}/commits"
    write_deltalake(uri, pa.table({"writer": pa.array([], pa.int64()), "n": pa.array([], pa.int64())}))

    def write_often(writer: int) -> None:
        for n in range(5):
            write_deltalake(uri, pa.table({"writer": [writer], "n": [n]}), mode="append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_often, range(4)))
    stored = DeltaTable(uri)
    assert stored.version() == 20
    rows = stored.to_pyarrow_table().to_pylist()
    assert sorted((row["writer"], row["n"]) for row in rows) == [(writer, n) for writer in range(4) for n in range(5)]


@pytest.mark.parametrize(
    ("lake", "changed", "message"),
    [
        ("s3a://nowhere/lake", {}, "there is no bucket nowhere at http://127.0.0.1:"),
        (LAKE, {"AWS_SECRET_ACCESS_KEY": "wrong"}, "Check AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID"),
        (f"s3a://{BUCKET}/empty", {}, f"no lake at s3a://{BUCKET}/empty"),
    ],
)
def test_a_store_that_refuses(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lake: str,
    changed: dict[str, str], message: str,
) -> None:  # fmt: skip
    for name, value in {**server.environment, **changed}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["maintain", "--lake", lake]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
