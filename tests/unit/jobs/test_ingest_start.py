"""What `ingest` says when it starts, before a stream runs: no Spark is needed for that."""

from __future__ import annotations

import logging
import shlex
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from kafka_telemetry_lake.jobs import ingest
from kafka_telemetry_lake.jobs.ingest_settings import IngestSettings
from kafka_telemetry_lake.jobs.settings import parse
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.forget.subject import Request
from kafka_telemetry_lake.pipelines.ingest.streams import Lake


def lines_at_start(lake: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a job says that is asked to stop before its streams start."""
    monkeypatch.setattr(ingest, "caught_up_operator", MagicMock())
    monkeypatch.setattr(ingest, "check_topic_ids", MagicMock())
    settings = parse(IngestSettings, ["--source", "files:in", "--lake", str(lake)], "test")
    stop = threading.Event()
    stop.set()
    caplog.clear()
    with caplog.at_level(logging.INFO, "telemetry-lake"):
        ingest.run(MagicMock(), Lake(str(lake), str(lake / "_checkpoints")), MagicMock(), settings, stop)
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
