"""What a newcomer and a supervisor meet first: help, and one clear line for each wrong setting, within seconds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource
from tests.support.landing_records import GOOD_ID, record, write


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = cli.main(list(argv))
    except SystemExit as end:  # argparse after --help
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_tells_a_newcomer_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "New here?" in out
    assert "telemetry-lake demo" in out


def test_settings_come_from_flags_then_environment_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "ingest.yml"
    conf.write_text("source: kafka\nlake: from-file\nshards: 3\ntrigger_seconds: 7\n", encoding="utf-8")
    monkeypatch.setenv("TELEMETRY_LAKE_SHARDS", "4")
    monkeypatch.setenv("TELEMETRY_LAKE_LAKE", "from-environment")
    found = parse(IngestSettings, ["--conf", str(conf), "--lake", "from-flag"], "test")
    assert (found.source, found.lake, found.shards, found.trigger_seconds) == ("kafka", "from-flag", 4, 7)


def test_a_secret_in_a_wrong_setting_is_not_repeated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEMETRY_LAKE_KAFKA_OPTIONS", '{"kafka.sasl.jaas.config": {"password": "hunter2"}}')
    code, _, err = run(capsys, "ingest", "--source", "kafka", "--lake", "x")
    assert code == 2
    assert "kafka_options" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("java_version", "said"), [(None, "no Java found"), ("1.8.0_392", "Java 8"), ("11.0.2", "Java 11")]
)
def test_a_missing_or_old_jdk_is_said_with_what_to_install(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    java_version: str | None,
    said: str,
) -> None:
    if java_version:
        launcher = tmp_path / "jdk" / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{java_version}\"' >&2\n", encoding="utf-8")
        launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    write(tmp_path / "in", "a.parquet", [record(0, b"")])
    code, _, err = run(capsys, "ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"))
    assert code == 2
    assert said in err
    assert "install a JDK 17 to 21" in err


def test_files_of_other_columns_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = write(tmp_path / "in", "a.parquet", [record(0, b"", key=GOOD_ID)])
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 not parquet")
    code, _, err = run(capsys, "ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"))
    assert code == 2
    assert "b.parquet is not a Parquet file" in err
    pq.write_table(pq.read_table(table).drop_columns(["value"]), tmp_path / "in" / "b.parquet")
    code, _, err = run(capsys, "ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"))
    assert code == 2
    assert "column value is missing, expected binary" in err


@pytest.mark.parametrize("name", ["_half.parquet", ".half.parquet"])
def test_files_that_are_still_written_are_their_writers(tmp_path: Path, name: str) -> None:
    """Spark reads none of such names. Their writers rename them at any time, also between a list and a look."""
    write(tmp_path / "in", "a.parquet", [record(0, b"", key=GOOD_ID)])
    (tmp_path / "in" / name).write_bytes(b"PAR1 not yet")
    FilesSource(str(tmp_path / "in"), "files").check()


def test_a_lake_that_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "lake").write_text("a file where the lake should be", encoding="utf-8")
    else:
        (tmp_path / "lake").mkdir(mode=0o500)
    write(tmp_path / "in", "a.parquet", [record(0, b"")])
    code, _, err = run(capsys, "ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"))
    assert code == 2
    assert str(tmp_path / "lake") in err
