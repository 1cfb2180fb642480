"""Subscriptions in a YAML file, and `telemetry-lake sync` with one."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.jobs.sync import run
from kafka_telemetry_lake.pipelines.subscriptions.file import read_subscriptions_file
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription, SubscriptionError, asked
from tests.support.lake_tables import table

GOOD = """
cluster_id: c1
subscriptions:
  - name: everything
    metrics: ["*"]
    interval_ms: 1000
  - name: orders
    metrics: [org.apache.kafka.producer., ""]
    match: {client_software_name: apache-kafka-java, client_id: 'orders-\\d+'}
  - {name: none, metrics: []}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.yml"
    path.write_text(GOOD)
    return path


def test_file_is_read(file: Path) -> None:
    configured = read_subscriptions_file(file, None)
    assert configured.cluster_id == "c1"
    assert configured.subscriptions == (
        Subscription("everything", ("*",), 1000),
        Subscription(
            "orders",
            ("org.apache.kafka.producer.", ""),
            300_000,
            (("client_id", r"orders-\d+"), ("client_software_name", "apache-kafka-java")),
        ),
        Subscription("none"),
    )
    assert read_subscriptions_file(file, "c2").cluster_id == "c2"


def of(fields: str) -> str:
    """The list of a subscription with these fields."""
    return f"[{{name: a, {fields}}}]"


def matching(entry: str) -> str:
    return of(f"metrics: [], match: {{{entry}}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subscriptions: []", "cluster_id: needed, here or by --cluster-id"),
        ("cluster_id: c", "subscriptions: needed"),
        ("[", "not YAML: while parsing"),
        (
            "cluster_id: c\nsubscription: []\nsubscriptions: []",
            "subscription: no such field, allowed: cluster_id, subscr",
        ),
        ("[{metrics: []}]", "subscriptions.0.name: needed"),
        ("[{name: a}]", "subscriptions.0.metrics: needed"),
        (of("metrics: x"), "subscriptions.0.metrics: Input should be a valid list, got 'x'"),
        (of("metrics: [], intervall: 3"), "subscriptions.0.intervall: no such field, allowed: name, metrics, inter"),
        (of("metrics: [], interval_ms: 99"), "interval_ms: Input should be greater than or equal to 100, got 99"),
        (of("metrics: ['x,y']"), "subscriptions.0.metrics: got 'x,y', allowed: prefixes without commas"),
        (of("metrics: [' x']"), "subscriptions.0.metrics: got ' x', allowed: prefixes without commas and outer"),
        (matching("client: x"), "match: got key 'client', allowed: client_instance_id, client_id"),
        (matching("client_id: 'a=b'"), "match: client_id: got 'a=b', allowed: a Java regular exp"),
        (matching("client_id: 'x{1,2}'"), "match: client_id: got 'x{1,2}', allowed: a Java regula"),
        (matching("client_id: ''"), "match: client_id: got '', allowed: a Java regular exp"),
        (
            matching("client_id: '(x'"),
            "subscription 'a': match: client_id: pattern '(x' is no regular expression of Java: unclosed group",
        ),
        ("[{name: a, metrics: []}, {name: a, metrics: []}]", "subscription 'a': given twice, allowed: each name once"),
    ],
)
def test_what_is_wrong_is_named_and_the_last_good_history_stays(
    file: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = str(file.parent / "lake")
    assert run_command("sync", ["--lake", lake, "--subscriptions-file", str(file)]) == 0
    file.write_text(f"cluster_id: c\nsubscriptions: {text}" if text.startswith("[{") else text)
    with pytest.raises(SubscriptionError) as raised:
        read_subscriptions_file(file, None)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{file}: ")
    assert run_command("sync", ["--lake", lake, "--subscriptions-file", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert DeltaTable(f"{lake}/subscriptions").version() == 1
    assert table(Path(lake), "subscriptions").num_rows == 3


def test_sync_and_check(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = file.parent / "lake"
    flags = ["--lake", str(lake), "--subscriptions-file", str(file)]
    caplog.set_level("INFO", "telemetry-lake")

    def output_of(*more: str) -> list[str]:
        caplog.clear()
        assert run_command("sync", [*flags, *more]) == 0
        return [message.partition(":")[0] + message.partition(":")[2].partition(":")[0] for message in caplog.messages]

    created = [f"subscriptions created {name}" for name in ("everything", "orders", "none")]
    assert output_of("--check") == created
    assert not lake.exists()
    assert output_of() == created
    assert output_of() == ["subscriptions no changes"]
    file.write_text(GOOD.replace("1000", "2000").replace("name: orders", "name: bills"))
    changed = ["subscriptions changed everything", "subscriptions created bills", "subscriptions deleted orders"]
    assert output_of("--check") == changed
    assert output_of() == changed
    assert DeltaTable(str(lake / "subscriptions")).version() == 2  # created, and a commit for each change


def test_pattern_that_is_not_translated_is_reported(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(GOOD.replace(r"orders-\d+", r"\p{L}+"))
    assert run_command("sync", ["--lake", str(file.parent / "lake"), "--subscriptions-file", str(file)]) == 0
    problem = "subscription 'orders', match, client_id: "
    assert [each.levelname for each in caplog.records if problem in each.message] == ["WARNING"]


@pytest.mark.parametrize("flags", [[], ["--bootstrap-servers", "x:1", "--subscriptions-file", "f"]])
def test_one_place_to_read_from(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("sync", ["--lake", str(tmp_path), *flags]) == 2
    assert "set exactly one of --bootstrap-servers, --subscriptions-file" in capsys.readouterr().err
    assert run_command("sync", ["--lake", str(tmp_path), "--subscriptions-file", str(tmp_path / "no.yml")]) == 2
    assert "no.yml: No such file or directory" in capsys.readouterr().err


def test_again_and_again_a_failed_look_is_reported_and_the_next_one_tried(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = file.parent / "lake"
    flags = ["--lake", str(lake), "--subscriptions-file", str(file), "--every-seconds", "1"]
    good, looks = file.read_text(), iter(("[", GOOD.replace("1000", "2000"), None))
    caplog.set_level("INFO", "telemetry-lake")

    class Stop(threading.Event):
        """Instead of a wait, the file changes; after the last change it is time to end."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 1
            text = next(looks)
            file.write_text(good if text is None else text)
            return text is None

    run(parse(SyncSettings, flags, "test"), Stop())
    (error,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert error.startswith(f"sync: {file}: not YAML: ")
    assert error.endswith("; the history is unchanged")
    intervals = [row["interval_ms"] for row in table(lake, "subscriptions").to_pylist() if row["name"] == "everything"]
    assert sorted(intervals) == [1000, 2000]


def test_an_empty_list_of_metrics_is_none_or_all_as_the_brokers_read_it(tmp_path: Path) -> None:
    """WarpStream reads ``metrics=`` as all metrics, Apache Kafka as none."""
    lake, file = tmp_path / "lake", tmp_path / "subscriptions.yml"
    file.write_text("cluster_id: c\nsubscriptions: [{name: a, metrics: []}, {name: b, metrics: [org.]}]")
    words = ["--lake", str(lake), "--subscriptions-file", str(file)]
    for meaning, stored in ((None, []), ("all", ["*"]), ("none", [])):
        assert run_command("sync", words if meaning is None else [*words, "--empty-metrics", meaning]) == 0
        rows = [row for row in table(lake, "subscriptions").to_pylist() if row["valid_to"] is None]
        assert {row["name"]: row["metrics"] for row in rows} == {"a": stored, "b": ["org."]}
    metrics = pa.array(["org.apache.kafka.producer.record.send.total", "mine"])
    read = read_subscriptions_file(file, None)
    for configured, asks in ((read, False), (read.all_for_none(), True)):
        (of_a,) = (each for each in configured.subscriptions if each.name == "a")
        assert asked(metrics, of_a).to_pylist() == [asks, asks]
