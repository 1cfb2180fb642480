"""Delivery over HTTP: what is posted, failures of a sink, kill -9, and that no sink waits for another one."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.notify import sinks
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.lake import notes
from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.notify import delivery, http, messages
from kafka_telemetry_lake.pipelines.notify.delivery import Delivery, deliveries
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile
from kafka_telemetry_lake.pipelines.notify.http import SinkDownError, post_json
from kafka_telemetry_lake.pipelines.runtime.retries import LONGEST_PAUSE_S, pause_after
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.notify.changed_findings import (
    HttpSink,
    Request,
    at,
    change,
    http_sink,
    make_lake,
    notify_file,
    record,
)

pytestmark = pytest.mark.lake

ORDERS, OPENED = change("orders"), [("orders", "opened")]


def settle(one: Delivery) -> None:
    one.deliver(threading.Event())


def notify(lake: str, content: Any, folder: Path, *flags: str) -> int:
    file = folder / "notify.yml"
    file.write_text(yaml.safe_dump(content))
    return cli.main(["notify", "--lake", lake, "--notify", str(file), *flags])


def late(seconds: float) -> Callable[[Request], int]:
    def answer(_request: Request) -> int:
        time.sleep(seconds)
        return 200

    return answer


def one_webhook(url: str, **more: Any) -> dict[str, Any]:
    return {"sinks": {"one": {"type": "webhook", "url": url, **more}}}


def test_a_webhook_gets_the_changes_and_a_key_that_names_the_message(lake: str, sink: HttpSink) -> None:
    record(lake, ORDERS | {"measure": math.inf})
    (one,) = deliveries(lake, notify_file(sink.url, headers={"Authorization": "Bearer xyz"}))
    settle(one)
    (request,) = sink.requests
    assert (request.path, request.headers["authorization"]) == ("/hook", "Bearer xyz")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == request.body["id"]
    assert request.body.keys() == {"id", "changes"}
    assert "measure" not in request.body["changes"][0]  # JSON has no infinity
    assert sink.changes() == OPENED


@pytest.mark.parametrize(("status", "said"), [(500, "HTTP 500"), (404, "HTTP 404"), (302, r"redirect \(HTTP 302\)")])
def test_a_message_that_fails_is_sent_again_with_the_same_id(lake: str, sink: HttpSink, status: int, said: str) -> None:
    record(lake, ORDERS)
    (one,) = deliveries(lake, notify_file(sink.url))
    sink.answer, sink.answer_headers = lambda _request: status, {"Location": f"{sink.url}/elsewhere"}
    for _ in range(2):
        with pytest.raises(SinkDownError, match=said):
            settle(one)
    record(lake, change("later", second=5))
    sink.answer = lambda _request: 204
    (again,) = deliveries(lake, notify_file(sink.url))
    settle(again)
    assert sink.changes() == [*OPENED * 3, ("later", "opened")]
    assert len({request.body["id"] for request in sink.requests[:3]}) == 1
    assert sink.requests[3].body["id"] != sink.requests[2].body["id"]


@pytest.mark.parametrize(
    ("kind", "content_type", "said"),
    [
        ("alertmanager", "text/html", "it answers HTTP 200 with text/html; is it an Alertmanager with API v2"),
        ("alertmanager", "text/plain; charset=utf-8", "it answers HTTP 200 with text/plain; is it an Alertmanager"),
        ("alertmanager", "application/json", None),
        ("webhook", "text/html", None),  # what many frameworks say of each answer
    ],
)
def test_an_answer_that_is_not_the_sinks_delivers_nothing(
    lake: str, sink: HttpSink, kind: str, content_type: str, said: str | None
) -> None:
    record(lake, ORDERS)
    (one,) = deliveries(lake, notify_file(sink.url, type=kind))
    sink.answer_headers = {"Content-Type": content_type}
    for _ in range(2):
        if said is None:
            settle(one)
        else:
            with pytest.raises(SinkDownError, match=said):
                settle(one)
    assert len(sink.requests) == (2 if said else 1)


def test_what_a_sink_refuses_is_stored_and_the_next_message_is_sent(
    lake: str, sink: HttpSink, caplog: pytest.LogCaptureFixture
) -> None:
    record(lake, ORDERS)
    (one,) = deliveries(lake, notify_file(sink.url))
    sink.answer = lambda _request: 422
    settle(one)
    sink.answer = lambda _request: 200
    record(lake, change("later", second=5))
    settle(one)
    assert sink.changes() == [*OPENED, ("later", "opened")]
    (parked,) = (Path(FINDING_CHANGES.uri(lake)) / "_notify").glob("one-refused-*.json")
    assert json.loads(parked.read_text()) == sink.requests[0].body
    assert f"one: it refuses the message with HTTP 422; it is stored in {parked}" in caplog.text


def test_a_sink_that_is_not_there_slow_or_asks_for_patience(
    lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(lake, ORDERS)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SinkDownError, match=r"^it can't be reached$"):
        settle(deliveries(lake, notify_file(f"http://127.0.0.1:{port}/t0ken"))[0])
    monkeypatch.setattr(http, "ANSWER_S", 0.2)
    sink.answer = late(0.6)
    with pytest.raises(SinkDownError, match=r"^no answer within"):
        settle(deliveries(lake, notify_file(sink.url))[0])
    monkeypatch.setattr(http, "ANSWER_S", PATIENCE_S)
    sink.answer, sink.answer_headers = lambda _request: 429, {"Retry-After": "17"}
    with pytest.raises(SinkDownError) as error:
        settle(deliveries(lake, notify_file(sink.url))[0])
    assert error.value.retry_after == 17
    assert pause_after(1, error.value) == 17


def test_pauses_between_attempts_double_up_to_a_bound() -> None:
    down = SinkDownError("no")
    assert all(2 ** (n - 1) / 2 <= pause_after(n, down) <= 2 ** (n - 1) for n in range(1, 9))
    assert LONGEST_PAUSE_S / 2 <= pause_after(100_000, down) <= LONGEST_PAUSE_S


def test_the_rate_of_a_sink_is_bounded(lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_CHANGES", 1)
    waits: list[float] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return len(waits) > 3

    record(lake, *(change(f"c{number}") for number in range(5)))
    (one,) = deliveries(lake, notify_file(sink.url, per_minute=6))
    one.deliver(Ended())
    assert len(sink.requests) == 3
    assert waits[0] == 0
    assert all(9 < wait <= 10 for wait in waits[1:])


def test_a_sink_that_is_down_or_slow_delays_no_other_and_misses_nothing(
    lake: str, sink: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.jobs.support.supervisor.pause_after", lambda *_: 0.05)
    monkeypatch.setattr(http, "ANSWER_S", 2 * PATIENCE_S)
    with http_sink() as slow, http_sink() as down:
        released = threading.Event()
        slow.answer = lambda _request: 200 if released.wait(PATIENCE_S) else 500
        down.answer = lambda _request: 200 if released.is_set() else 503
        file = NotifyFile.model_validate(
            {
                "sinks": {
                    name: {"type": "webhook", "url": each.url, "per_minute": 600}
                    for name, each in (("slow", slow), ("down", down), ("fine", sink))
                }
            }
        )
        with supervised(lake, sinks(lake, file, 0.05)):
            record(lake, change("a", second=1))
            wait_until(lambda: len(slow.requests) > 0)
            record(lake, change("b", second=2))
            wait_until(lambda: sink.changes() == [("a", "opened"), ("b", "opened")])
            assert slow.changes() == [("a", "opened")]
            released.set()
            both = {("a", "opened"), ("b", "opened")}
            wait_until(lambda: set(slow.changes()) == both and set(down.changes()) == both)
    assert len(slow.changes()) == 2


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
@pytest.mark.slow
def test_whenever_the_process_ends_nothing_is_missing_and_only_the_same_message_comes_again(
    tmp_path: Path, sink: HttpSink, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends the process before and after each write and each request, one place at a time."""
    steps = [
        [change("a"), change("b", second=1)],
        [change("a", "changed", 2, severity="error"), change("b", "resolved", 3)],
        [change("c", second=4), change("a", "resolved", 5)],
    ]
    budget = [0]

    def or_end(call: Any) -> Any:
        def called(*arguments: Any) -> None:
            for when in ("before", "after"):
                budget[0] -= 1
                if budget[0] == 0:
                    raise Killed
                if when == "before":
                    call(*arguments)

        return called

    monkeypatch.setattr(notes, "write_json", or_end(write_json))
    monkeypatch.setattr(delivery, "post_json", or_end(post_json))
    url = sink.url if kind == "webhook" else sink.url.removesuffix("/hook")
    file = notify_file(url, type=kind)
    ended_at, ends, repeated = 0, True, 0
    while ends:
        ended_at, ends = ended_at + 1, False
        sink.requests.clear()
        (tmp_path / str(ended_at)).mkdir()
        lake = make_lake(tmp_path / str(ended_at))
        budget[0] = 0
        settle(deliveries(lake, file)[0])
        budget[0], second = ended_at, 100.0
        for rows in steps:
            record(lake, *rows)
            while True:
                try:
                    settle(deliveries(lake, file, partial(at, second))[0])
                    break
                except Killed:
                    ends = True
            second += 100
        if kind == "webhook":
            messages = {request.body["id"]: request.body for request in sink.requests}
            repeated += len(sink.requests) - len(messages)
            assert len(sink.requests) <= len(messages) + ends, ended_at
            assert all(request.body == messages[request.body["id"]] for request in sink.requests)
            received = [(row["subject"], row["change"]) for body in messages.values() for row in body["changes"]]
            assert received == [(row["subject"], row["change"]) for rows in steps for row in rows], ended_at
        else:
            state: dict[str, bool] = {}
            for request in sink.requests:
                for alert in request.body:
                    key = f"{alert['labels']['subject']} {alert['labels']['severity']}"
                    state[key] = alert["endsAt"] > f"{at(second - 100):%Y-%m-%dT%H:%M:%S}"
            expected = {"a warning": False, "a error": False, "b warning": False, "c warning": True}
            assert state == expected, ended_at
    assert ended_at > 10
    assert repeated == (len(steps) * 2 if kind == "webhook" else 0)  # after the request, and before it is recorded


def test_a_run_gives_up_says_so_and_the_next_one_sends(
    lake: str, sink: HttpSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(lake, ORDERS)
    sink.answer = lambda _request: 500
    assert notify(lake, one_webhook(sink.url), tmp_path, "--give-up-seconds", "0") == 1
    assert "notify: one: it answers with HTTP 500; the next run sends what it misses" in capsys.readouterr().err
    sink.answer = lambda _request: 200
    assert notify(lake, one_webhook(sink.url), tmp_path) == 0
    assert sink.changes() == OPENED * 2


def test_a_table_that_cannot_be_read_is_one_line(
    lake: str, sink: HttpSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(FINDING_CHANGES.uri(lake)) / "_delta_log" / f"{0:020d}.json").write_text("{}")
    for flags in ((), ("--dry-run",)):
        assert notify(lake, one_webhook(sink.url), tmp_path, *flags) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("telemetry-lake: notify: ")


def test_a_dry_run_prints_and_changes_nothing(
    lake: str, sink: HttpSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(lake, ORDERS, change("b"))
    content: dict[str, Any] = {
        "sinks": {
            "hook": {"type": "webhook", "url": sink.url, "headers": {"X-Key": "hush"}},
            "am": {"type": "alertmanager", "url": sink.url},
            "chat": {"type": "apprise", "url": f"json://127.0.0.1:1/{'t0ken'}"},
        }
    }
    assert notify(make_lake(tmp_path / "empty"), content, tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out == "nothing to send\n"
    for _ in range(2):
        assert notify(lake, content, tmp_path, "--dry-run") == 0
        printed = capsys.readouterr().out
        am, chat, hook = map(json.loads, printed.splitlines())
        assert [(row["subject"], row["change"]) for row in hook["changes"]] == [("orders", "opened"), ("b", "opened")]
        assert [alert["labels"]["subject"] for alert in am["alerts"]] == ["orders", "b"]
        assert (chat["sink"], chat["title"]) == ("chat", "Kafka clients: 2 opened")
        assert "hush" not in printed
        assert "t0ken" not in printed
    assert sink.requests == []
    assert not (Path(FINDING_CHANGES.uri(lake)) / "_notify").exists()


def test_apprise_delivers_and_its_failure_is_retried(lake: str, sink: HttpSink) -> None:
    record(lake, ORDERS)
    (one,) = deliveries(lake, notify_file(sink.url.replace("http:", "json:"), type="apprise"))
    sink.answer = lambda _request: 500
    with pytest.raises(SinkDownError, match="apprise can't send it"):
        settle(one)
    sink.answer = lambda _request: 200
    settle(one)
    first, second = (request.body for request in sink.requests)
    assert first == second
    assert (second["title"], second["type"]) == ("Kafka clients: 1 opened", "warning")
    assert second["message"].endswith(
        "client_id orders (cluster c1, 3 of 200 instances)\ncompression rate 1.0\nset compression.type=zstd"
    )


SECRETS = ("t0ken-in-url", "passw0rd", "hush-header")


@pytest.mark.parametrize("kind", ["webhook", "alertmanager", "apprise"])
@pytest.mark.parametrize("failure", ["refused", "error", "slow"])
def test_no_secret_is_in_logs_errors_or_the_lake(
    lake: str,
    sink: HttpSink,
    tmp_path: Path,
    kind: str,
    failure: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", SECRETS[0])
    port = sink.url.split(":")[2].split("/")[0] if failure != "refused" else "9"
    scheme = "json" if kind == "apprise" else "http"
    content: dict[str, Any] = {
        "sinks": {
            "one": {"type": kind, "url": f"{scheme}://user:{SECRETS[1]}@127.0.0.1:{port}/${{HOOK_TOKEN}}?cto=1&rto=1"}
        }
    }
    if kind != "apprise":
        content["sinks"]["one"]["headers"] = {"X-Key": SECRETS[2]}
    config = tmp_path / "notify.yml"
    config.write_text(yaml.safe_dump(content))
    record(lake, ORDERS)
    sink.answer = lambda _request: 500
    if failure == "slow":
        sink.answer = late(1.5)
        monkeypatch.setattr(http, "ANSWER_S", 0.3)
    argv = ["notify", "--lake", lake, "--notify", str(config), "--give-up-seconds", "0.1", "--log-level", "DEBUG"]
    with caplog.at_level(logging.DEBUG):
        assert cli.main(argv) == 1
    printed = capsys.readouterr()
    said = printed.out + printed.err + caplog.text
    stored = b"".join(file.read_bytes() for file in Path(lake).rglob("*") if file.is_file())
    assert "notify: one: " in said
    for secret in SECRETS:
        assert secret not in said
        assert secret.encode() not in stored


def test_a_step_of_thousands_of_alerts_is_several_requests(lake: str, sink: HttpSink) -> None:
    record(lake, *(change(f"c{number}") for number in range(1200)))
    (one,) = deliveries(lake, notify_file(sink.url.removesuffix("/hook"), type="alertmanager"))
    settle(one)
    assert [len(request.body) for request in sink.requests] == [500, 500, 200]
    assert {request.path for request in sink.requests} == {"/api/v2/alerts"}


def test_open_alerts_are_sent_again_and_ended_once(lake: str, sink: HttpSink) -> None:
    file = notify_file(sink.url.removesuffix("/hook"), type="alertmanager", resend_seconds=60, expire_seconds=240)
    now = [0.0]
    (one,) = deliveries(lake, file, lambda: at(now[0]))

    def sent_at(second: float) -> list[tuple[str, str, str, str]]:
        sink.requests.clear()
        now[0] = second
        settle(one)
        return [
            (alert["labels"]["subject"], alert["labels"]["severity"], alert["startsAt"][11:19], alert["endsAt"][11:19])
            for request in sink.requests
            for alert in request.body
        ]

    assert sent_at(0) == []
    record(lake, change("a"), change("b", opened_at=at(500)))
    assert sent_at(10) == [("a", "warning", "12:00:00", "12:04:10"), ("b", "warning", "12:00:10", "12:04:10")]
    assert sent_at(69) == []
    assert sent_at(70) == [("a", "warning", "12:00:00", "12:05:10"), ("b", "warning", "12:01:10", "12:05:10")]
    record(lake, change("a", "changed", 75, severity="error"), change("b", "resolved", 76, opened_at=at(500)))
    assert sorted(sent_at(80)) == [
        ("a", "error", "12:00:00", "12:05:20"),
        ("a", "warning", "12:00:00", "12:01:15"),
        ("b", "warning", "12:01:17", "12:01:17"),  # it ends no earlier than it starts
    ]
    assert sent_at(140) == [("a", "error", "12:00:00", "12:06:20")]
    record(lake, change("a", "muted", 150, severity="error", until=at(200), by="ann", why="known"))
    assert sent_at(151) == [("a", "error", "12:00:00", "12:06:31")]  # silences are Alertmanager's
    record(lake, change("a", "resolved", 160, severity="error"))
    assert sent_at(161) == [("a", "error", "12:00:00", "12:02:40")]
    assert sent_at(300) == []
    (one,) = deliveries(lake, file)
    assert sent_at(301) == []


def test_an_alert_ends_when_its_finding_does_not_fit_its_sink_any_more(lake: str, sink: HttpSink) -> None:
    url, file = sink.url.removesuffix("/hook"), {"type": "alertmanager", "match": {"severity": "error"}}
    record(lake, change("a", severity="error"), change("b"))
    (one,) = deliveries(lake, notify_file(url, **file), partial(at, 10))
    settle(one)
    record(lake, change("a", "changed", 20, severity="warning"))
    settle(one)
    first, second = (request.body for request in sink.requests)
    assert [(alert["labels"]["subject"], alert["endsAt"][11:19]) for alert in first] == [("a", "12:05:10")]
    assert [(alert["labels"]["severity"], alert["endsAt"][11:19]) for alert in second] == [("error", "12:00:20")]
    record(lake, change("a", "resolved", 30, severity="warning"))
    settle(one)
    assert [request.body for request in sink.requests[2:]] == []


def test_an_alert_that_is_open_again_is_not_ended_in_the_same_request(lake: str, sink: HttpSink) -> None:
    now = [100.0]
    (one,) = deliveries(lake, notify_file(sink.url.removesuffix("/hook"), type="alertmanager"), lambda: at(now[0]))
    record(lake, change("x", owner="a"))
    settle(one)
    sink.answer = lambda _request: 500
    for second, owner in ((5, "b"), (6, "a")):
        record(lake, change("x", "changed", second, owner=owner))
        with pytest.raises(SinkDownError):
            settle(one)
    sink.answer = lambda _request: 200
    (one,) = deliveries(lake, notify_file(sink.url.removesuffix("/hook"), type="alertmanager"), lambda: at(110))
    settle(one)
    ends = {alert["labels"]["owner"]: alert["endsAt"][11:19] for alert in sink.requests[-1].body}
    assert len(sink.requests[-1].body) == 2
    assert ends == {"a": "12:06:50", "b": "12:00:06"}


def test_labels_of_hostile_names_are_short_printable_and_still_different(lake: str, sink: HttpSink) -> None:
    long = "x" * 1024
    names = [f"\x00\x1b[2J{long}\u202ea", f"\x00\x1b[2J{long}\u202eb", "", "ünïcode"]
    record(lake, *(change(name, cluster_id=None, evidence=name * 9, owner="") for name in names))
    (one,) = deliveries(lake, notify_file(sink.url.removesuffix("/hook"), type="alertmanager"))
    settle(one)
    (request,) = sink.requests
    labels = [alert["labels"] for alert in request.body]
    assert len({json.dumps(each) for each in labels}) == 4
    assert [each.get("subject", "")[:12] for each in labels] == ["\\x00\\x1b[2Jx", "\\x00\\x1b[2Jx", "", "ünïcode"]
    assert all(value and value.isprintable() and len(value) <= 256 for each in labels for value in each.values())
    assert all(len(alert["annotations"].get("evidence", "")) <= 2000 for alert in request.body)
