"""OTLP: points and events as they are sent, at least once and with the same identity, and what an endpoint answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from pydantic import SecretStr

from kafka_telemetry_lake.jobs.export import _sending
from kafka_telemetry_lake.jobs.support import supervisor
from kafka_telemetry_lake.jobs.support.supervisor import Companion, supervised
from kafka_telemetry_lake.pipelines.export import otlp as module
from kafka_telemetry_lake.pipelines.export import otlp_requests
from kafka_telemetry_lake.pipelines.export.known_clients import KNOWN, KnownClients
from kafka_telemetry_lake.pipelines.export.otlp import SIGNALS, Otlp
from kafka_telemetry_lake.pipelines.export.otlp_requests import Totals
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.notify.http import post
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS
from tests.support.http_endpoint import Endpoint, Post, endpoint
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.export.made_lake import (
    LATENCY,
    NOW,
    SENT,
    client,
    make_lake,
    note_of,
    point,
    put,
)

pytestmark = pytest.mark.lake

Answers = Iterator[tuple[int, dict[str, str], bytes]]
SECOND = 1_000_000_000
START = int(NOW.timestamp()) * SECOND
EVENT = {
    "source": "kafka", "cluster_id": "c", "topic": "t", "partition": 0, "offset": 1, "landed_at": NOW,
    "client_instance_id": "a", "client_id": "a", "at": NOW - timedelta(seconds=5), "event": "silent",
    "detail": [("pushes", "3")],
}  # fmt: skip


@pytest.fixture
def found() -> Iterator[Endpoint]:
    with endpoint() as it:
        yield it


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pause_after", lambda *_: 0.01)


def sender(lake: str, found: Endpoint, signal: str = "metrics", **settings: Any) -> Otlp:
    usual: dict[str, Any] = {"is_cumulative": False, "from_start": True, "clock": NOW.timestamp} | settings
    clients = KnownClients(lake, usual["clock"])
    return Otlp(lake, "x", SIGNALS[signal], clients, SecretStr(found.url), {"X-Token": SecretStr("secret")}, **usual)


def send(lake: str, found: Endpoint, signal: str = "metrics", **settings: Any) -> Otlp:
    """Send what there is; the sender ends without a word."""
    sending = sender(lake, found, signal, **settings)
    while sending.step():
        pass
    return sending


def request(post: Post) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest.FromString(gzip.decompress(post.body))


def sums(posts: list[Post]) -> list[tuple[Any, ...]]:
    """Instance, metric, start and time in seconds, whole value, temporality of each point of a sum."""
    return [
        (
            resource_attributes(resource)["service.instance.id"], metric.name.rpartition("kafka.")[2],
            (point.start_time_unix_nano - START) / SECOND, (point.time_unix_nano - START) / SECOND,
            point.as_int, metric.sum.aggregation_temporality,
        )
        for post in posts
        for resource in request(post).resource_metrics
        for metric in resource.scope_metrics[0].metrics
        for point in metric.sum.data_points
    ]  # fmt: skip


def resource_attributes(resource: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in resource.resource.attributes}


def test_a_row_is_a_data_point_of_its_client(tmp_path: Path, found: Endpoint) -> None:
    rows = [
        point("a", SENT, delta=10, topic="t"), point("a", LATENCY, value=1.5), point("a", SENT, delta=2.5, second=20),
        point("a", SENT, delta=1, status="duplicate"), point("a", SENT, delta=1, status="too_late"),
        {**point("a", SENT, delta=1), "delta": None, "delta_int": None, "delta_status": "baseline"},
        {**point("n", SENT, delta=-3, status="negative"), "client_id": None},
    ]  # fmt: skip
    clients = [client("a", labels=[("group_id", "g")]), client("n")]
    send(make_lake(tmp_path, *rows, clients=clients), found)
    (post,) = found.posts
    assert (post.path, post.headers["content-type"], post.headers["content-encoding"], post.headers["x-token"]) == (
        "/v1/metrics", "application/x-protobuf", "gzip", "secret",
    )  # fmt: skip
    first, second = request(post).resource_metrics
    assert resource_attributes(first) == {
        "service.name": "a", "service.instance.id": "a", "messaging.system": "kafka", "messaging.client.id": "a",
        "messaging.consumer.group.name": "g", "kafka.cluster.id": "c",
        "kafka.client.software.name": "apache-kafka-java", "kafka.client.software.version": "4.3.0",
    }  # fmt: skip
    assert resource_attributes(second)["service.name"] == "unknown_service:kafka-client"
    latency, sent = first.scope_metrics[0].metrics
    assert [each.as_double for each in latency.gauge.data_points] == [1.5]
    assert sent.sum.is_monotonic
    assert sent.sum.aggregation_temporality == 1  # AGGREGATION_TEMPORALITY_DELTA
    whole, fraction = sent.sum.data_points
    assert (whole.as_int, fraction.as_double, fraction.WhichOneof("value")) == (10, 2.5, "as_double")
    assert (whole.start_time_unix_nano, whole.time_unix_nano) == (START - 10 * SECOND, START)
    assert [(each.key, each.value.string_value) for each in whole.attributes] == [("topic", "t")]
    assert second.scope_metrics[0].metrics[0].sum.data_points[0].as_int == -3


def test_distributions_are_sent_as_increments() -> None:
    row = point("a", "h", delta=1) | {
        "delta": None,
        "delta_int": None,
        "count_delta": 3,
        "sum_delta": 6.5,
        "series_id": 1,
    }
    rows = [
        row | {"kind": "histogram", "explicit_bounds": [1.0, 2.0], "bucket_counts_delta": [1, 2, 0]},
        row | {"metric": "moved", "kind": "histogram", "explicit_bounds": [1.0], "bucket_counts_delta": None},
        row | {"metric": "e", "kind": "exponential_histogram", "scale": 2, "zero_count_delta": 1, "positive_offset": -3,
               "positive_counts_delta": [4, 5], "negative_counts_delta": None},
        row | {"metric": "s", "kind": "summary", "count": 7, "sum": 8.0, "quantiles": [(0.5, 1.25)]},
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, METRIC_POINTS.schema)
    ((found, number),) = otlp_requests.point_requests(table, KNOWN.empty_table(), None)
    metrics = {metric.name: metric for metric in found.resource_metrics[0].scope_metrics[0].metrics}
    histogram = metrics["org.apache.kafka.h"].histogram
    assert (number, histogram.aggregation_temporality) == (4, 1)
    plain = histogram.data_points[0]
    assert (plain.count, plain.sum, list(plain.explicit_bounds), list(plain.bucket_counts)) == (
        3,
        6.5,
        [1, 2],
        [1, 2, 0],
    )
    moved = metrics["moved"].histogram.data_points[0]
    assert (moved.count, list(moved.explicit_bounds), list(moved.bucket_counts)) == (3, [], [])
    wide = metrics["e"].exponential_histogram.data_points[0]
    assert (wide.scale, wide.zero_count, wide.positive.offset, list(wide.positive.bucket_counts)) == (2, 1, -3, [4, 5])
    summary = metrics["s"].summary.data_points[0]
    assert (summary.count, summary.sum, summary.quantile_values[0].value) == (7, 8, 1.25)


def test_events_are_log_records_with_an_id(tmp_path: Path, found: Endpoint) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    put(lake, CLIENT_EVENTS, [EVENT, EVENT | {"client_instance_id": None, "client_id": None, "event": "mass_silence"}])
    send(lake, found, "logs")
    send(lake, found, "logs")
    (post,) = found.posts
    assert post.path == "/v1/logs"
    logs = ExportLogsServiceRequest.FromString(gzip.decompress(post.body)).resource_logs
    fleet, single = sorted(logs, key=lambda each: "service.instance.id" in resource_attributes(each))
    record = single.scope_logs[0].log_records[0]
    assert (record.event_name, record.body.string_value) == ("kafka.client.silent", "silent")
    assert (record.time_unix_nano, record.observed_time_unix_nano) == (START - 5 * SECOND, START)
    attributes = {each.key: each.value.string_value for each in record.attributes}
    assert attributes.keys() == {"log.record.uid", "kafka.client.pushes"}
    assert len(attributes["log.record.uid"]) == 32
    assert resource_attributes(single)["service.instance.id"] == "a"
    assert fleet.scope_logs[0].log_records[0].event_name == "kafka.client.mass_silence"


def test_the_first_start_sends_what_comes_from_then_on(tmp_path: Path, found: Endpoint) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    send(lake, found, from_start=False)
    assert found.posts == []
    put(lake, METRIC_POINTS, [point("a", SENT, delta=2, second=20)])
    send(lake, found, from_start=False)
    assert sums(found.posts) == [("a", SENT, 10, 20, 2, 1)]
    send(lake, found, from_start=True)
    assert len(found.posts) == 1


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_a_commit_that_was_not_acknowledged_is_sent_again_with_the_same_bytes(
    tmp_path: Path, found: Endpoint, is_cumulative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1), point("a", SENT, delta=2, second=10))
    monkeypatch.setattr(module, "NOTE_S", 0.0)
    send(lake, found, is_cumulative=is_cumulative)
    put(lake, METRIC_POINTS, [point("a", SENT, delta=4, second=20), point("b", SENT, delta=8, second=20)])
    put(lake, CLIENT_CHANGES, [client("b")])
    cut_off = sender(lake, found, is_cumulative=is_cumulative)
    monkeypatch.setattr(cut_off, "_store", lambda: None)  # it is killed after it has sent
    cut_off.step()
    put(lake, METRIC_POINTS, [point("a", SENT, delta=16, second=15)])
    send(lake, found, is_cumulative=is_cumulative)
    first, second, again, third = (gzip.decompress(post.body) for post in found.posts)
    assert second == again
    assert first != second != third
    values = [value for *_, value, _ in sums(found.posts)]
    assert values == ([1, 3, 7, 8, 7, 8, 23] if is_cumulative else [1, 2, 4, 8, 4, 8, 16])


def test_totals_begin_with_the_first_increment_and_never_go_back_in_time(tmp_path: Path, found: Endpoint) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1), point("a", SENT, delta=2, second=10))
    put(lake, METRIC_POINTS, [point("a", SENT, delta=4, second=5)])
    send(lake, found, is_cumulative=True)
    assert sums(found.posts) == [("a", SENT, -10, 0, 1, 2), ("a", SENT, -10, 10, 3, 2), ("a", SENT, -10, 10, 7, 2)]


def test_totals_are_bounded_and_a_series_that_is_forgotten_begins_anew() -> None:
    totals = Totals(most=2)
    for series in (1, 2, 1, 3):
        last = totals.add(series, series * 10, series * 10 + 5, 1.5, None)
    assert (last.number, last.whole) == (1.5, None)
    assert [row[0] for row in totals.stored()] == [1, 3]
    assert totals.add(2, 70, 75, 4, 4).start == 70
    again = Totals()
    again.restore(totals.stored())
    assert again.stored() == totals.stored()


@pytest.mark.parametrize("status", [429, 502, 503, 504, 401, 404])
def test_an_endpoint_that_is_busy_or_wrongly_set_gets_it_again(tmp_path: Path, found: Endpoint, status: int) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    answers: Answers = iter([(status, {"Retry-After": "0"}, b"")] * 2)
    found.answer = lambda _: next(answers, (200, {}, b""))
    sending = send(lake, found)
    assert (len(found.posts), sending.sent, sending.retries, sending.rejected) == (3, 1, 2, 0)
    assert len({post.body for post in found.posts}) == 1


def test_what_is_refused_is_dropped_counted_and_said_in_a_line(
    tmp_path: Path, found: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    put(lake, METRIC_POINTS, [point("a", SENT, delta=2, second=20)])
    answers: Answers = iter([(400, {}, b"no")])
    found.answer = lambda _: next(answers, (200, {}, b""))
    sending = send(lake, found)
    assert [value for *_, value, _ in sums(found.posts)] == [1, 2]
    assert (sending.sent, sending.rejected, sending.retries) == (1, 1, 0)
    assert "metrics: it refuses the message with HTTP 400: 1 rows are dropped" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_points_that_it_rejects_though_it_takes_the_request_are_counted(
    tmp_path: Path, found: Endpoint, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1), point("a", SENT, delta=1, second=20))
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points, answer.partial_success.error_message = 1, "too\nold"
    body = MessageToJson(answer).encode() if kind == "application/json" else answer.SerializeToString()
    answers: Answers = iter([(200, {"Content-Type": kind}, body)])
    found.answer = lambda _: next(answers, (200, {}, b"{}"))
    sending = send(lake, found)
    assert (sending.sent, sending.rejected) == (1, 1)
    assert "it rejects 1 rows: too old" in caplog.text


PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html; charset=utf-8", PAGE, "it answers HTTP 200 with a page of HTML"),
        ("text/html", b"", "it answers HTTP 200 with content type text/html, not as an OTLP endpoint does"),
        ("text/plain", b"ok", "it answers HTTP 200 with content type text/plain, not as an OTLP endpoint does"),
        ("application/json", b'{"error": "no such tenant"}', "content type application/json, but no message of OTLP"),
        ("application/json", b"[" * 5000, "content type application/json, but no message of OTLP"),
        ("application/x-protobuf", b"no", "content type application/x-protobuf, but no message of OTLP"),
        ("", b"ok", r"content type (none), but no message of OTLP"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("signal", ["metrics", "logs"])
def test_what_no_otlp_endpoint_answers_takes_nothing_whatever_its_status(
    tmp_path: Path, found: Endpoint, caplog: pytest.LogCaptureFixture, signal: str, kind: str, body: bytes, said: str
) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    put(lake, CLIENT_EVENTS, [EVENT])
    answers: Answers = iter([(200, {"Content-Type": kind} if kind else {}, body)] * 2)
    found.answer = lambda _: next(answers, (200, {}, b""))
    sending = send(lake, found, signal)
    assert (len(found.posts), sending.sent, sending.retries, sending.rejected) == (3, 1, 2, 0)
    assert len({post.body for post in found.posts}) == 1
    assert said in caplog.text
    assert f"(POST to /v1/{signal} below the URL of --otlp)" in caplog.text


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "application/x-protobuf", b""),
        (204, "", b""),
        (200, "application/json; charset=utf-8", b'{"partialSuccess": {}}'),
        (202, "application/json", b"{}"),
    ],
)
def test_what_an_otlp_endpoint_answers_takes_it(
    tmp_path: Path, found: Endpoint, status: int, kind: str, body: bytes
) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    found.answer = lambda _: (status, {"Content-Type": kind} if kind else {}, body)
    sending = send(lake, found)
    assert (len(found.posts), sending.sent, sending.retries) == (1, 1, 0)


def test_a_stop_ends_it_while_the_endpoint_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    monkeypatch.setattr(module, "pause_after", lambda *_: 3000)
    sending = sender(lake, Endpoint("http://127.0.0.1:1"))
    with supervised(lake, [Companion("otlp-metrics", partial(_sending, sending), 1, PATIENCE_S, last_step=True)]):
        wait_until(lambda: sending.retries)
    assert json.loads(note_of(lake, "x-otlp-metrics").read_bytes())["version"] == 0  # the commit before its rows


def test_after_a_failure_in_mid_work_totals_go_on_from_the_note(
    tmp_path: Path, found: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals have counted what wasn't sent by then."""
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    sending, deaths = sender(lake, found, is_cumulative=True), [SystemExit()]

    def dying(*arguments: Any) -> Any:
        if deaths:
            raise deaths.pop()
        return post(*arguments)

    monkeypatch.setattr(module, "post", dying)
    monkeypatch.setattr(supervisor, "pause_after", lambda *_: 0.01)
    with supervised(lake, [Companion("otlp-metrics", partial(_sending, sending), 1, PATIENCE_S, last_step=True)]):
        wait_until(lambda: found.posts)
    assert [value for *_, value, _ in sums(found.posts)] == [1]


def test_a_damaged_note_is_named_with_what_to_do(tmp_path: Path, found: Endpoint) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    send(lake, found)
    note_of(lake, "x-otlp-metrics").write_text("{")
    with pytest.raises(StateError, match=r"x-otlp-metrics-e0+.json is damaged .* metrics are sent from then on"):
        send(lake, found)
