"""Messages sent beside ingest's streams: while they run, at the end of a single run, and never in their way."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs import notify
from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.notify import following, sending_once
from kafka_telemetry_lake.jobs.support import supervisor
from kafka_telemetry_lake.jobs.support.locks import NOTIFY, only
from kafka_telemetry_lake.jobs.support.supervisor import NEVER, Companion, supervised
from kafka_telemetry_lake.pipelines.notify.delivery import delivery
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.notify.changed_findings import HttpSink, change, notify_file, record

OPENED = [("orders", "opened")]


def in_background(
    lake: str, file: NotifyFile, *, once: bool = False, stop: threading.Event | None = None, give_up_s: float = 60
) -> AbstractContextManager[None]:
    """Messages as the job sends them (`jobs/companions`), with less time to wait."""
    opened = partial(following, lake, file, 0.05, lambda *_: None)
    if once:
        opened = partial(sending_once, lake, file, give_up_s)
    row = Companion("notify", opened, NEVER, PATIENCE_S, role=NOTIFY, after=once)
    return supervised(lake, [row], stop)


def test_changes_are_sent_while_the_block_runs(lake: str, sink: HttpSink) -> None:
    with in_background(lake, notify_file(sink.url)):
        record(lake, change("orders"))
        wait_until(lambda: sink.changes() == OPENED)
    record(lake, change("orders", "resolved", 5))
    time.sleep(0.3)
    assert sink.changes() == OPENED
    with only(NOTIFY, lake, "it is over"):
        pass


def test_a_single_run_sends_what_there_is_at_its_end(lake: str, sink: HttpSink) -> None:
    with in_background(lake, notify_file(sink.url), once=True):
        record(lake, change("orders"))
        time.sleep(0.3)
        assert sink.requests == []
    assert sink.changes() == OPENED


def test_a_single_run_that_is_stopped_sends_nothing_more(lake: str, sink: HttpSink) -> None:
    stop = threading.Event()
    with in_background(lake, notify_file(sink.url), once=True, stop=stop):
        record(lake, change("orders"))
        stop.set()
    assert sink.requests == []


def test_a_single_run_gives_a_sink_up_that_is_down(lake: str, sink: HttpSink, caplog: pytest.LogCaptureFixture) -> None:
    sink.answer = lambda _request: 500
    record(lake, change("orders"))
    with in_background(lake, notify_file(sink.url), once=True, give_up_s=0):
        pass
    assert caplog.messages == ["notify: one: it answers with HTTP 500; the next start goes on"]


def test_a_sink_that_fails_is_started_again_by_itself(
    lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = Path(FINDING_CHANGES.uri(lake)) / "_notify" / "one-e000000000000.json"
    note.parent.mkdir()
    note.write_text("{")
    fails: list[Exception] = [RuntimeError(f"a bug at {sink.url}"), OSError("disk full")]

    def failing(*arguments: Any) -> Any:
        if fails:
            raise fails.pop()
        return delivery(*arguments)

    monkeypatch.setattr(notify, "delivery", failing)
    monkeypatch.setattr(supervisor, "pause_after", lambda *_: 0.05)
    record(lake, change("orders"))
    with in_background(lake, notify_file(sink.url)):
        wait_until(lambda: "delete it, and the sink is sent all open findings again" in caplog.text)
        note.unlink()
        wait_until(lambda: sink.changes() == OPENED)
    assert caplog.messages[0] == "notify: one: disk full; tried again in 0 s"
    assert caplog.messages[1].startswith("notify: one: RuntimeError at line ")
    assert f"{note} is damaged" in caplog.messages[2]
    assert sink.url not in caplog.text
    assert not any(each.exc_info for each in caplog.records)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"apprise": "notify", "requests": "notify", "pyspark.sql": "spark", "pandas": "spark"}
    for name, extra in missing.items():

        def job(_settings: Any, name: str = name) -> int:
            raise ModuleNotFoundError(name=name)

        monkeypatch.setattr("kafka_telemetry_lake.jobs.cli.job_of", lambda _command, job=job: job)
        assert run_command("ingest", ["--source", "files:in", "--lake", "lake"]) == 2
        assert f"pip install 'kafka-telemetry-lake[{extra}]'" in capsys.readouterr().err
