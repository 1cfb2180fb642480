"""Remote write: what is sent, in which order, and what follows when the endpoint is down, busy or refuses it."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import snappy
from prometheus_client import Metric
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.export import remote_write as module
from kafka_telemetry_lake.pipelines.export.prompb import WriteRequest
from kafka_telemetry_lake.pipelines.export.remote_write import RemoteWrite
from tests.support.http_endpoint import Post, endpoint
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.export.made_lake import HOSTILE

Answers = Iterator[tuple[int, dict[str, str], bytes]]


def families(**values: float) -> list[Metric]:
    found = Metric("records", "text", "counter")
    for name, value in values.items():
        found.add_sample("records_total", {"client_id": name, "a": "1"}, value)
    return [found]


def sender(url: str, **extra: str) -> RemoteWrite:
    return RemoteWrite(SecretStr(f"{url}/api/v1/write"), {"Authorization": SecretStr("Bearer secret")}, extra)


def decoded(post: Post) -> list[tuple[list[tuple[str, str]], float, int]]:
    request: Any = WriteRequest()
    request.ParseFromString(snappy.decompress(post.body))
    return [
        ([(label.name, label.value) for label in series.labels], sample.value, sample.timestamp)
        for series in request.timeseries
        for sample in series.samples
    ]


def step_all(remote: RemoteWrite) -> None:
    while remote.step() is not None:
        pass


def test_a_refresh_is_a_request_as_the_specification_asks_for() -> None:
    with endpoint() as found:
        remote = sender(found.url, job="kafka")
        remote.take(families(x=1.5, y=2), 1000.25)
        step_all(remote)
        (post,) = found.posts
        assert post.path == "/api/v1/write"
        sent = {
            name: post.headers[name] for name in ("content-type", "content-encoding", "authorization", "user-agent")
        }
        assert sent == {
            "content-type": "application/x-protobuf", "content-encoding": "snappy", "authorization": "Bearer secret",
            "user-agent": "kafka-telemetry-lake",
        }  # fmt: skip
        assert post.headers["x-prometheus-remote-write-version"] == "0.1.0"
        labels = [("__name__", "records_total"), ("a", "1"), ("client_id", "x"), ("job", "kafka")]
        assert decoded(post)[0] == (labels, 1.5, 1_000_250)
        assert [value for _, value, _ in decoded(post)] == [1.5, 2]
        assert remote.sent == 2


def test_the_end_of_a_series_is_told_once() -> None:
    with endpoint() as found:
        remote = sender(found.url)
        remote.take(families(x=1, y=2), 1)
        remote.take(families(y=3), 2)
        remote.take(families(y=4), 3)
        step_all(remote)
        first, second, third = map(decoded, found.posts)
        assert len(first) == 2
        assert len(third) == 1
        (_, value, _), (ended, stale, at) = second
        assert (value, ("client_id", "x") in ended, at) == (3, True, 2000)
        assert struct.pack("<d", stale) == struct.pack("<Q", 0x7FF0000000000002)
        assert math.isnan(stale)


def test_label_values_arrive_as_they_are() -> None:
    with endpoint() as found:
        remote = sender(found.url)
        remote.take(families(**{name: n for n, name in enumerate(HOSTILE)}), 1)
        step_all(remote)
        assert {dict(labels).get("client_id", "") for labels, _, _ in decoded(found.posts[0])} == set(HOSTILE)


def test_many_series_are_several_requests() -> None:
    with endpoint() as found:
        remote = sender(found.url)
        remote.take(families(**{f"c{n}": n for n in range(4500)}), 1)
        step_all(remote)
        assert [len(decoded(post)) for post in found.posts] == [2000, 2000, 500]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_endpoint_gets_the_same_request_again_in_order(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint() as found:
        answers: Answers = iter([(status, {"Retry-After": "7"}, b""), (status, {}, b"")])
        found.answer = lambda _: next(answers, (200, {}, b""))
        remote = sender(found.url)
        remote.take(families(x=1), 1)
        assert remote.step() == 7
        remote.take(families(x=2), 2)
        assert 0 < (remote.step() or 0) <= 2
        step_all(remote)
        assert [decoded(post)[0][1] for post in found.posts] == [1, 1, 1, 2]
        assert (remote.sent, remote.dropped, remote.retries) == (2, 0, 2)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_what_is_refused_is_dropped_counted_and_said_in_a_line(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with endpoint() as found:
        answers: Answers = iter([(status, {}, b"out of bounds")])
        found.answer = lambda _: next(answers, (200, {}, b""))
        remote = sender(found.url)
        remote.take(families(x=1, y=1), 1)
        remote.take(families(x=2, y=2), 2)
        step_all(remote)
        assert (remote.sent, remote.dropped, remote.retries) == (2, 2, 0)
        assert f"refuses the message with HTTP {status}: 2 samples are dropped" in caplog.text
        assert "secret" not in caplog.text


def test_what_waits_for_an_endpoint_that_is_down_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 3)
    remote = sender("http://127.0.0.1:1")
    for n in range(10):
        remote.take(families(x=n), n)
        assert remote.step() != 0
    assert (remote.dropped, remote.retries) == (7, 10)
    assert {family.name: family.samples[0].value for family in remote.families()} == {
        "telemetry_lake_export_remote_write_sent_samples": 0,
        "telemetry_lake_export_remote_write_dropped_samples": 7,
        "telemetry_lake_export_remote_write_retries": 10,
        "telemetry_lake_export_remote_write_waiting_requests": 3,
    }


def test_the_thread_sends_what_waits_and_ends_at_once_while_the_endpoint_is_down() -> None:
    with endpoint() as found:
        remote, ended = sender(found.url), threading.Event()
        thread = threading.Thread(target=remote.run, args=(ended,))
        thread.start()
        remote.take(families(x=1), 1)
        wait_until(lambda: remote.sent == 1)
        found.answer = lambda _: (503, {"Retry-After": "3000"}, b"")
        remote.take(families(x=2), 2)
        wait_until(lambda: remote.retries == 1)
        ended.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
