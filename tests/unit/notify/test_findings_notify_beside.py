"""Messages sent beside ingest's streams: while they run, at the end of a single run, and never in their way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.jobs import ingest, notify_beside
from kafka_telemetry_lake.jobs.entry import run_command
from kafka_telemetry_lake.jobs.ingest_settings import IngestSettings
from kafka_telemetry_lake.jobs.locks import NOTIFY, only
from kafka_telemetry_lake.jobs.notify_beside import notifying
from kafka_telemetry_lake.jobs.settings import parse
from kafka_telemetry_lake.pipelines.notify import topic
from kafka_telemetry_lake.pipelines.notify.delivery import deliveries
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.notify.changed_findings import HttpSink, change, http_sink, make_lake, notify_file, record
from tests.unit.notify.kafka_stand_in import Kafka

OPENED = [("orders", "opened")]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return make_lake(tmp_path)


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as found:
        yield found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_beside, "POLL_S", 0.05)
    monkeypatch.setattr(notify_beside, "PAUSE_S", 0.05)
    monkeypatch.setattr(notify_beside, "END_PATIENCE_S", PATIENCE_S)


def beside(
    lake: str, file: NotifyFile, *, once: bool = False, stop: threading.Event | None = None
) -> AbstractContextManager[None]:
    return notifying(lake, file, nullcontext, stop or threading.Event(), once=once)  # type: ignore[arg-type]  # no JVM


def test_changes_are_sent_while_the_block_runs(lake: str, sink: HttpSink) -> None:
    with beside(lake, notify_file(sink.url)):
        record(lake, change("orders"))
        wait_until(lambda: sink.changes() == OPENED)
    record(lake, change("orders", "resolved", 5))
    time.sleep(0.3)
    assert sink.changes() == OPENED
    with only(NOTIFY, lake, "it is over"):
        pass


def test_a_single_run_sends_what_there_is_at_its_end(lake: str, sink: HttpSink) -> None:
    with beside(lake, notify_file(sink.url), once=True):
        record(lake, change("orders"))
        time.sleep(0.3)
        assert sink.requests == []
    assert sink.changes() == OPENED


def test_a_single_run_that_is_stopped_sends_nothing_more(lake: str, sink: HttpSink) -> None:
    stop = threading.Event()
    with beside(lake, notify_file(sink.url), once=True, stop=stop):
        record(lake, change("orders"))
        stop.set()
    assert sink.requests == []


def test_a_single_run_gives_a_sink_up_that_is_down(
    lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify_beside, "GIVE_UP_S", 0)
    sink.answer = lambda _request: 500
    record(lake, change("orders"))
    with beside(lake, notify_file(sink.url), once=True):
        pass
    assert caplog.messages == ["notify: one: it answers with HTTP 500; the next run sends what it misses"]


def test_a_failure_is_logged_in_one_line_and_tried_again(
    lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = Path(FINDING_CHANGES.uri(lake)) / "_notify" / "one-e000000000000.json"
    note.parent.mkdir()
    note.write_text("{")
    fails: list[Exception] = [RuntimeError(f"a bug at {sink.url}"), OSError("disk full")]

    def failing(*arguments: Any) -> Any:
        if fails:
            raise fails.pop()
        return deliveries(*arguments)

    monkeypatch.setattr(notify_beside, "deliveries", failing)
    record(lake, change("orders"))
    with beside(lake, notify_file(sink.url)):
        wait_until(lambda: "delete it, and the sink is sent all open findings again" in caplog.text)
        note.unlink()
        wait_until(lambda: sink.changes() == OPENED)
    assert caplog.messages[0] == "notify: disk full; nothing is sent; next time again"
    assert caplog.messages[1].startswith("notify: RuntimeError at line ")
    assert f"{note} is damaged" in caplog.messages[2]
    assert sink.url not in caplog.text
    assert not any(each.exc_info for each in caplog.records)


def test_another_process_sends_them(lake: str, sink: HttpSink, caplog: pytest.LogCaptureFixture) -> None:
    record(lake, change("orders"))
    with only(NOTIFY, lake, ""):
        with beside(lake, notify_file(sink.url)):
            wait_until(lambda: len(caplog.messages) > 1)
        with beside(lake, notify_file(sink.url), once=True):
            pass
    (said,) = set(caplog.messages)
    assert said == "notify: another process sends the messages of this lake; next time again"
    assert sink.requests == []


@pytest.mark.slow
def test_a_sink_that_hangs_delays_neither_the_block_nor_the_end_of_the_process(lake: str, sink: HttpSink) -> None:
    released = threading.Event()
    sink.answer = lambda _request: 200 if released.wait() else 500
    record(lake, change("orders"))
    program = (
        "import sys, threading, time\n"
        "from contextlib import nullcontext\n"
        "from kafka_telemetry_lake.jobs.notify_beside import notifying\n"
        "from kafka_telemetry_lake.pipelines.notify import http\n"
        "from tests.unit.notify.changed_findings import notify_file\n"
        "http.ANSWER_S = 3600\n"
        "with notifying(sys.argv[1], notify_file(sys.argv[2]), nullcontext, threading.Event(), once=False):\n"
        "    sys.stdin.readline()\n"
        "print('after the block', flush=True)\n"
    )
    argv = [sys.executable, "-c", program, lake, sink.url]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(sink.requests) == 1, process=process)
        out, _ = process.communicate("\n", timeout=PATIENCE_S)
    finally:
        released.set()
        process.kill()
    assert (process.returncode, out) == (0, "after the block\n")
    with beside(lake, notify_file(sink.url)):  # what wasn't answered is sent again
        wait_until(lambda: len(sink.requests) == 2)
    assert sink.requests[0].body == sink.requests[1].body


def test_ingest_sends_to_topics_with_its_own_jvm(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "check_brokers", lambda _servers, _options: None)
    sinks = {"one": {"type": "kafka", "bootstrap_servers": "broker-1:9092", "topic": "findings"}}
    file = tmp_path / "notify.yml"
    file.write_text(yaml.safe_dump({"sinks": sinks, "routes": [{"sinks": ["one"]}]}))
    flags = ["--source", "files:in", "--lake", lake, "--findings-minutes", "5"]
    kafka, stop = Kafka(), threading.Event()
    record(lake, change("orders"))
    with kafka.machine() as session:
        with ingest._notifier(parse(IngestSettings, flags, "ingest"), stop)(session):
            time.sleep(0.3)
        assert kafka.records == []  # off unless asked
        with ingest._notifier(parse(IngestSettings, [*flags, "--notify", str(file)], "ingest"), stop)(session):
            wait_until(lambda: kafka.changes() == OPENED)
        assert (kafka.machines, kafka.open_now) == (1, 1)
        wait_until(lambda: kafka.closed == 1)


def test_a_single_run_evaluates_before_it_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @contextmanager
    def at_its_end(name: str) -> Iterator[None]:
        yield
        done.append(name)

    monkeypatch.setattr(ingest, "spark_session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(ingest, "syncing", lambda *_: nullcontext())
    monkeypatch.setattr(ingest, "run", lambda *_: done.append("streams"))
    monkeypatch.setattr(ingest, "evaluating", lambda *_, **__: at_its_end("findings"))
    monkeypatch.setattr(ingest, "_notifier", lambda *_: lambda _spark: at_its_end("messages"))
    flags = ["--source", f"files:{tmp_path}", "--lake", str(tmp_path / "lake"), "--once"]
    ingest._run_in_session(parse(IngestSettings, flags, "ingest"), threading.Event())
    assert done == ["streams", "findings", "messages"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"apprise": "notify", "requests": "notify", "pyspark.sql": "spark", "pandas": "spark"}
    for name, extra in missing.items():

        def job(_settings: Any, name: str = name) -> int:
            raise ModuleNotFoundError(name=name)

        monkeypatch.setattr("kafka_telemetry_lake.jobs.entry.job_of", lambda _command, job=job: job)
        assert run_command("ingest", ["--source", "files:in", "--lake", "lake"]) == 2
        assert f"pip install 'kafka-telemetry-lake[{extra}]'" in capsys.readouterr().err
