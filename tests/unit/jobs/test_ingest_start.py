"""What `ingest` says when it starts, before a stream runs: no Spark is needed for that."""

from __future__ import annotations

import logging
import shlex
import shutil
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from kafka_telemetry_lake.jobs import cli, ingest
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.forget.subject import Request
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.runtime.session import SparkStartError
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.operator_alone import Job, without_spark


def lines_at_start(lake: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a job says that is asked to stop before its streams start."""
    monkeypatch.setattr(ingest, "caught_up_operator", MagicMock())
    monkeypatch.setattr(ingest, "check_topic_ids", MagicMock())
    settings = parse(IngestSettings, ["--source", "files:in", "--lake", str(lake)], "test")
    stop = threading.Event()
    stop.set()
    caplog.clear()
    with caplog.at_level(logging.INFO, "telemetry-lake"):
        ingest.RunningJob(
            MagicMock(), JobLake(str(lake), str(lake / "_checkpoints")), MagicMock(), settings, stop
        ).run()
    lines = [record.getMessage() for record in caplog.records if record.name == "telemetry-lake"]
    assert lines.pop() == "ingest: stopped"
    return lines


def test_an_unfinished_erasure_is_a_line_with_the_command_that_finishes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "my lake"
    assert lines_at_start(lake, caplog, monkeypatch) == []

    def cut(*_: object) -> None:
        raise OSError("the machine stops")

    monkeypatch.setattr(Erasure, "_forget_elsewhere", cut)
    with pytest.raises(OSError, match="the machine stops"):
        Erasure(str(lake), str(lake / "_checkpoints")).forget(Request(principal="User:o'neil", cluster_id="c 1"))
    (line,) = lines_at_start(lake, caplog, monkeypatch)
    said, command = line.split("`")[:2]
    assert said == "ingest: an erasure was begun and is not finished; stop the job and run "
    assert shlex.split(command) == [
        "telemetry-lake", "forget", "--lake", str(lake), "--principal=User:o'neil", "--cluster-id=c 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "claim", "said"),
    [
        (
            "job-000000000007.json",
            '{"lake": "another"}',
            "the lease of epoch 7 is another lake's: it was copied here. ",
        ),
        ("job-999999999999.json", "", "epoch 999999999999 has no successor: delete its file"),
    ],
)
def test_leases_that_none_can_follow_are_one_line_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, claim: str, said: str
) -> None:
    lake, source = tmp_path / "lake", tmp_path / "in"
    source.mkdir()
    PUSHES.create(str(lake))
    (lake / "_writers").mkdir()
    (lake / "_writers" / name).write_text(claim)
    assert cli.main(["ingest", "--once", "--source", f"files:{source}", "--lake", str(lake)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"telemetry-lake: {lake}/_writers: {said}")


@pytest.mark.parametrize(
    ("lost", "said"),
    [("_checkpoints", "the checkpoint was restored from an older backup"), ("pushes", "restored from an earlier time")],
)
def test_a_backup_of_a_part_beside_the_live_rest_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lost: str, said: str
) -> None:
    without_spark(monkeypatch)
    job, source = Job(tmp_path), tmp_path / "in"
    source.mkdir()
    job.batch()
    shutil.copytree(tmp_path / "lake" / lost, tmp_path / "backup")
    job.batch()
    shutil.rmtree(tmp_path / "lake" / lost)
    (tmp_path / "backup").rename(tmp_path / "lake" / lost)
    monkeypatch.setattr(ingest, "spark_session", MagicMock())
    assert cli.main(["ingest", "--once", "--source", f"files:{source}", "--lake", job.lake]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("telemetry-lake: ")
    assert said in line


@pytest.mark.parametrize(("flags", "is_brief"), [(["--once"], True), ([], False)])
def test_only_a_job_of_few_files_that_ends_with_them_is_brief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], is_brief: bool
) -> None:
    (tmp_path / "in").mkdir()
    asked: list[bool] = []

    def session(*_: object, is_brief: bool, **__: object) -> None:
        asked.append(is_brief)
        raise SparkStartError("this is enough")

    monkeypatch.setattr(ingest, "spark_session", session)
    assert cli.main(["ingest", *flags, "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake")]) == 2
    assert asked == [is_brief]
