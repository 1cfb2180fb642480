"""A Kafka topic as a sink: its records, their order, and what is sent again after which failure."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.notify import sinks
from kafka_telemetry_lake.jobs.supervisor import supervised
from kafka_telemetry_lake.pipelines.lake import notes
from kafka_telemetry_lake.pipelines.lake.json_files import write_json
from kafka_telemetry_lake.pipelines.notify import topic
from kafka_telemetry_lake.pipelines.notify.delivery import Delivery, deliveries
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile, NotifyFileError, read_notify_file
from kafka_telemetry_lake.pipelines.notify.http import SinkDownError
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.patience import wait_until
from tests.unit.notify.changed_findings import at, change, http_sink, make_lake, record
from tests.unit.notify.kafka_stand_in import Kafka

ROOT = Path(__file__).parents[3]
SECRET = "hunter2"
JAAS = f'org.example.Module required password="{SECRET}";'


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return make_lake(tmp_path)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setattr(topic, "check_brokers", lambda _servers, _options: None)
    return Kafka()


def content(**sink: Any) -> dict[str, Any]:
    one = {"type": "kafka", "bootstrap_servers": "broker-1:9092", "topic": "findings"} | sink
    return {"sinks": {"one": one}, "routes": [{"sinks": ["one"]}]}


def delivery(lake: str, kafka: Kafka, routes: Any = None, **sink: Any) -> Delivery:
    file = content(**sink) | ({} if routes is None else {"routes": routes})
    (one,) = deliveries(lake, NotifyFile.model_validate(file), kafka.machine)
    return one


def settle(one: Delivery, second: float = 100) -> None:
    """Step until nothing more is to be done now, as a process that goes on does."""
    while one.step(at(second), at_once=False) is not None:
        second += 1


def test_a_record_is_the_change_and_its_key_the_finding(lake: str, kafka: Kafka) -> None:
    record(lake, change("orders", owner="team-a", measure=float("inf")))
    one = delivery(lake, kafka, kafka_options={"kafka.sasl.jaas.config": JAAS, "kafka.acks": "0"})
    assert [one.step(at(100), at_once=False) for _ in range(3)] == [0.0, 0.0, None]  # though group_seconds is 30
    ((key, value),) = kafka.records
    assert key == change("orders")["finding_id"]
    assert len(value.pop("change_id")) == 32
    assert value == {
        "cluster_id": "c1", "finding_id": key, "finding": "no_compression", "severity": "warning",
        "scope": "client_id", "subject": "orders", "client_id": "orders", "owner": "team-a", "change": "opened",
        "at": "2026-11-23T12:00:00.000000Z", "opened_at": "2026-11-23T12:00:00.000000Z",
        "recorded_at": "2026-11-23T12:00:01.000000Z", "window_start": "2026-11-23T12:00:00.000000Z",
        "instances": 200, "instances_affected": 3, "evidence": "compression rate 1.0",
        "advice": "set compression.type=zstd",
    }  # fmt: skip
    (properties,) = kafka.properties
    assert properties["bootstrap.servers"] == "broker-1:9092"
    assert properties["sasl.jaas.config"] == JAAS
    assert (properties["acks"], properties["enable.idempotence"]) == ("all", "true")  # options don't weaken these
    assert properties["batch.size"] == "0"
    settle(one)
    assert len(kafka.records) == 1
    assert (kafka.machines, kafka.open_now) == (1, 1)
    one.close()
    assert (kafka.open_now, kafka.closed) == (0, 1)


def test_the_documented_fields_are_those_of_a_record() -> None:
    page = (ROOT / "docs" / "notify.md").read_text("utf-8")
    fields = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\w+)", page.partition("| field of a record |")[2], re.MULTILINE)
    documented = {name: kind for names, kind in fields for name in re.findall(r"\w+", names)}
    kinds = {"string": "text", "double": "number", "int64": "integer", "timestamp[us, tz=UTC]": "time"}
    expected = {column.name: kinds[str(column.type)] for column in FINDING_CHANGES.schema}
    assert documented == expected | {"change_id": "text"}


def test_changes_stay_in_order_whichever_routes_they_take(lake: str, kafka: Kafka) -> None:
    routes = [{"match": {"severity": "error"}, "sinks": ["one"]}, {"sinks": ["one"]}]
    one = delivery(lake, kafka, routes)
    settle(one, 0)
    kafka.topics.clear()
    severities = ["warning", "info", "error", "warning"]
    for second, severity in enumerate(severities):
        record(lake, change("a", "changed" if second else "opened", second, severity=severity))
        with pytest.raises(SinkDownError):
            settle(one, 100 + second)
    kafka.topics.add("findings")
    settle(one)
    assert [value["severity"] for _, value in kafka.records] == severities


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (("TimeoutException", "Expiring 2 record(s)\nfor findings-0"), "TimeoutException: Expiring 2 record"),
        (("TopicAuthorizationException", "no"), "TopicAuthorizationException: no"),
    ],
)
def test_what_a_topic_does_not_acknowledge_is_sent_again_by_a_new_producer(
    lake: str, kafka: Kafka, failure: tuple[str, str], said: str
) -> None:
    record(lake, change("a"), change("b", second=1), change("c", second=2))

    def fails(_key: str, value: str) -> None:
        if json.loads(value)["subject"] == "b":
            raise kafka.error(*failure)

    one, kafka.fails = delivery(lake, kafka), fails
    with pytest.raises(SinkDownError, match=said):
        settle(one)
    assert (kafka.open_now, kafka.closed) == (0, 1)
    kafka.fails = lambda _key, _value: None
    settle(delivery(lake, kafka))
    assert [subject for subject, _ in kafka.changes()] == ["a", "c", "a", "b", "c"]
    ids = [value["change_id"] for _, value in kafka.records]
    assert ids[:2] == [ids[2], ids[4]]
    assert len(set(ids)) == 3


def test_a_jvm_that_has_ended_is_started_again(lake: str, kafka: Kafka) -> None:
    record(lake, change("a"))
    one = delivery(lake, kafka)
    settle(one)
    kafka.is_gone = True
    record(lake, change("b", second=1))
    with pytest.raises(SinkDownError, match=r"^the JVM of its producer has ended$"):
        settle(one)
    settle(one)
    assert [subject for subject, _ in kafka.changes()] == ["a", "b"]
    assert (kafka.machines, kafka.open_now) == (2, 1)


def test_a_topic_that_is_missing_and_one_that_vanishes(lake: str, kafka: Kafka) -> None:
    kafka.topics.clear()
    record(lake, change("a"))
    one = delivery(lake, kafka)
    with pytest.raises(SinkDownError, match=r"^topic findings does not exist: create it, with the partitions"):
        settle(one)
    kafka.topics.add("findings")
    settle(one)
    kafka.topics.clear()
    record(lake, change("b", second=1), change("c", second=2))
    with pytest.raises(SinkDownError, match=r"^TimeoutException: Topic findings not present in metadata"):
        settle(one)  # once, not with each record
    assert kafka.changes() == [("a", "opened")]


def test_a_change_that_is_too_large_is_stored_and_holds_nothing_up(
    lake: str, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_key: str, value: str) -> None:
        if len(value) > 5000:
            raise kafka.error("RecordTooLargeException", "The message is 1048600 bytes when serialized")

    kafka.fails = fails
    record(lake, change("a"), change("b", second=1, evidence="e" * 5000), change("c", second=2))
    one = delivery(lake, kafka)
    settle(one)
    record(lake, change("d", second=3))
    settle(one)
    assert [subject for subject, _ in kafka.changes()] == ["a", "c", "d"]
    (parked,) = (Path(FINDING_CHANGES.uri(lake)) / "_notify").glob("one-refused-*.json")
    assert [row["subject"] for row in json.loads(parked.read_text())["changes"]] == ["a", "b", "c"]
    assert "one: a change is larger than the topic allows; it has the others; it is stored in" in caplog.text


def test_one_too_large_does_not_hide_that_another_is_missing(lake: str, kafka: Kafka) -> None:
    failures = {
        "a": kafka.error("RecordTooLargeException", "too large"),
        "b": kafka.error("TimeoutException", "Expiring 1 record"),
    }

    def fails(_key: str, value: str) -> None:
        if failure := failures.get(json.loads(value)["subject"]):
            raise failure

    kafka.fails = fails
    record(lake, change("a"), change("b", second=1))
    with pytest.raises(SinkDownError, match="Expiring 1 record"):
        settle(delivery(lake, kafka))
    del failures["b"]
    settle(delivery(lake, kafka))
    assert kafka.changes() == [("b", "opened")]


def test_brokers_that_are_down_delay_no_other_sink_and_miss_nothing(
    lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.jobs.supervisor.pause_after", lambda *_: 0.05)
    kafka = Kafka()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with http_sink() as hook:
        file = content(bootstrap_servers=f"127.0.0.1:{port}")
        file["sinks"]["hook"] = {"type": "webhook", "url": hook.url}
        file["routes"] = [{"sinks": ["one", "hook"], "group_seconds": 0}]
        with supervised(lake, sinks(lake, NotifyFile.model_validate(file), kafka.machine, 0.05)):
            record(lake, change("a"))
            wait_until(lambda: hook.changes() == [("a", "opened")])
            wait_until(lambda: f"127.0.0.1:{port}: connection refused" in caplog.text)
            record(lake, change("a", "resolved", 2))
            wait_until(lambda: len(hook.changes()) == 2)
            assert (kafka.records, kafka.machines) == ([], 0)  # no JVM starts before a broker answers
            monkeypatch.setattr(topic, "check_brokers", lambda _servers, _options: None)
            wait_until(lambda: kafka.changes() == [("a", "opened"), ("a", "resolved")])
    assert (kafka.open_now, kafka.closed) == (0, 1)


class Killed(BaseException):
    """The process ends here."""


def test_whenever_the_process_ends_nothing_is_missing_and_only_the_same_records_come_again(
    tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends the process before and after each write and each message, one place at a time."""
    steps = [
        [change("a"), change("b", second=1)],
        [change("a", "changed", 2, severity="error"), change("b", "resolved", 3)],
    ]
    budget = [0]

    def or_end(call: Callable[..., Any]) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            for when in ("before", "after"):
                budget[0] -= 1
                if budget[0] == 0:
                    raise Killed
                if when == "before":
                    call(*arguments)

        return called

    monkeypatch.setattr(notes, "write_json", or_end(write_json))
    monkeypatch.setattr(topic.Topic, "send", or_end(topic.Topic.send))
    ended_at, ends, repeated = 0, True, 0
    while ends:
        ended_at, ends = ended_at + 1, False
        kafka.records.clear()
        lake = make_lake(tmp_path / str(ended_at))
        budget[0] = 0
        settle(delivery(lake, kafka), 0)
        budget[0] = ended_at
        for number, rows in enumerate(steps):
            record(lake, *rows)
            for _ in range(2):
                try:
                    settle(delivery(lake, kafka), 100 * (number + 1))
                    break
                except Killed:
                    ends = True
        known = {value["change_id"]: value for _, value in kafka.records}
        assert all(value == known[value["change_id"]] for _, value in kafka.records)
        assert [(row["subject"], row["change"]) for row in known.values()] == [
            (row["subject"], row["change"]) for rows in steps for row in rows
        ], ended_at
        repeated += len(kafka.records) > len(known)
    assert ended_at > 8
    assert repeated == 2 * len(steps)  # after the records, and before that is stored


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"bootstrap_servers": SECRET}, r"sinks\.one\.bootstrap_servers: allowed: host:port, or several with commas"),
        ({"bootstrap_servers": "a:1,b"}, r"sinks\.one\.bootstrap_servers: allowed: host:port"),
        ({"topic": f"{SECRET}!"}, r"sinks\.one\.topic: String should match pattern"),
        ({"kafka_options": {"sasl.jaas.config": SECRET}}, r"sinks\.one\.kafka_options: allowed: options of Kafka's"),
        ({"kafka_options": {"kafka.bootstrap.servers": SECRET}}, r"sinks\.one\.kafka_options: allowed: options of"),
        ({"kafka_options": {"kafka.linger.ms": 5}}, r"sinks\.one\.kafka_options\.kafka\.linger\.ms: .*valid string"),
        ({"kafka_options": {"kafka.security.protocol": SECRET}}, r"security\.protocol: allowed: PLAINTEXT, SSL, SASL"),
        ({"url": SECRET}, r"sinks\.one\.url: no such field$"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, sink: dict[str, Any], said: str) -> None:
    file = tmp_path / "notify.yml"
    file.write_text(yaml.safe_dump(content(**sink)))
    with pytest.raises(NotifyFileError, match=said) as error:
        read_notify_file(file)
    assert SECRET not in str(error.value)


def test_no_secret_is_in_logs_errors_the_lake_or_a_dry_run(
    lake: str, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("JAAS", JAAS)
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.runtime.java_machine.java_machine", kafka.machine)
    kafka.refuses = kafka.error("IllegalArgumentException", f"Value not specified for key '{SECRET}' in JAAS config")
    config = tmp_path / "notify.yml"
    config.write_text(yaml.safe_dump(content(kafka_options={"kafka.sasl.jaas.config": "${JAAS}"})))
    record(lake, change("orders"))
    argv = ["notify", "--lake", lake, "--notify", str(config), "--log-level", "DEBUG"]
    assert cli.main([*argv, "--give-up-seconds", "0"]) == 1
    assert cli.main([*argv, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "notify: one: Kafka's producer refuses kafka_options (IllegalArgumentException); the next" in printed.err
    assert [row["subject"] for row in json.loads(printed.out.splitlines()[-1])["changes"]] == ["orders"]
    stored = b"".join(file.read_bytes() for file in Path(lake).rglob("*") if file.is_file())
    assert SECRET not in printed.out + printed.err + caplog.text
    assert SECRET.encode() not in stored
    kafka.refuses = None
    assert cli.main(argv) == 0
    assert kafka.changes() == [("orders", "opened")]
    assert kafka.properties[0]["sasl.jaas.config"] == JAAS
