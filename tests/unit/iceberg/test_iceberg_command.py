"""``telemetry-lake iceberg``: once and as a follower, its lock, and what other commands say about its tables."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from filelock import FileLock

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.iceberg.mirrored import CLIENT, POINTS, follow, is_same, merge, put, snapshots

pytestmark = pytest.mark.lake


def lake_with_rows(lake: Path) -> Path:
    for table in (PUSHES, PUSH_OUTCOMES):
        table.create(str(lake))
    put(lake)
    return lake


def test_a_run_brings_all_tables_up_to_date(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lake = lake_with_rows(tmp_path / "lake")
    assert cli.main(["iceberg", "--lake", str(lake)]) == 0
    said = caplog.text
    caplog.clear()
    assert "iceberg: metric_points: 1 files added, 0 removed, as of version 1" in said
    assert f"iceberg: 3 tables in {lake}/_iceberg are up to date" in said
    assert is_same(lake, POINTS)
    put(lake, 1)
    assert cli.main(["iceberg", "--lake", str(lake)]) == 0
    assert "iceberg: metric_points: 1 files added, 0 removed, as of version 2" in caplog.text
    assert "pushes:" not in caplog.text
    assert is_same(lake, POINTS)


def test_another_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    assert cli.main(["iceberg", "--lake", str(lake), "--to", str(tmp_path / "elsewhere"), "--keep-snapshots", "1"]) == 0
    assert not (lake / "_iceberg").exists()
    (tmp_path / "elsewhere").rename(lake / "_iceberg")  # where the test's reader looks, but it was written elsewhere
    capsys.readouterr()
    assert cli.main(["iceberg", "--lake", str(lake)]) == 1
    assert capsys.readouterr().err.count("delete this folder; run it again") == 3


def test_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    (lake / "_iceberg").mkdir()
    with FileLock(lake / "_iceberg" / ".iceberg.lock"):
        assert cli.main(["iceberg", "--lake", str(lake)]) == 2
    line = f"telemetry-lake: another `iceberg` writes {lake}/_iceberg: wait until it has ended, or stop it\n"
    assert capsys.readouterr().err == line


def test_a_damaged_table_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lake = lake_with_rows(tmp_path / "lake")
    for file in (lake / "metric_points").glob("*/*.parquet"):
        file.unlink()
    assert cli.main(["iceberg", "--lake", str(lake)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("telemetry-lake: iceberg: metric_points: ")
    assert said.endswith("; run it again\n")
    assert said.count("\n") == 1
    assert "iceberg: push_outcomes: 0 files added" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"{}", b"not JSON"])
def test_damaged_metadata_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    follow(lake)
    (lake / "_iceberg" / POINTS / "metadata" / "v2.metadata.json").write_bytes(damage)
    assert cli.main(["iceberg", "--lake", str(lake)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("telemetry-lake: iceberg: metric_points: ")
    assert said.count("\n") == 1
    shutil.rmtree(lake / "_iceberg")
    assert cli.main(["iceberg", "--lake", str(lake)]) == 0
    assert is_same(lake, POINTS)


@pytest.mark.slow
def test_it_follows_until_it_is_stopped(tmp_path: Path) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    command = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "iceberg", "--lake", str(lake), "--follow"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--refresh-seconds", "0.1"], stdout=log, stderr=log)
    try:
        said = (tmp_path / "log").read_text
        wait_until(lambda: "metric_points: 1 files added, 0 removed, as of version 1" in said())
        put(lake, 1)
        wait_until(lambda: "metric_points: 1 files added, 0 removed, as of version 2" in said())
        merge(lake)
        wait_until(lambda: "metric_points: 1 files added, 2 removed, as of version 3" in said())
        assert is_same(lake, POINTS)
        process.kill()  # and what it leaves is no hindrance
        process.wait()
        put(lake, 2)
        assert cli.main(["iceberg", "--lake", str(lake)]) == 0
        assert is_same(lake, POINTS)
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--refresh-seconds", "0.1"], stdout=log, stderr=log)
        put(lake, 3)
        wait_until(lambda: "metric_points: 1 files added, 0 removed, as of version 5" in said())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert said().endswith("iceberg: stopped\n")
    finally:
        process.kill()
        process.wait()


def test_maintain_says_that_readers_may_miss_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    follow(lake)
    put(lake, 1)
    age_of_commit(lake, 2, hours=200)
    with caplog.at_level(logging.WARNING):
        assert cli.main(["maintain", "--lake", str(lake)]) == 0
    (line,) = [record.getMessage() for record in caplog.records if "Iceberg" in record.getMessage()]
    assert line.startswith("maintain: Iceberg table metric_points lacks commits since ")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert cli.main(["maintain", "--lake", str(lake), "--vacuum-hours", "300"]) == 0
    assert "Iceberg" not in caplog.text


def age_of_commit(lake: Path, version: int, hours: float) -> None:
    """Let a commit of metric_points be so old."""
    file = lake / POINTS / "_delta_log" / f"{version:020d}.json"
    at = int((time.time() - hours * 3600) * 1000)
    file.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{at}', file.read_text()))


def test_forget_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    follow(lake)
    command = ["forget", "--lake", str(lake), "--client-instance", CLIENT]
    assert cli.main([*command, "--dry-run"]) == 0
    assert "Iceberg" not in capsys.readouterr().err
    assert cli.main(command) == 0
    advice = f"forget: the lake's Iceberg tables name the files before: run `telemetry-lake iceberg --lake {lake}`\n"
    assert capsys.readouterr().err.endswith(advice)
    assert cli.main(["iceberg", "--lake", str(lake)]) == 0
    assert is_same(lake, POINTS)
    assert cli.main(command) == 0  # nothing is left of it, so nothing is to be said
    assert "Iceberg" not in capsys.readouterr().err


def test_other_commands_do_not_take_its_folder_for_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_with_rows(tmp_path / "lake")
    follow(lake)
    assert cli.main(["query", "--lake", str(lake), "--format", "csv", "SHOW TABLES"]) == 0
    said = capsys.readouterr().out
    assert "metric_points,table," in said
    assert "_iceberg" not in said
    before = sorted(path for path in (lake / "_iceberg").rglob("*"))
    assert cli.main(["maintain", "--lake", str(lake)]) == 0
    assert sorted(path for path in (lake / "_iceberg").rglob("*")) == before
    assert "maintain: _iceberg" not in capsys.readouterr().out
    assert DeltaTable(str(lake / POINTS)).version() == 1
    assert len(snapshots(lake, POINTS)) == 1


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--lake {folder}/none", "no lake at {folder}/none: create one with `telemetry-lake ingest"),
        (
            "--lake {folder}/lake --to http://host/x",
            "to: http://host/x: http:// is not supported; allowed: a folder, or",
        ),
        ("--lake {folder}/lake --to {folder}/file", "to: {folder}/file is a file; name a folder"),
        ("--lake {folder}/lake --to {folder}/a#b", "{folder}/a#b: Iceberg's readers can't open a path with #, ? or %"),
    ],
)
def test_places_that_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, line: str) -> None:
    lake_with_rows(tmp_path / "lake")
    (tmp_path / "file").touch()
    assert cli.main(["iceberg", *flags.format(folder=tmp_path).split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"telemetry-lake: {line.format(folder=tmp_path)}")
    assert said.count("\n") == 1
